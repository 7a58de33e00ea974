"""Predictions beside what a study measured: which belong to it, and how wrong they are.

A prediction belongs to the family that trains what it states: system, workload, preset, framework, scaling mode and
batch. It is held against the training over the same backend, with the same of the options that predictions model, on as
many ranks, nodes and servers:

    error    predicted samples/s / measured samples/s - 1
    inside   whether the measured samples/s lie within the band of the predicted ones

Nothing that is measured ever contains a prediction: they are beside a table's rows, and never among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from dlscale.analysis.declare import (
    Tags,
)
from dlscale.analysis.families import Family
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.records import settings_text
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import (
    backend_name,
    plural,
)
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.prediction import HARMLESS, Band, PredictionRecord
from dlscale.benchmarks.records.record import Setting
from dlscale.collectives.algorithms.registry import SYNC


class Place(NamedTuple):
    """Where a prediction stands over ranks; nodes of servers are counted, as in a cell."""

    num_ranks: int
    num_nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPoint:
    """A prediction beside a family of a study; `measured` is what it can be held against, None where nothing is."""

    record: PredictionRecord
    family: Family
    name: str  # of its curve: that of the measured one over the same backend, if there is one
    base_ranks: int  # of the family's base cases
    measured: ScalingRow | None = None

    @property
    def cell(self) -> Place:
        """What axes over ranks ask of a row's cell."""
        return Place(self.record.num_ranks, self.record.num_all_nodes)

    @property
    def evidence(self) -> str:
        """The kind of evidence."""
        return self.record.evidence

    @property
    def throughput(self) -> Interval:
        """Predicted samples per second over all ranks."""
        return self._interval(self.record.samples_per_second)

    @property
    def efficiency_none(self) -> Interval | None:
        """Predicted efficiency against base case (a); None if the study's is not of one rank."""
        return self._interval(self.record.efficiency) if self.base_ranks == 1 else None

    @property
    def error(self) -> float | None:
        """By which share the predicted rate is too high; None where nothing is measured."""
        rated = self.measured and self.measured.throughput
        return relative_error(self.throughput.center, rated.center) if rated else None

    @property
    def inside(self) -> bool | None:
        """Whether what is measured lies within the band; None where nothing is."""
        rated = self.measured and self.measured.throughput
        return is_inside(self.throughput, rated.center) if rated else None

    @property
    def where(self) -> str:
        """`ring on 64 ranks (64 nodes)`."""
        ranks, nodes = plural(self.cell.num_ranks, "rank"), plural(self.cell.num_nodes, "node")
        return f"{self.name} on {ranks} ({nodes})"

    @property
    def tags(self) -> Tags:
        """What the page's filters match."""
        record = self.record
        return Tags(workload=record.workload, framework=record.framework, backend=record.backend)

    def _interval(self, band: Band) -> Interval:
        return Interval(
            center=band.center,
            low=band.low,
            high=band.high,
            level=self.record.level,
            method=self.record.method,
            n=self.record.num_replicates,
        )


def relative_error(predicted: float, measured: float) -> float:
    """By which share a prediction is above what was measured; below is negative."""
    return predicted / measured - 1


def is_inside(band: Interval, measured: float) -> bool:
    """Whether a measured value is within the limits of a prediction, which has both."""
    return band.low is not None and band.high is not None and band.low <= measured <= band.high


def simulated_points(
    records: Iterable[PredictionRecord], rows: Iterable[ScalingRow]
) -> tuple[tuple[SimulatedPoint, ...], tuple[str, ...]]:
    """The predictions that belong to a family of these rows, and a sentence for each training whose do not.

    Raises UsageError if two are of one point: nothing tells which to show.
    """
    trained = [row for row in rows if row.cell.control == "train"]
    families = list(dict.fromkeys(row.family for row in trained))
    found: list[SimulatedPoint] = []
    left: dict[tuple[str, int], int] = {}
    for record in records:
        own = [family for family in families if _belongs(record, family)]
        if len(own) == 1:
            found.append(_point(record, own[0], trained))
        else:
            kind = (training_text(record), len(own))
            left[kind] = left.get(kind, 0) + 1
    ordered = sorted(found, key=_order)
    for first, second in pairwise(ordered):
        if _order(first) == _order(second):
            raise UsageError(
                f"two predictions of {first.where}, {training_text(first.record)}; give the files of one with "
                "--predicted"
            )
    return tuple(ordered), tuple(_left_text(*kind, count) for kind, count in left.items())


def training_text(record: PredictionRecord) -> str:
    """`hep_cnn paper in torch, weak scaling on cori, batch 128`: what has to be equal to what a study trains."""
    what = f"{record.workload} {record.preset} in {record.framework}"
    return f"{what}, {record.scaling_mode} scaling on {record.system}, batch {record.batch}"


def _left_text(training: str, num_families: int, count: int) -> str:
    predicted = f"{plural(count, 'prediction')} of {training}"
    if num_families == 0:
        return f"{predicted}: the study has no such training"
    return (
        f"{predicted}: the study has {num_families} such trainings, which differ in what predictions do not state "
        "(precision, compilation, data ...)"
    )


def _belongs(record: PredictionRecord, family: Family) -> bool:
    stated = ("system", "workload", "preset", "framework", "scaling_mode", "batch")
    return all(getattr(record, name) == getattr(family, name) for name in stated)


def _point(record: PredictionRecord, family: Family, trained: Iterable[ScalingRow]) -> SimulatedPoint:
    own = [row for row in trained if row.family == family]
    same = [row for row in own if _same_backend(record, row)]
    size = (record.num_ranks, record.num_all_nodes, record.num_servers)
    at = [
        row
        for row in same
        if row.throughput and (row.cell.num_ranks, row.cell.num_nodes, row.cell.num_servers) == size
    ]
    return SimulatedPoint(
        record=record,
        family=family,
        name=backend_name(same[0].cell) if same else _own_name(record),
        base_ranks=own[0].base_ranks,
        measured=min(at, key=lambda row: row.evidence != "measured", default=None),
    )


def _same_backend(record: PredictionRecord, row: ScalingRow) -> bool:
    cell = row.cell
    return (
        (cell.backend, cell.algorithm) == (record.backend, SYNC)
        and not record.exchange_algorithm
        and _modelled(cell.backend_options) == _modelled(record.backend_options)
    )


def _modelled(options: Mapping[str, Setting]) -> dict[str, Setting]:
    """The options that change what is predicted."""
    return {name: value for name, value in options.items() if name not in HARMLESS}


def _own_name(record: PredictionRecord) -> str:
    options = dict(record.backend_options)
    if record.exchange_algorithm:
        options["algorithm"] = record.exchange_algorithm
    return f"{record.backend} ({settings_text(options)})" if options else record.backend


def _order(point: SimulatedPoint) -> tuple[object, ...]:
    record = point.record
    size = (record.num_ranks, record.num_nodes, record.num_servers)
    return point.family, record.backend != "none", point.name, *size
