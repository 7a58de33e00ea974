"""Writes what predictions are held to, and how well they do, into docs/measurements/prediction-validation.md.

    python -m tests.validation.page docs/measurements/prediction-validation.md

Closed forms and replayed programs (`exchanges`), emulated hosts versus predictions from fewer of them
(`emulated_hosts`), published curves versus predictions from public inputs (`published_curves`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from tests.validation.emulated_hosts import hosts_lines
from tests.validation.exchanges import check_lines, closed_form_checks, replay_checks
from tests.validation.measured_hosts import load_measured
from tests.validation.published_curves import published_lines

BEGIN, END = "<!-- validation: written by make validate-prediction -->", "<!-- validation end -->"


def validation_lines() -> list[str]:
    """Every result, as markdown."""
    return [
        "### Closed forms",
        "",
        *check_lines(list(closed_form_checks())),
        "### Replayed programs",
        "",
        *check_lines(list(replay_checks())),
        *hosts_lines(load_measured()),
        "### Published curves",
        "",
        *published_lines(),
    ]


def written_into(text: str, lines: Sequence[str]) -> str:
    """`text` with the lines between its marks. Raises UsageError if it has no marks."""
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (begun and ended):
        raise UsageError(f"no place for the results: write the lines {BEGIN} and {END} into the file")
    return f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n{END}{after}"


def main() -> None:
    """Write the results into the file named on the command line."""
    path = Path(sys.argv[1])
    try:
        write_atomically(path, written_into(path.read_text(encoding="utf-8"), validation_lines()), mode=0o644)
    except UsageError as error:
        sys.exit(f"make validate-prediction: {error}")


if __name__ == "__main__":
    main()
