"""The tidy tables of a study as CSV or Parquet, and a Data Package that describes their columns.

`tidy.toml` declares the columns, `tidy_rows` makes what a record has in them. A row's key are study, case and attempt;
predictions have no launch behind them.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from dlscale.analysis.launches import latest_good
from dlscale.analysis.provenance import Provenance, provenance
from dlscale.analysis.records import tidy_prediction
from dlscale.analysis.render import tidy_rows
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, write_atomically
from dlscale.base.strings import as_cell
from dlscale.benchmarks.records.prediction import PredictionRecord
from dlscale.benchmarks.records.record import Record

Format = Literal["csv", "parquet"]
Key = tuple[str, str, str, int]  # system, study, case, attempt
DESCRIPTION = "datapackage.json"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a tidy table; kinds are those of a Data Package."""

    name: str
    kind: Literal["string", "integer", "number", "boolean"]
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    """What a record has in a table, and what identifies its rows beside the launch. None: it has no rows there.

    The text of `long` tables, of many rows and few words, is categorical.
    """

    rows: Callable[[Any], tidy_rows.Columns]
    has_rows: Callable[[Record], object]
    key: tuple[str, ...] = ()
    long: bool = False


def _ended(record: Record) -> bool:
    return bool(record.case.cell.target and record.solution)


TABLES = {
    "launches": Table(tidy_rows.launch, lambda _: True),
    "windows": Table(tidy_rows.windows, lambda record: len(record.windows), ("window",), long=True),
    "ranks": Table(tidy_rows.ranks, lambda record: len(record.windows), ("window", "rank"), long=True),
    "trainings": Table(tidy_rows.training, _ended),
    "evaluations": Table(tidy_rows.evaluations, _ended, ("evaluation",), long=True),
    "metrics": Table(tidy_rows.metrics, _ended, ("evaluation", "metric"), long=True),
    "gradients": Table(tidy_rows.gradients, lambda record: record.profile, ("place",)),
    "predictions": Table(
        tidy_prediction,
        lambda _: True,
        (
            *(
                "system",
                "workload",
                "preset",
                "framework",
                "backend",
                "backend_options",
                "shard",
                "exchange_algorithm",
            ),
            *("scaling_mode", "num_ranks", "num_servers", "num_nodes", "local_batch"),
        ),
    ),
}
ALWAYS = ("launches", "windows")  # also without rows


@cache
def columns_of(name: str) -> tuple[Column, ...]:
    """The columns of a table, in order."""
    text = Path(__file__).with_name("tidy.toml").read_text(encoding="utf-8")
    declared = tomllib.loads(text)
    own = declared[name] if name == "predictions" else declared["key"] | declared[name]
    return tuple(Column(column, kind, meaning) for column, (kind, meaning) in own.items())


def write_tables(
    records: Sequence[Record],
    folder: Path,
    *,
    form: Format,
    per_rank: bool = False,
    predicted: Sequence[PredictionRecord] = (),
) -> list[Path]:
    """Write the tables that have rows, `ranks` only if `per_rank`, into `folder` and return the paths of the files.

    Equal records in any order give equal bytes. Raises UsageError if Parquet is requested without pyarrow.
    """
    if form == "parquet":
        _pyarrow()
    ordered = sorted(records, key=key_of)
    counts, where = counting(ordered), provenance(ordered)
    make_folder(folder, option="--out")
    written = []
    for name, table in TABLES.items():
        own: Sequence[Any] = predicted if name == "predictions" else list(filter(table.has_rows, ordered))
        if per_rank if name == "ranks" else own or name in ALWAYS:
            frame = frame_of(name, own, counts)
            content = _csv(frame) if form == "csv" else _parquet(frame, columns_of(name), where)
            path = folder / f"{name}.{form}"
            write_atomically(
                path, content, mode=0o644, remedy="free space or choose another folder with --out"
            )
            written.append(path)
    description = json.dumps(_description([path.name for path in written], where), indent=1) + "\n"
    write_atomically(folder / DESCRIPTION, description, mode=0o644)
    return [*written, folder / DESCRIPTION]


def key_of(record: Record) -> Key:
    """The key that identifies an attempt."""
    return record.system, record.study, record.case.id, record.attempt


def counting(records: Iterable[Record]) -> set[Key]:
    """The attempts that count in the report's numbers; canaries do not."""
    return {key_of(record) for record in latest_good(records) if record.case.cell.control != "canary"}


