"""The tidy tables of a study as CSV or Parquet, and a Data Package that describes their columns.

`launches` has a row per launch and attempt, failed ones included; `windows` a row per window; `ranks` a row per window
and rank; `trainings`, `evaluations` and `metrics` are of trainings with a target (`tidy_trainings`); `gradients` has a
row per gradient of a profile, `predictions` a row per prediction (`records.tidy_prediction`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlscale.analysis.families import environment_text
from dlscale.analysis.findings.energy import Reading, reading
from dlscale.analysis.findings.solutions import goal_text, tuned_text
from dlscale.analysis.launches import latest_good
from dlscale.analysis.provenance import Provenance, provenance
from dlscale.analysis.records import (
    algorithm_text,
    equal_steps,
    exchange_mode,
    has_rank_steps,
    num_samples,
    options_text,
    slowest_in_phase,
    start_skew,
    tidy_prediction,
    why_unusable,
    world_step_seconds,
)
from dlscale.analysis.render.tidy_columns import (
    GRADIENTS,
    KEY,
    LAUNCHES,
    PREDICTION_KEY,
    PREDICTIONS,
    RANKS,
    ROW_KEYS,
    TABLES,
    WINDOWS,
    Column,
)
from dlscale.analysis.render.tidy_trainings import evaluation_arrays, metric_arrays, training_row
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, write_atomically
from dlscale.benchmarks.records.prediction import PredictionRecord
from dlscale.benchmarks.records.record import Phases, Record

Format = Literal["csv", "parquet"]
DESCRIPTION = "datapackage.json"


def write_tables(
    records: Sequence[Record],
    folder: Path,
    *,
    form: Format,
    per_rank: bool = False,
    predicted: Sequence[PredictionRecord] = (),
) -> list[Path]:
    """Write `launches`, `windows` and, if `per_rank`, `ranks` into `folder` and return the paths of the files.

    Where a training with a target ended by itself, `trainings`, `evaluations` and `metrics` are written too,
    `gradients` where a step was profiled, and `predictions` where any are given.
    Equal records in any order give equal bytes. Raises UsageError if Parquet is requested without pyarrow.
    """
    if form == "parquet":
        _pyarrow()
    ordered = sorted(records, key=key_of)
    counts = counting(ordered)
    where = provenance(ordered)
    make_folder(folder)
    written = []
    ended = [record for record in ordered if record.solution]
    of_ranks = ["ranks"] if per_rank else []
    of_trainings = ["trainings", "evaluations", "metrics"] if ended else []
    profiled = [record for record in ordered if record.profile]
    of_profiles = ["gradients"] if profiled else []
    of_predictions = ["predictions"] if predicted else []
    for name in ("launches", "windows", *of_ranks, *of_trainings, *of_profiles, *of_predictions):
        if name == "launches":
            frame = launch_frame(ordered, counts)
        elif name == "windows":
            frame = window_frame(ordered, lambda record: key_of(record) in counts)
        elif name == "ranks":
            frame = rank_frame(ordered)
        elif name == "gradients":
            frame = gradient_frame(profiled, counts)
        elif name == "predictions":
            frame = typed([tidy_prediction(record) for record in predicted], PREDICTIONS)
        else:
            frame = solution_frame(name, ended, counts)
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
    key = [column.name for column in KEY]
    resources = []
    for file in names:
        name, _, form = file.partition(".")
        fields = [
            {"name": column.name, "type": column.kind, "description": column.meaning}
            for column in TABLES[name]
        ]
        schema: dict[str, Any] = {"fields": fields}
        of_launch = name != "predictions"
        schema["primaryKey"] = [*key, *ROW_KEYS[name]] if of_launch else [*PREDICTION_KEY]
        if of_launch and name != "launches":
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


Key = tuple[str, str, str, int]  # system, study, case, attempt


def key_of(record: Record) -> Key:
    """The key that identifies an attempt."""
    return record.system, record.study, record.case.id, record.attempt


def counting(records: Iterable[Record]) -> set[Key]:
    """The attempts that count in the report's numbers; canaries do not."""
    return {key_of(record) for record in latest_good(records) if record.case.cell.control != "canary"}


def launch_frame(records: Sequence[Record], counts: Collection[Key]) -> pd.DataFrame:
    """The table `launches`, in the order of the records."""
    return typed([_row(record, counts=key_of(record) in counts) for record in records], LAUNCHES)


