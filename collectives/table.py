"""The table of backends in docs/comparing.md, from the capability table.

python -m dlscale.collectives.table docs/comparing.md     writes it between the marks
"""

from __future__ import annotations

import sys
from pathlib import Path

from dlscale.base.files import write_atomically
from dlscale.collectives.capabilities import NAMES, capabilities
from dlscale.models.frameworks import KNOWN

BEGIN = "<!-- backends: written by python -m dlscale.collectives.table docs/comparing.md -->"
END = "<!-- backends end -->"


def markdown() -> str:
    """A row per backend: summary, frameworks, devices, MPI, updates, algorithms, shards, halos, installation."""
    lines = [
        "| backend | what it is | frameworks | devices | MPI | updates | algorithms | shards | halos | install |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in NAMES:
        row = capabilities(name)
        updates = [
            *(["synchronous"] if row.exchanges else ["none"]),
            *(["delayed by one step"] if row.delayed else []),
            *(["asynchronous"] if row.asynchronous else []),
        ]
        frameworks = ", ".join(framework for framework in KNOWN if framework in row.frameworks)
        install = f"`{row.install}`" if row.install else "comes with `.venv`"
        algorithms = ", ".join(f"`{algorithm}`" for algorithm in row.algorithms) if row.exchanges else "none"
        cells = (
            f"`{name}`",
            "; ".join(filter(None, (row.summary, row.untried))),
            frameworks,
            ", ".join(row.devices),
            "needed" if row.needs_mpi else "not needed",
            ", ".join(updates),
            algorithms,
            "; ".join(f"{framework}: {', '.join(own)}" for framework, own in row.shards.items()) or "none",
            ", ".join(row.neighbours) or "none",
            install,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def written_into(text: str) -> str:
    """`text` with the table between its marks. Raises ValueError if it has no marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"no place for the table: {BEGIN} and {END} are missing")
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


def main() -> None:
    """Write the table into the file named on the command line."""
    path = Path(sys.argv[1])
    write_atomically(path, written_into(path.read_text(encoding="utf-8")), mode=0o644)


if __name__ == "__main__":
    main()
