"""Findings for programs and for other documents: JSON, CSV, Parquet, markdown and LaTeX."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from dlscale.analysis.finding import Finding, of_trainings
from dlscale.analysis.findings import cautions
from dlscale.analysis.load import Study
from dlscale.analysis.render.screen import is_numeric
from dlscale.analysis.tables import columns, launches, ranks, trainings, windows
from dlscale.analysis.text import escape_latex
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, write_atomically

Format = Literal["csv", "parquet"]
LARGEST = 2**63  # of an integer
# Begins of cells that spreadsheets compute; the wide ones are formulas where Japanese or Chinese is written.
_FORMULA = ("=", "+", "-", "@", "|", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
COUNT = re.compile(r"num_\w+|\w+_bytes|\w+_n|window|rank|slowest_rank")  # columns of whole numbers
# Emphasis, code, HTML, tables, mathematics, entities and links, but not an interval in brackets.
_MARKUP = re.compile(r"([\\`*<|~$]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|\](?=[(\[:]))")


def as_data(study: Study, findings: Iterable[Finding]) -> dict[str, Any]:
    """What `--json` has: one list of rows per finding, under its name, with the frame's columns as keys."""
    found = {one.name: rows_of(one.exported(one.of(study))) for one in findings if one.columns}
    return {"schema": 2, **found}


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as JSON has them: None for what is missing or not finite."""
    columns = {name: [_plain(value) for value in frame[name].tolist()] for name in frame}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return None if value is None or value is pd.NaT or value is pd.NA else value


def as_csv(frame: pd.DataFrame) -> str:
    """A frame as CSV. Text that a spreadsheet would take for a formula begins with an apostrophe."""
    texts = {key: frame[key].map(as_cell) for key in frame if not pd.api.types.is_numeric_dtype(frame[key])}
    return str(frame.assign(**texts).to_csv(index=False, lineterminator="\n"))


# Tables of launches and of findings, for other programs


def write_tables(
    study: Study, findings: Iterable[Finding], folder: Path, *, form: Format, per_rank: bool = False
) -> list[Path]:
    """Write launches, windows, with `per_rank` those of each rank, trainings, and each finding's frame as `finding-*`.

    `datapackage.json` says what each column is. Equal records in any order give equal bytes. Raises UsageError for
    Parquet without pyarrow, and for a number that is too large for a table.
    """
    if form == "parquet":
        _pyarrow()
    attempts = launches(study)
    frames = {"launches": attempts.drop(columns="number"), "windows": windows(study, attempts)}
    frames |= {"ranks": ranks(study, attempts)} if per_rank else {}
    ended = trainings(study, attempts)
    frames |= {"trainings": ended} if len(ended) else {}
    about = {name: columns(name) for name in frames}
    for finding in findings:
        frame = finding.exported(finding.of(study)) if finding.columns else pd.DataFrame()
        if len(frame):
            phrases = {name: column.about for name, column in finding.columns.items()}
            frames[f"finding-{finding.name}"] = frame
            about[f"finding-{finding.name}"] = columns("launches") | phrases
    make_folder(folder, option="--out")
    resources, written = [], []
    for name, frame in frames.items():
        typed, own = _typed(frame, name), about[name]
        content = as_csv(typed) if form == "csv" else _parquet(typed, own, study.origin)
        path = folder / f"{name}.{form}"
        write_atomically(path, content, mode=0o644, remedy="free space or choose another folder with --out")
        written.append(path)
        resources.append(_resource(typed, path, own))
    package = {"name": "dlscale-tables", "description": study.origin, "resources": resources}
    write_atomically(folder / "datapackage.json", json.dumps(package, indent=1) + "\n", mode=0o644)
    return [*written, folder / "datapackage.json"]


def _typed(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """The frame with counts as whole numbers, and nothing that is not finite. Raises UsageError for too large ones."""
    typed = frame.replace([math.inf, -math.inf], math.nan)
    for column, values in typed.items():
        kind = pd.api.types.infer_dtype(values, skipna=True)
        if kind == "boolean":
            typed[column] = values.astype("boolean")
        elif kind not in ("integer", "floating", "mixed-integer-float"):
            typed[column] = values.astype("string")
        elif kind == "integer" or (COUNT.fullmatch(str(column)) and (values.dropna() % 1 == 0).all()):
            if values.abs().max() >= LARGEST:
                raise UsageError(
                    f"table {name}: {column} of {values.abs().max():.3g} is more than 64 bits hold; remove its record"
                )
            typed[column] = values.astype("Int64")
        else:
            typed[column] = values.astype("Float64")
    return typed


KINDS = {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}
KEYS = {"launches": [], "windows": ["window"], "ranks": ["window", "rank"]}
LAUNCH = ["study", "case_id", "attempt"]  # the key of a row of `launches`, which the others' lead to


def _resource(frame: pd.DataFrame, path: Path, about: Mapping[str, str]) -> dict[str, Any]:
    """A table in the Data Package, see https://specs.frictionlessdata.io/tabular-data-package."""
    types = {name: KINDS.get(getattr(kind, "kind", "O"), "string") for name, kind in frame.dtypes.items()}
    fields = [{"name": one, "type": kind, "description": _about(one, about)} for one, kind in types.items()]
    schema: dict[str, Any] = {"fields": fields}
    if path.stem in KEYS:
        schema["primaryKey"] = LAUNCH + KEYS[path.stem]
    if KEYS.get(path.stem):
        schema["foreignKeys"] = [{"fields": LAUNCH, "reference": {"resource": "launches", "fields": LAUNCH}}]
    profile = "tabular-data-resource" if path.suffix == ".csv" else "data-resource"
    return {"name": path.stem, "path": path.name, "profile": profile, "schema": schema}