def frame_of(name: str, records: Sequence[Any], counts: Collection[Key]) -> pd.DataFrame:
    """The table of this name, in the order of the records."""
    table = TABLES[name]
    parts = []
    for record in records:
        part = table.rows(record)
        if name != "predictions":
            part = _shared(record) | part
            part["counts"] = part.get("counts", True) & (key_of(record) in counts)
        parts.append(part)
    lengths = [
        max((len(value) for value in part.values() if isinstance(value, np.ndarray)), default=1)
        for part in parts
    ]
    return pd.DataFrame(
        {
            column.name: _column(
                [
                    np.broadcast_to(_array(part.get(column.name), column), length)
                    for part, length in zip(parts, lengths, strict=True)
                ],
                column,
                categorical=table.long,
            )
            for column in columns_of(name)
        }
    )


def _shared(record: Record) -> tidy_rows.Columns:
    """The launch of a row, and what its table repeats of it."""
    cell = record.case.cell
    names = (
        "workload",
        "preset",
        "framework",
        "backend",
        "control",
        "num_ranks",
        "local_batch",
        "global_batch",
    )
    return {
        "study": record.study,
        "case_id": record.case.id,
        "attempt": record.attempt,
        "block": record.case.block,
        **{name: getattr(cell, name) for name in names},
    }


DTYPES = {"string": "string", "integer": "Int64", "number": "Float64", "boolean": "boolean"}
ARRAYS = {"string": object, "integer": np.float64, "number": np.float64, "boolean": object}


def _array(value: object, column: Column) -> Any:
    return np.asarray(value, dtype=ARRAYS[column.kind])


def _column(arrays: Sequence[Any], column: Column, *, categorical: bool) -> Any:
    """The parts after each other; what is not finite is unknown."""
    values = np.concatenate([*arrays, np.array([], dtype=ARRAYS[column.kind])])
    if column.kind == "string" and categorical:
        return pd.Categorical(values)
    if values.dtype == np.float64:
        values = np.where(np.isfinite(values), values, np.nan)
    make: Any = pd.array  # its annotations accept only literal names of types
    return make(values, dtype=DTYPES[column.kind])


def _csv(frame: pd.DataFrame) -> bytes:
    text: str = frame.apply(_neutral).to_csv(index=False, lineterminator="\n")
    return text.encode()


def _neutral(column: Any) -> Any:
    """A column of text without formulas; of a long one its few words are looked at."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        words = column.cat.categories
        return column if all(as_cell(word) is word for word in words) else column.astype(object).map(as_cell)
    return column.map(as_cell, na_action="ignore") if isinstance(column.dtype, pd.StringDtype) else column


def _parquet(frame: pd.DataFrame, columns: Sequence[Column], where: Provenance) -> bytes:
    """The table as Parquet; column metadata has each column's meaning, file metadata the origin of the data."""
    pa, pq = _pyarrow()
    kinds = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
    fields = []
    for column in columns:
        kind = kinds[column.kind]
        if isinstance(frame.dtypes[column.name], pd.CategoricalDtype):
            kind = pa.dictionary(pa.int32(), kind)
        fields.append(pa.field(column.name, kind, metadata={"description": column.meaning}))
    schema = pa.schema(fields, metadata={"dlscale": where.line()})
    table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False).replace_schema_metadata(
        schema.metadata
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def _description(names: Sequence[str], where: Provenance) -> dict[str, Any]:
    """The Data Package, see https://specs.frictionlessdata.io/tabular-data-package."""
    launch = ["study", "case_id", "attempt"]
    resources = []
    for file in names:
        name, _, form = file.partition(".")
        schema: dict[str, Any] = {
            "fields": [
                {"name": column.name, "type": column.kind, "description": column.meaning}
                for column in columns_of(name)
            ],
            "primaryKey": [*([] if name == "predictions" else launch), *TABLES[name].key],
        }
        if name not in ("launches", "predictions"):
            schema["foreignKeys"] = [
                {"fields": launch, "reference": {"resource": "launches", "fields": launch}}
            ]
        profile = "tabular-data-resource" if form == "csv" else "data-resource"
        resources.append({"name": name, "path": file, "profile": profile, "schema": schema})
    return {"name": "dlscale-tables", "description": where.line(), "resources": resources}


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UsageError(
            "writing Parquet needs the package pyarrow: pip install 'dlscale[parquet]'; or give --format csv"
        ) from None
    return pa, pq
