"""Count the lines of code that make a single-process script distributed, in docs/examples.

    python tests/analysis/findings/count_examples.py

writes the stored counts and the table of docs/measurements/productivity.md anew. Each folder of examples belongs to a
framework. It has `single.py` and one script per backend, named after it; a trailing underscore avoids a clash with a
package that the script imports (`horovod_.py`).
"""

import ast
import io
import tokenize
from difflib import SequenceMatcher
from pathlib import Path

import pandas as pd

from dlscale.analysis.findings.productivity import STORED

DOCS = Path(__file__).parents[3] / "docs"
BEGIN, END = "<!-- counted -->", "<!-- end of what was counted -->"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


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


def measure_examples(examples: Path = DOCS / "examples") -> pd.DataFrame:
    """The changes of all scripts, by framework, the backend with the fewest lines first."""
    rows = []
    for single in examples.glob("*/single.py"):
        for script in (path for path in single.parent.glob("*.py") if path != single):
            name = f"{single.parent.name}/{script.name}"
            counts = count_changes(single.read_text(), script.read_text())
            rows.append((single.parent.name, script.stem.rstrip("_"), *counts, name))
    frame = pd.DataFrame(rows, columns=["framework", "backend", "added", "changed", "removed", "script"])
    total = frame["added"] + frame["changed"] + frame["removed"]
    order = frame.assign(total=total).sort_values(["framework", "total", "backend"]).index
    return frame.loc[order].reset_index(drop=True)


def in_page(page: str, changes: pd.DataFrame) -> str:
    """The page with the table of the changes between its markers."""
    lines = ["| framework | backend | added | changed | removed |", "| --- | --- | ---: | ---: | ---: |"]
    lines += [
        f"| {one.framework} | [`{one.backend}`](../examples/{one.script}) "
        f"| {one.added} | {one.changed} | {one.removed} |"
        for one in changes.itertuples()
    ]
    before, rest = page.split(f"{BEGIN}\n", 1)
    return "\n".join([f"{before}{BEGIN}", *lines, f"{END}{rest.split(END, 1)[1]}"])


if __name__ == "__main__":
    found, path = measure_examples(), DOCS / "measurements" / "productivity.md"
    path.write_text(in_page(path.read_text(), found))
    found.to_csv(STORED, index=False, lineterminator="\n")
