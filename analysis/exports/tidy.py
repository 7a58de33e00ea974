"""The tidy tables of a study as CSV or Parquet, and a Data Package that says what their columns are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from dlscale.analysis.exports.columns import KEY, TABLES, Column
from dlscale.analysis.exports.launches import counting, key_of, launch_frame
from dlscale.analysis.exports.windows import rank_frame, window_frame
from dlscale.analysis.provenance import Provenance, provenance
from dlscale.benchmarks.record import Record
from dlscale.models.errors import UsageError
from dlscale.models.files import make_folder, write_atomically

Format = Literal["csv", "parquet"]
DESCRIPTION = "datapackage.json"


def write_tables(
    records: Sequence[Record], folder: Path, *, form: Format, per_rank: bool = False
) -> list[Path]:
    """`launches`, `windows` and, if `per_rank`, `ranks` in `folder`; the files that were written.

    Equal records in any order give equal bytes. Raises UsageError without pyarrow where Parquet is asked for.
    """
    if form == "parquet":
        _pyarrow()
    ordered = sorted(records, key=key_of)
    counts = counting(ordered)
    where = provenance(ordered)
    make_folder(folder)
    written = []
    for name in ("launches", "windows", *(["ranks"] if per_rank else [])):
        if name == "launches":
            frame = launch_frame(ordered, counts)
        elif name == "windows":
            frame = window_frame(ordered, lambda record: key_of(record) in counts)
        else:
            frame = rank_frame(ordered)
        path = folder / f"{name}.{form}"
        content = _csv(frame) if form == "csv" else _parquet(frame, TABLES[name], where)
        write_atomically(path, content, mode=0o644, remedy="free space or choose another folder with --out")
        written.append(path)
    description = json.dumps(_description([path.name for path in written], where), indent=1) + "\n"
    write_atomically(folder / DESCRIPTION, description, mode=0o644)
    return [*written, folder / DESCRIPTION]


def _csv(frame: pd.DataFrame) -> bytes:
    text: str = frame.to_csv(index=False, lineterminator="\n")
    return text.encode()


def _parquet(frame: pd.DataFrame, columns: Sequence[Column], where: Provenance) -> bytes:
    """The meaning of a column is in its metadata, the origin of the data in the file's."""
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
    """As https://specs.frictionlessdata.io/tabular-data-package asks for it."""
    key = [column.name for column in KEY]
    resources = []
    for file in names:
        name, _, form = file.partition(".")
        fields = [{"name": one.name, "type": one.kind, "description": one.meaning} for one in TABLES[name]]
        schema: dict[str, Any] = {"fields": fields}
        if name == "launches":
            schema["primaryKey"] = key
        else:
            schema["primaryKey"] = [*key, "window", *(["rank"] if name == "ranks" else [])]
            schema["foreignKeys"] = [{"fields": key, "reference": {"resource": "launches", "fields": key}}]
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
