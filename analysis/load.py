"""From records to frames: a study, and all that findings compute from.

A record is one attempt at one launch of a cell. Its times of ranks and windows are reduced once (`attempts`), so that
findings see launches and cells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis.attempts import (
    ATTEMPTS,
    attempt_row,
    cell_facts,
    cell_keys,
    launches_of,
    of_one_fingerprint,
    step_seconds,
)
from dlscale.analysis.cells import APART, cell_frame
from dlscale.analysis.text import listed, printable
from dlscale.benchmarks.records.cell import Case, Cell
from dlscale.benchmarks.records.prediction import PredictionRecord
from dlscale.benchmarks.records.record import Base, Record
from dlscale.benchmarks.records.store import BadFile
from dlscale.benchmarks.systems.system import System

MEMORY = (  # of a rank, the most bytes; a GPU's last: what it has
    *("peak_rss_bytes", "gpu_allocated_bytes", "gpu_reserved_bytes", "gpu_total_bytes"),
)
MAX_COMMANDS, MAX_CHARACTERS = 3, 2000  # of the commands in a line of provenance


def _in_utc(moment: datetime) -> datetime:
    """A moment in UTC, which one without a zone is in; pandas' own reading has no year 9999."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


class Study:
    """The frames of a study.

    attempts  one row per record; `why` says why one gives no number, and is empty if it does
    launches  the attempt of each launch that counts, a failed one if no attempt is good, with its block, its times and
              all columns of its cell; `number` is the record's place in `records`
    cells     one row per cell, measured or planned, in the order of tables (`cells.cell_frame`)

    `base` is what efficiencies are relative to; `order` are the names of backends and frameworks in the study's order,
    of which the first is the reference; `axes` are its settings and their values, `settings` those of them that
    separate families; `predictions` are shown next to the measurements, and are in none of their numbers.
    """

    def __init__(
        self,
        records: Iterable[Record],
        *,
        planned: Iterable[Case] = (),
        order: Sequence[str] = (),
        base: Base = "1",
        axes: Mapping[str, Sequence[Any]] | None = None,
        settings: Sequence[str] = (),
        bad_files: Sequence[BadFile] = (),
        name: str = "",
        plan: str = "",
        running: bool = False,
        system: System | None = None,
        predictions: Sequence[PredictionRecord] = (),
    ) -> None:
        self.records = list(records)
        self.order, self.base, self.axes = list(order), base, dict(axes or {})
        self.bad_files, self.name, self.plan, self.running = list(bad_files), name, plan, running
        self.system, self.predictions = system, list(predictions)
        ids: dict[str, str] = {}  # by the cell's text: an id is costly
        known: dict[str, Cell] = {}

        def id_of(cell: Cell) -> str:
            text = cell.model_dump_json()
            if text not in ids:
                ids[text] = cell.id
                known[ids[text]] = cell
            return ids[text]

        rows = [attempt_row(place, one, id_of(one.case.cell)) for place, one in enumerate(self.records)]
        attempts = pd.DataFrame(rows, columns=[*ATTEMPTS, "started"]).astype(ATTEMPTS)
        started = [_in_utc(datetime.fromisoformat(moment)) for moment in attempts["started"]]
        attempts["started"] = pd.Series(started, attempts.index, dtype="datetime64[us, UTC]")  # of any year
        attempts, self.left_out = of_one_fingerprint(attempts)
        planned = pd.Series([id_of(case.cell) for case in planned], dtype=object).value_counts(sort=False)
        attempts["cell"] = cell_keys(attempts)
        facts = cell_facts(attempts, planned)
        self.cells = cell_frame(known, facts, base=base, settings=settings)
        launches = launches_of(attempts)
        self.attempts, self.launches = (
            own.merge(
                self.cells.drop(columns=["system", "evidence", "fingerprint", "id", "num_planned"]),
                left_on="cell",
                right_index=True,
            ).reset_index(drop=True)
            for own in (attempts, launches)
        )
        self.launches["samples_per_second"] = self.launches["global_batch"] / self.launches["step_seconds"]
        self.launches["rank_rate"] = self.launches["samples_per_second"] / self.launches["num_ranks"]
        self.drawn: dict[str, str] = {}  # file name -> SVG of figures, which files and the page share
        self.errors: list[str] = []  # of findings that could not be computed or drawn
        self._known: dict[Any, Any] = {}

    def once(self, compute: Callable[[Study], Any]) -> Any:
        """What `compute` makes of this study, computed at the first call: findings build on each other so."""
        if compute not in self._known:
            self._known[compute] = compute(self)
        return self._known[compute]

    @cached_property
    def measured(self) -> dict[str, Cell]:
        """The cell itself of each key that has a record, for what no column says."""
        keys = self.attempts.drop_duplicates("cell")[["cell", "number"]]
        return {key: self.records[number].case.cell for key, number in keys.itertuples(index=False)}

    @cached_property
    def good(self) -> pd.DataFrame:
        """The launches that gave a number."""
        return self.launches[self.launches["why"] == ""]

    @cached_property
    def trained(self) -> pd.DataFrame:
        """The cells with a throughput, all but those APART, with their numbers of good and of planned launches."""
        cells = self.cells[~self.cells["control"].isin(APART)]
        good, tried = (
            own.groupby("cell").size().reindex(cells.index, fill_value=0)
            for own in (self.good, self.launches)
        )
        return cells.assign(num_launches=good, num_planned=np.maximum(cells["num_planned"], tried))

    def wide(self, value: str) -> pd.DataFrame:
        """One row per block and one column per cell, NaN for no number: launches of a row ran close in time."""
        if ("wide", value) not in self._known:
            wide = self.good.pivot(index="block", columns="cell", values=value)
            self._known["wide", value] = wide.reindex(columns=self.cells.index).astype(float)
        return self._known["wide", value]

    def rows(
        self,
        make: Callable[[Record], Iterable[Mapping[str, Any]]],
        types: Mapping[str, type],
        *,
        controls: Sequence[str] = ("train",),
        failed: bool = False,
    ) -> pd.DataFrame:
        """One row per item that `make` finds in the record of each good launch of these controls, with its cell.

        The frame has `number`, `cell`, `block` and columns of these types, even without a row. With `failed`, records
        that gave no number are read, too.
        """
        launches = self.launches if failed else self.good
        found: list[dict[str, Any]] = []
        for number, cell, block in launches.loc[
            launches["control"].isin(controls), ["number", "cell", "block"]
        ].itertuples(index=False):
            found += (
                {"number": number, "cell": cell, "block": block, **item}
                for item in make(self.records[number])
            )
        return pd.DataFrame(found, columns=["number", "cell", "block", *types]).astype(types)

    def with_cells(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows with the columns of their cells, in the order of tables; of planned cells only those in `frame`."""
        others = self.cells.columns.difference(frame.columns, sort=False)
        frame = frame.astype({"cell": object})  # that of an empty frame has no type
        joined = frame.merge(self.cells[others], left_on="cell", right_index=True, how="left")
        place = pd.Series(np.arange(len(self.cells)), self.cells.index)
        order = np.argsort(joined["cell"].map(place).to_numpy(), kind="stable")
        return joined.iloc[order].reset_index(drop=True)

    @cached_property
    def windows(self) -> pd.DataFrame:
        """One row per steady window of the good launches: `number`, `cell`, `step_seconds` of the slowest rank."""
        good = self.good[["number", "cell"]].to_numpy()
        steps = [step_seconds(self.records[number]) for number, _ in good]
        counts = [len(own) for own in steps]
        return pd.DataFrame(
            {
                "number": np.repeat([number for number, _ in good], counts).astype(int),
                "cell": np.repeat(np.array([cell for _, cell in good], dtype=object), counts),
                "step_seconds": np.concatenate([np.zeros(0), *steps]),
            }
        )

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """One row per rank of the good launches: memory and place."""

        def make(record: Record) -> Iterable[dict[str, Any]]:
            for rank in record.ranks:
                gpu = rank.gpu_memory
                yield {
                    "rank": rank.rank,
                    "node": rank.node,
                    "boot_id": rank.boot_id,
                    "peak_rss_bytes": rank.peak_rss_bytes or None,  # 0 bytes were not observed
                    "gpu_allocated_bytes": gpu and gpu.allocated_bytes,
                    "gpu_reserved_bytes": gpu and gpu.reserved_bytes,
                    "gpu_total_bytes": gpu and gpu.total_bytes,
                }

        types = {"rank": int, "node": str, "boot_id": str, **dict.fromkeys(MEMORY, float)}
        return self.rows(make, types, controls=tuple(self.cells["control"].unique()))

    @property
    def title(self) -> str:
        """`How HEP-CNN and CosmoGAN scale on local`, `Time of HEP-CNN to auc 0.99 on local`."""
        cells = self.trained if len(self.trained) else self.cells
        if cells.empty:
            return "Nothing measured yet"
        workloads, systems = (sorted(set(cells[name])) for name in ("workload_title", "system"))
        targets = sorted(set(cells["target"]))
        if targets and all(targets):
            return f"Time of {listed(workloads)} to {listed(targets)} on {listed(systems)}"
        return f"How {listed(workloads)} scale{'s' * (len(workloads) == 1)} on {listed(systems)}"

    @cached_property
    def data_hash(self) -> str:
        """SHA-256 over all records of trainings and controls, in whatever order they were read."""
        digest = hashlib.sha256()
        for record in sorted(self.records, key=lambda one: (one.system, one.study, one.case.id, one.attempt)):
            digest.update(record.model_dump_json(exclude={"windows"}).encode())
            for name, column in record.windows:
                digest.update(name.encode() + np.array(() if column is None else column).tobytes())
        return digest.hexdigest()

    @cached_property
    def origin(self) -> str:
        """Where the numbers are from, in one line: study, system, commit and the hash of all records."""
        names = {
            "study": {record.study for record in self.records},
            "system": {record.system for record in self.records},
            "commit": {record.fingerprint.commit for record in self.records},
        }
        stated = "; ".join(f"{name} {', '.join(sorted(values))}" for name, values in names.items())
        return printable(f"{stated}; data sha256 {self.data_hash}")

    @property
    def commands(self) -> str:
        """The first commands that started the launches, and how many more there are."""
        commands = sorted({printable(record.command) for record in self.records})
        shown = [text[:MAX_CHARACTERS] for text in commands[:MAX_COMMANDS]]
        more = len(commands) - len(shown)
        return "; ".join([*shown, f"and {more} more"] if more else shown)
