"""Writes what predictions are held to, and how well they do, into docs/prediction-validation.md.

    python -m tests.validation.page docs/prediction-validation.md

Closed forms and replayed programs (`exchanges`), emulated hosts versus predictions from fewer of them
(`emulated_hosts`), published curves versus predictions from public inputs (`published_curves`), and beside those what
Extra-P answers (`extra_p`), where it is installed: else its table stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dlscale.analysis.published.catalogue import load_published
from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from tests.validation.emulated_hosts import hosts_lines
from tests.validation.exchanges import check_lines, closed_form_checks, replay_checks
from tests.validation.extra_p import rival_lines, rivals, unavailable
from tests.validation.measured_hosts import load_measured
from tests.validation.published_curves import published_lines

BEGIN, END = "<!-- validation: written by make validate-prediction -->", "<!-- validation end -->"
EXTRA_P_BEGIN = "<!-- Extra-P: written by make validate-prediction where it is installed -->"
EXTRA_P_END = "<!-- Extra-P end -->"


def validation_lines() -> list[str]:
    """All that needs no other package."""
    return [
        "### Closed forms",
        "",
        *check_lines(list(closed_form_checks()), every=False),
        "### Replayed programs",
        "",
        *check_lines(list(replay_checks())),
        *hosts_lines(load_measured()),
        "### Published curves",
        "",
        *published_lines(),
    ]


def written_into(text: str, lines: Sequence[str], *, begin: str = BEGIN, end: str = END) -> str:
    """`text` with the lines between its marks. Raises UsageError if it has no marks."""
    before, begun, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise UsageError(f"no place for the results: write the lines {begin} and {end} into the file")
    return f"{before}{begin}\n\n" + "\n".join(lines) + f"\n{end}{after}"


def main() -> None:
    """Write the results into the file named on the command line."""
    path = Path(sys.argv[1])
    try:
        text = written_into(path.read_text(encoding="utf-8"), validation_lines())
        if reason := unavailable():
            sys.stderr.write(f"make validate-prediction: the table with Extra-P stays as it is: {reason}\n")
        else:
            lines = rival_lines(rivals(load_published()))
            text = written_into(text, lines, begin=EXTRA_P_BEGIN, end=EXTRA_P_END)
        write_atomically(path, text, mode=0o644)
    except UsageError as error:
        sys.exit(f"make validate-prediction: {error}")


if __name__ == "__main__":
    main()
