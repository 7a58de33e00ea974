"""What was measured: the one model from which all numbers are computed.

`measure` builds it once from a study's records, for all findings; `launches.launches_of` has the launches alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from dlscale.analysis.families import Family, base_ranks, family_of
from dlscale.analysis.launches import (
    CellLaunches,
    launches_of,
)
from dlscale.analysis.provenance import Provenance, provenance
from dlscale.analysis.records import APART, why_unusable
from dlscale.analysis.variants import Variants
from dlscale.benchmarks.records.cell import Case, Cell
from dlscale.benchmarks.records.files import BadFile
from dlscale.benchmarks.records.prediction import PredictionRecord
from dlscale.benchmarks.records.record import Base, Record
from dlscale.benchmarks.systems.system import System


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A cell of the study's plan, with its number of planned launches."""

    cell: Cell
    family: Family
    num_launches: int


R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)  # no slots: values are computed at first use, and kept
class Measured:
    """What was measured in a study, and what is computed of it once for all findings (`measure` builds it).

    `records` are all attempts that may share a curve, good or not; `planned` the cases of the study's plan; `order` the
    names of backends and frameworks in the study's order, of which the first is the reference; `base` what efficiencies
    are relative to; `variants` the study's axes.
    """

    records: tuple[Record, ...]
    planned: tuple[Case, ...] = ()
    order: tuple[str, ...] = ()
    base: Base = "1"
    variants: Variants = field(default_factory=Variants)
    bad_files: tuple[BadFile, ...] = ()
    left_out: tuple[str, ...] = ()  # sentences on records that are not among these
    name: str = ""  # of the study's folder
    plan: str = ""  # its size in words
    running: bool = False  # it is being measured now
    predictions: tuple[PredictionRecord, ...] = ()  # shown beside it, in none of its numbers
    system: System | None = None  # as study.json has it; None where it does not say
    _known: dict[Callable[[Measured], Any], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def once(self, compute: Callable[[Measured], R]) -> R:
        """What `compute` makes of this study, computed at the first call: findings build on each other so."""
        if compute not in self._known:
            self._known[compute] = compute(self)
        known: R = self._known[compute]
        return known

    def good_launches_of(self, family: Family, cell: Cell, evidence: str | None) -> CellLaunches | None:
        """The good launches of a cell, of one kind of evidence; None if it has none."""
        own = (one for one in self.by_family.get(family, ()) if one.id == cell.id)
        good = next((launches.of_kind.get(evidence or "") for launches in own), None)
        return good if good and good.cases else None

    @cached_property
    def cells(self) -> tuple[CellLaunches, ...]:
        """The launches of all cells, canaries, profiles and communication only (APART) among them."""
        return tuple(launches_of(self.records))

    @cached_property
    def launches(self) -> tuple[CellLaunches, ...]:
        """The launches of the cells that count: all but those APART."""
        return tuple(launches for launches in self.cells if launches.cell.control not in APART)

    @cached_property
    def by_family(self) -> Mapping[Family, tuple[CellLaunches, ...]]:
        """The `launches` of each family, in their order."""
        members: dict[Family, list[CellLaunches]] = {}
        for launches in self.launches:
            members.setdefault(launches.family, []).append(launches)
        return {family: tuple(own) for family, own in members.items()}

    @cached_property
    def planned_cells(self) -> Mapping[str, PlannedCell]:
        """Cell id -> planned cell, of the cells that count, in the plan's order."""
        system = self.provenance.systems[0] if self.provenance.systems else "unknown"
        ids = [case.cell.id for case in self.planned]
        counts = Counter(ids)
        return {
            cell_id: PlannedCell(
                cell=case.cell, family=family_of(case.cell, system=system), num_launches=counts[cell_id]
            )
            for cell_id, case in dict(zip(ids, self.planned, strict=True)).items()
            if case.cell.control not in APART
        }

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The families of all cells, measured or planned, but the batch controls, which belong to the waterfalls.

        A whole-machine reference counts only if no other family covers it.
        """
        cells = [(launches.cell, launches.family) for launches in self.launches]
        cells += [(planned.cell, planned.family) for planned in self.planned_cells.values()]
        cells = [(cell, family) for cell, family in cells if cell.control != "alone"]
        scaling = {family for cell, family in cells if cell.control != "whole_machine"}
        references = {family for _, family in cells if not any(own.covers(family) for own in scaling)}
        return tuple(sorted(scaling | references))

    @cached_property
    def base_ranks(self) -> Mapping[Family, int]:
        """The number of ranks of the base cases of each family that was measured."""
        return {
            family: base_ranks((launches.cell for launches in own), self.base)
            for family, own in self.by_family.items()
        }

    @cached_property
    def failures(self) -> tuple[Record, ...]:
        """The attempts that gave no number, by system, study, case and attempt."""
        good = {id(case.record) for launches in self.cells for case in launches.good}
        others = (record for record in self.records if id(record) not in good)
        failed = (record for record in others if why_unusable(record) is not None)
        return tuple(
            sorted(failed, key=lambda record: (record.system, record.study, record.case.id, record.attempt))
        )

    @cached_property
    def provenance(self) -> Provenance:
        """Where the records come from; canaries, which belong to jobs, are not among them."""
        return provenance(record for record in self.records if record.case.cell.control != "canary")


def measure(
    records: Iterable[Record],
    *,
    planned: Iterable[Case] = (),
    order: Iterable[str] = (),
    base: Base = "1",
    variants: Variants | None = None,
    bad_files: Iterable[BadFile] = (),
    left_out: Iterable[str] = (),
    name: str = "",
    plan: str = "",
    running: bool = False,
    system: System | None = None,
) -> Measured:
    """The study of these records. Raises UsageError if they do not belong on one curve (`launches_of`)."""
    measured = Measured(
        records=tuple(records),
        planned=tuple(planned),
        order=tuple(order),
        base=base,
        variants=variants or Variants(),
        bad_files=tuple(bad_files),
        left_out=tuple(left_out),
        name=name,
        plan=plan,
        running=running,
        system=system,
    )
    _ = measured.cells  # its errors are the caller's, not a finding's
    return measured
