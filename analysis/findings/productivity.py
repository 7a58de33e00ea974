"""Productivity: the lines of code that make a single-process training script distributed, counted in `docs/examples`.

Each folder there belongs to a framework. It has `single.py` and one script per backend, named after it; a trailing
underscore avoids a clash with a package that the script imports (`horovod_.py`). The counts are stored next to this
file, because an installation has no `docs`. After a change of an example run:

    python -m dlscale.analysis.findings.productivity docs/examples
"""

from __future__ import annotations

import ast
import csv
import hashlib
import io
import sys
import tokenize
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from dlscale.analysis.declare import Column, TableOf, Tags
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import scaling
from dlscale.base.errors import UsageError


def to_productivity_row(change: Change) -> dict[str, Any]:
    """The row of a change: lines of code between `single.py` and `script`, both under docs/examples."""
    return {
        "framework": change.framework,
        "backend": change.backend,
        "added": change.added,
        "changed": change.changed,
        "removed": change.removed,
        "script": change.script,
    }


STORED = Path(__file__).with_suffix(".csv")
SINGLE = "single.py"
DIGEST_DIGITS = 12
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
BEGIN, END = "<!-- counted -->", "<!-- end of what was counted -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The difference between a framework's `single.py` and the script of one backend, in lines of code."""

    framework: str
    backend: str
    added: int
    changed: int
    removed: int
    script: str  # FRAMEWORK/FILE under docs/examples
    digest: str  # of both scripts

    @property
    def order(self) -> tuple[str, int, str]:
        """The sort key: by framework, then the backend with the fewest lines first."""
        return self.framework, self.added + self.changed + self.removed, self.backend


LEGEND = (
    "Lines of code between single.py and that script, both under docs/examples; blank lines, comments and docstrings "
    "do not count. docs/productivity.md has all of them."
)
PRODUCTIVITY = TableOf[Change](
    name="productivity",
    caption="Lines to make a single-process script distributed",
    columns=(
        Column("framework", lambda change: change.framework, numeric=False),
        Column("backend", lambda change: change.backend, numeric=False),
        Column("added", lambda change: change.added, unit="lines"),
        Column("changed", lambda change: change.changed, unit="lines"),
        Column("removed", lambda change: change.removed, unit="lines"),
        Column("script", lambda change: change.script, numeric=False),
    ),
    data=to_productivity_row,
    legend=LEGEND,
    tags=lambda change: Tags(framework=change.framework, backend=change.backend),
    group=lambda change: change.framework,
)


def code_lines(source: str) -> list[str]:
    """The lines with code, with their indentation, without comments and docstrings."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            begin, end = node.body[0].lineno - 1, node.body[0].end_lineno
            lines[begin:end] = [""] * len(lines[begin:end])
    return [line.rstrip() for line in lines if line.strip()]


def count_changes(single: str, distributed: str) -> tuple[int, int, int]:
    """Lines added, changed and removed from one source to the other.

    If b lines replace a lines, min(a, b) are changed and the rest is added or removed.
    """
    added = changed = removed = 0
    before, after = code_lines(single), code_lines(distributed)
    for kind, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            both = min(j - i, m - k)
            changed += both
            removed += j - i - both
            added += m - k - both
    return added, changed, removed


def measure_examples(examples: Path) -> list[Change]:
    """The changes of all scripts under `examples`, in order. Raises UsageError without any, or if one is not Python."""
    changes = [
        _change(single, script)
        for single in examples.glob(f"*/{SINGLE}")
        for script in single.parent.glob("*.py")
        if script.name != SINGLE
    ]
    if not changes:
        raise UsageError(
            f"no scripts to compare in {examples}; name the folder with FRAMEWORK/{SINGLE}: docs/examples"
        )
    return sorted(changes, key=lambda change: change.order)


def _change(single: Path, script: Path) -> Change:
    before, after = single.read_text(), script.read_text()
    try:
        added, changed, removed = count_changes(before, after)
    except (SyntaxError, tokenize.TokenError) as error:
        raise UsageError(f"cannot compare {script} with {SINGLE}: not Python, {error}") from None
    return Change(
        framework=single.parent.name,
        backend=script.stem.rstrip("_"),
        added=added,
        changed=changed,
        removed=removed,
        script=f"{single.parent.name}/{script.name}",
        digest=hashlib.sha256(f"{before}\0{after}".encode()).hexdigest()[:DIGEST_DIGITS],
    )


def stored_changes(pairs: Collection[tuple[str, str]] | None = None) -> list[Change]:
    """The stored counts, in order; only those of the given (framework, backend) pairs if there are any."""
    with STORED.open(newline="") as lines:
        changes = [
            Change(
                framework=row["framework"],
                backend=row["backend"],
                added=int(row["added"]),
                changed=int(row["changed"]),
                removed=int(row["removed"]),
                script=row["script"],
                digest=row["digest"],
            )
            for row in csv.DictReader(lines)
        ]
    return [change for change in changes if pairs is None or (change.framework, change.backend) in pairs]


def changes_csv(changes: Iterable[Change]) -> str:
    """The changes as the text of the stored CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Change)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(change) for change in changes)
    return text.getvalue()


def changes_markdown(changes: Iterable[Change]) -> str:
    """The table of docs/productivity.md."""
    header = ["| framework | backend | added | changed | removed |", "| --- | --- | ---: | ---: | ---: |"]
    return "\n".join(
        [
            *header,
            *(
                f"| {change.framework} | [`{change.backend}`](examples/{change.script}) "
                f"| {change.added} | {change.changed} | {change.removed} |"
                for change in changes
            ),
        ]
    )


def in_page(page: str, table: str) -> str:
    """The page with the table between its markers."""
    before, rest = page.split(f"{BEGIN}\n", 1)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.split(END, 1)[1]}"


FINDINGS = (
    Finding(
        name="productivity",
        title="Lines of code per backend",
        compute=lambda study: stored_changes(
            {(row.cell.framework, row.cell.backend) for row in scaling.FINDING.of(study)}
        ),
        table=PRODUCTIVITY,
    ),
)


def main(arguments: Sequence[str]) -> None:
    """Count again, and update the stored file and the table of docs/productivity.md."""
    if len(arguments) != 1:
        raise SystemExit("name one folder: python -m dlscale.analysis.findings.productivity docs/examples")
    examples = Path(arguments[0])
    try:
        changes = measure_examples(examples)
    except UsageError as error:
        raise SystemExit(str(error)) from None
    page = examples.resolve().parent / "productivity.md"
    page.write_text(in_page(page.read_text(), changes_markdown(changes)))
    STORED.write_text(changes_csv(changes))


if __name__ == "__main__":
    main(sys.argv[1:])