def _row(record: Record, *, counts: bool) -> dict[str, object]:
    cell, reason, windows = record.case.cell, why_unusable(record), record.counted
    row: dict[str, object] = {
        "study": record.study,
        "case_id": record.case.id,
        "attempt": record.attempt,
        "counts": counts,
        "system": record.system,
        "cell_id": cell.id,
        **cell.model_dump(exclude={"variables", "own"}),
        "backend_options": options_text(cell),
        "algorithm": cell.algorithm,
        "algorithm_options": algorithm_text(cell),
        "environment": environment_text(cell),
        "target": goal_text(cell.target) if cell.target else "",
        "learning_rate": cell.target.learning_rate if cell.target else None,
        "tuning": tuned_text(cell.target) if cell.target else "",
        "slept": cell.slept.text if cell.slept else "",
        "unchecked": cell.unchecked,
        "block": record.case.block,
        "position": record.case.position,
        "evidence": record.evidence,
        "started_at": record.started_at,
        "fingerprint": record.fingerprint.digest,
        "commit": record.fingerprint.commit,
        "failure_kind": record.failure.kind if record.failure else "",
        "reason": reason or "",
        "oversubscribed": record.oversubscribed,
        "steady": record.steady,
        "exchange": exchange_mode(record),
        "num_windows": len(windows),
        "num_steps": int(windows.num_steps.sum()),
        "num_samples": int(num_samples(windows, cell).sum()),
        "peak_rss_bytes": max((rank.peak_rss_bytes for rank in record.ranks), default=0) or None,
        "num_skipped_samples": sum(count for count in record.skipped_samples if count),
        **{f"{name}_seconds": slowest_in_phase(record.phases, name) for name in Phases.model_fields},
    }
    if reason is None:
        seconds = float(np.median(world_step_seconds(record)))
        row["seconds_per_step"] = seconds
        if cell.control != "exchange":
            row["samples_per_second"] = cell.global_batch / seconds
        row["start_skew_of_window"] = start_skew(record)
    energy = reading(record)
    if isinstance(energy, Reading):
        row["energy_joules"] = energy.joules
        row["joules_per_sample"] = energy.joules_per_sample
        row["energy_sources"] = ", ".join(energy.sources)
    else:
        row["energy_sources"] = ""
    return row


Arrays = dict[str, NDArray[Any]]
Matrix = NDArray[np.float64]  # [W][P]


def window_frame(records: Sequence[Record], counts: Callable[[Record], bool]) -> pd.DataFrame:
    """The table `windows`, in the order of the records. Only steady windows of records with `counts` count."""
    return stacked([_windows(record, counts=counts(record)) for record in records if record.windows], WINDOWS)


def rank_frame(records: Sequence[Record]) -> pd.DataFrame:
    """The table `ranks`, in the order of the records."""
    return stacked([_ranks(record) for record in records if record.windows], RANKS)


def solution_frame(name: str, records: Sequence[Record], counts: Collection[Key]) -> pd.DataFrame:
    """The table `trainings`, `evaluations` or `metrics` of trainings that ended, in the order of the records."""
    ended = [
        (record, record.case.cell.target, record.solution)
        for record in records
        if record.case.cell.target and record.solution
    ]
    if name == "trainings":
        rows = [
            {**_words_of_key(record), "counts": key_of(record) in counts}
            | training_row(record, target, solution)
            for record, target, solution in ended
        ]
        return typed(rows, TABLES[name])
    parts = [
        _key(record)
        | (
            metric_arrays(solution)
            if name == "metrics"
            else evaluation_arrays(record, solution, counts=key_of(record) in counts)
        )
        for record, _, solution in ended
    ]
    return stacked(parts, TABLES[name])


def gradient_frame(records: Sequence[Record], counts: Collection[Key]) -> pd.DataFrame:
    """The table `gradients` of records with a profile, in their order."""
    rows = [
        {
            **_words_of_key(record),
            "counts": key_of(record) in counts,
            **{name: getattr(record.case.cell, name) for name in ("workload", "framework", "local_batch")},
            "block": record.case.block,
            "place": place,
            "gradient": gradient.name,
            "num_bytes": gradient.num_bytes,
            "ready_low_seconds": gradient.ready.low,
            "ready_seconds": gradient.ready.median,
            "ready_high_seconds": gradient.ready.high,
        }
        for record in records
        if record.profile
        for place, gradient in enumerate(record.profile.gradients)
    ]
    return typed(rows, GRADIENTS)


def _words_of_key(record: Record) -> dict[str, object]:
    return {"study": record.study, "case_id": record.case.id, "attempt": record.attempt}