def _about(name: str, about: Mapping[str, str]) -> str:
    """What a column is; limits and n are those of the column that their names begin with."""
    stem, _, end = name.rpartition("_")
    of = {"low": "lower limit of", "high": "upper limit of", "n": "launches or blocks behind"}
    return about.get(name) or (f"{of[end]} {stem}" if end in of and stem in about else "")


def _parquet(frame: pd.DataFrame, about: Mapping[str, str], origin: str) -> bytes:
    arrow, parquet = _pyarrow()
    table = arrow.Table.from_pandas(frame, preserve_index=False)
    fields = [field.with_metadata({"description": _about(field.name, about)}) for field in table.schema]
    sink = arrow.BufferOutputStream()
    schema = arrow.schema(fields, metadata={"dlscale": origin})
    parquet.write_table(table.cast(schema), sink, compression="zstd")
    return bytes(sink.getvalue())


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            "writing Parquet needs the package pyarrow: pip install 'dlscale[parquet]'; or give --format csv"
        ) from None
    return pyarrow, pyarrow.parquet


# Documents


def escape_markdown(text: str) -> str:
    """Text from records with all markup escaped, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def study_markdown(study: Study, findings: Iterable[Finding]) -> str:
    """Sentences and tables of all findings as GitHub's markdown, and the origin of the numbers."""
    return "\n".join([*_markdown(study, findings), escape_markdown(f"Origin: {study.origin}."), ""])


def _markdown(study: Study, findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        frame = finding.of(study)
        if not len(frame):
            continue
        sentence = [escape_markdown(line) for line in finding.sentence(frame).splitlines()]
        tables = [(training, finding.table(rows)) for training, rows in of_trainings(frame)]
        shown = [(training, table) for training, table in tables if table.size]
        if not sentence and not shown:
            continue
        yield from (f"## {escape_markdown(finding.title)}", "")
        if sentence:
            is_bold = finding is cautions.FINDING
            yield from (f"**{'  '.join(sentence)}**" if is_bold else "  \n".join(sentence), "")
        for training, table in shown:
            yield from (f"### {escape_markdown(table.attrs['caption'] or training or finding.title)}", "")
            yield from (markdown(table), "")


def markdown(table: pd.DataFrame) -> str:
    """A table of texts; numbers are right-aligned."""
    lines = [[*map(escape_markdown, map(str, table))]]
    lines.append(["---:" if is_numeric(table[name]) else "---" for name in table])
    lines += [[escape_markdown(cell) for cell in row] for row in table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


# In characters of 8 pt: a line between the wide margins of LaTeX's own classes, and the gap between two columns.
MOST_CHARACTERS, GAP_CHARACTERS = 78, 3


def latex(table: pd.DataFrame, *, caption: str, name: str, num_keys: int = 1) -> str:
    """A table of texts for LaTeX; a wide one is several below each other, each with the first `num_keys` columns."""
    widths = {column: max([len(column), *table[column].str.len()]) + GAP_CHARACTERS for column in table}
    keys, rest = list(table)[:num_keys], list(table)[num_keys:]
    parts: list[list[str]] = [[]]
    for column in rest:
        if parts[-1] and sum(widths[one] for one in [*keys, *parts[-1], column]) > MOST_CHARACTERS:
            parts.append([])
        parts[-1].append(column)
    lines = ["\\begin{table}[htb]", "  \\centering", "  \\fontsize{8}{10}\\selectfont"]
    lines += [f"  \\caption{{{escape_latex(caption)}}}", f"  \\label{{tab:{name}}}"]
    for part in parts:
        lines += _tabular(table[[*keys, *part]]) + ["  \\par\\medskip"] * (part is not parts[-1])
    return "\n".join([*lines, "\\end{table}"])


def _tabular(table: pd.DataFrame) -> list[str]:
    """Cells are in braces: a leading bracket would be read as an option of the previous line's end."""
    places = "".join("r" if is_numeric(table[name]) else "l" for name in table)
    rows = [[*table], *table.to_numpy().tolist()]
    lines = ["    " + " & ".join(f"{{{escape_latex(cell)}}}" for cell in row) + " \\\\" for row in rows]
    rule = "    \\hline"
    return [f"  \\begin{{tabular}}{{{places}}}", rule, lines[0], rule, *lines[1:], rule, "  \\end{tabular}"]


def as_cell(value: Any) -> Any:
    """A value as a cell of a CSV file that no spreadsheet takes for a formula: text that begins like one gets a quote.

    See https://owasp.org/www-community/attacks/CSV_Injection; text that is a number stays one, and so does "-".
    """
    if not isinstance(value, str) or value == "-" or not value.lstrip(" ").startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