def _windows(record: Record, *, counts: bool) -> Arrays:
    cell, windows = record.case.cell, record.columns
    starts, seconds = _whole(windows.start_seconds, cell.num_ranks), _whole(windows.seconds, cell.num_ranks)
    # Without the times of all ranks a window has no world time, as the missing rank may be the slowest.
    unsound = ~np.all((seconds > 0) & np.isfinite(seconds), axis=1)
    seconds[unsound] = np.nan
    world = seconds.max(axis=1)
    applied = np.full(len(windows), np.nan) if windows.num_applied is None else windows.num_applied
    steps, samples = equal_steps(windows, cell), num_samples(windows, cell)
    phases = np.where(windows.steady, "steady", "warmup").astype(object)
    own = record.clocks[0] if record.clocks else []  # other machines' clocks count from other boots
    shared = [ranks for ranks in record.clocks if len(ranks) > 1]
    return {
        **_key(record),
        **{
            name: np.array(getattr(cell, name), dtype=object)
            for name in ("workload", "framework", "backend", "control")
        },
        "num_ranks": np.array(cell.num_ranks),
        "block": np.array(record.case.block),
        "window": np.arange(len(windows)),
        "phase": phases,
        "counts": (phases == "steady") & counts,
        "num_steps": windows.num_steps.astype(np.int64),
        "num_applied": applied,
        "num_samples": samples.astype(np.int64),
        "start_seconds": starts[:, own].min(axis=1) if own else np.full(len(windows), np.nan),
        "start_skew_seconds": (
            np.max([np.ptp(starts[:, ranks], axis=1) for ranks in shared], axis=0)
            if shared
            else np.full(len(windows), 0.0 if cell.num_ranks == 1 else np.nan)
        ),
        "slowest_rank": np.where(unsound, np.nan, seconds.argmax(axis=1)),
        "slowest_rank_seconds": world,
        "mean_rank_seconds": seconds.mean(axis=1),
        "fastest_rank_seconds": seconds.min(axis=1),
        "seconds_per_step": np.divide(world, steps, out=np.full(len(windows), np.nan), where=steps > 0),
        "samples_per_second": np.where(cell.control == "exchange", np.nan, samples / world),
    }


def _ranks(record: Record) -> Arrays:
    windows, num_ranks = record.columns, record.case.cell.num_ranks
    steps = np.repeat(windows.num_steps[:, np.newaxis], num_ranks, axis=1)
    if has_rank_steps(record):
        rows = [window.rank_steps or [window.num_steps] * num_ranks for window in record.windows]
        steps = np.array([row if len(row) == num_ranks else [np.nan] * num_ranks for row in rows])
    return {
        **_key(record),
        "window": np.repeat(np.arange(len(windows)), num_ranks),
        "rank": np.tile(np.arange(num_ranks), len(windows)),
        "num_steps": steps.ravel(),
        "start_seconds": _whole(windows.start_seconds, num_ranks).ravel(),
        "seconds": _whole(windows.seconds, num_ranks).ravel(),
    }


def _key(record: Record) -> Arrays:
    return {
        "study": np.array(record.study, dtype=object),
        "case_id": np.array(record.case.id, dtype=object),
        "attempt": np.array(record.attempt),
    }


def _whole(times: Matrix, num_ranks: int) -> Matrix:
    """A copy, [W][P], of times that are those of all ranks; else NaN."""
    return times.copy() if times.shape[1] == num_ranks else np.full((len(times), num_ranks), np.nan)


DTYPES = {"string": "string", "integer": "Int64", "number": "Float64", "boolean": "boolean"}


def typed(rows: Sequence[Mapping[str, object]], columns: Sequence[Column]) -> pd.DataFrame:
    """A frame with these columns in this order; a missing key or None is an unknown value."""
    make: Any = pd.array  # its annotations accept only literal names of types
    return pd.DataFrame(
        {
            column.name: make([_known(row.get(column.name)) for row in rows], dtype=DTYPES[column.kind])
            for column in columns
        }
    )


def stacked(parts: Sequence[Mapping[str, NDArray[Any]]], columns: Sequence[Column]) -> pd.DataFrame:
    """The parts stacked, each with arrays of equal length; NaN is an unknown value.

    A column of words is a categorical, as it has many rows and few words.
    """
    lengths = [len(next(array for array in part.values() if array.ndim)) for part in parts]
    frame = {}
    for column in columns:
        arrays = [part[column.name] for part in parts]
        if column.kind == "string":
            frame[column.name] = _words(arrays, lengths)
        else:
            frame[column.name] = _numbers(arrays, lengths, DTYPES[column.kind])
    return pd.DataFrame(frame)


def _known(value: object) -> object:
    unknown = value is None or (isinstance(value, float) and not np.isfinite(value))
    return pd.NA if unknown else value


def _words(arrays: Sequence[NDArray[Any]], lengths: Sequence[int]) -> pd.Categorical:
    """A categorical of all parts; each part has one word, or one for each of its rows."""
    spread = [np.broadcast_to(array, length) for array, length in zip(arrays, lengths, strict=True)]
    return pd.Categorical(np.concatenate([*spread, np.array([], dtype=object)]))


def _numbers(arrays: Sequence[NDArray[Any]], lengths: Sequence[int], dtype: str) -> Any:
    spread = [np.broadcast_to(array, length) for array, length in zip(arrays, lengths, strict=True)]
    values = np.concatenate([*spread, np.array([], dtype=spread[0].dtype if spread else float)])
    if dtype == "boolean":
        return pd.array(values.astype(bool), dtype="boolean")
    unknown = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=bool)
    whole = np.where(unknown, 0, values)
    if dtype == "Int64":
        return pd.arrays.IntegerArray(whole.astype(np.int64), unknown)
    return pd.arrays.FloatingArray(whole.astype(np.float64), unknown)
