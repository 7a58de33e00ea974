"""Throughput and scaling efficiency of every cell, each with its interval, its launches and its flaws.

E(p) = (T(p) / p) / (T(1) / 1) with T in samples per second, the same for weak and strong scaling; 1 is ideal.
It is given against two base cases, both on 1 rank with control `train` and the same cores per rank:
(a) backend `none`, no communication layer, and (b) the same backend. docs/metrics.md has the whole story.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dlscale.analysis.backends import Comparison, compare_backends
from dlscale.analysis.bounds import Limit, limits
from dlscale.analysis.checkpoints import Saving, savings
from dlscale.analysis.drift import Drift, drifts
from dlscale.analysis.energy import Energy, energies
from dlscale.analysis.exchange.exchanges import Exchange, exchanges
from dlscale.analysis.family import Family, family_of
from dlscale.analysis.frame import APART, tidy, why_unusable
from dlscale.analysis.late.matrix import Heat, heats
from dlscale.analysis.late.suspects import Lateness, lateness
from dlscale.analysis.launches import Launches, efficiency, flaws, throughput
from dlscale.analysis.outliers.cells import Outliers, outliers
from dlscale.analysis.outliers.trim import Trimmed, trim, trimmed
from dlscale.analysis.outliers.words import efficiency_notes
from dlscale.analysis.outliers.words import notes as outlier_notes
from dlscale.analysis.parity import Pair, pairs_of
from dlscale.analysis.provenance import Provenance, provenance
from dlscale.analysis.stall import input_loss, input_stall
from dlscale.analysis.startup import StartUp, start_ups
from dlscale.analysis.statistics import Interval
from dlscale.analysis.steps import Steps, steps_of
from dlscale.analysis.waterfall.times import Good, latest_good
from dlscale.analysis.waterfall.waterfall import Waterfall, waterfalls
from dlscale.benchmarks.record import Case, Cell, Parity, Record

CONTROLS = ("train", "synthetic", "loader", "alone", "whole_machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One cell. An efficiency is None where the control has none, or for the reason given in `notes`."""

    cell: Cell
    family: Family
    evidence: str | None  # None if no launch left a record
    fingerprint: str | None
    throughput: Interval | None  # samples per second over all ranks; None if no launch gave a number
    efficiency_none: Interval | None  # against base case (a)
    efficiency_backend: Interval | None  # against base case (b)
    input_stall: Interval | None  # share of a training step, from the loader-only control
    input_loss: Interval | None  # share of a training step, from the synthetic control
    peak_rss_bytes: int | None  # the largest rank's, over launches
    num_launches: int  # that gave a number
    num_planned: int  # the failed and missing ones included
    notes: tuple[str, ...]
    pair: Pair | None = None  # with the other framework; None if the study has only one
    limits: tuple[
        Limit, ...
    ] = ()  # what its efficiency against (a) cannot exceed; of trainings on several ranks
    outliers: Outliers | None = None  # launches and windows that stand out; None without a good launch

    @property
    def speed_up(self) -> Interval | None:
        """T(p) / T(1) against base case (a), scaled where the work grows with the ranks: efficiency times ranks."""
        return self.efficiency_none and self.efficiency_none.times(self.cell.num_ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingTable:
    """All cells, ordered by family, backend, control and ranks, and all attempts that gave no number.

    `comparisons` set the backends beside each other, ordered by family and ranks; `start_ups` say what their launches
    cost before they train, `savings` what it cost to save trainings and to go on with them, `energies` what a sample
    takes, `steps` how long every window was. `waterfalls` say where the speed goes, `exchanges` what of it the exchange
    takes by itself, `lateness` which ranks and hosts are late, `heats` have each rank beside the others.
    """

    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...]
    start_ups: tuple[StartUp, ...]
    savings: tuple[Saving, ...]
    energies: tuple[Energy, ...]
    steps: tuple[Steps, ...]
    drifts: tuple[Drift, ...]
    waterfalls: tuple[Waterfall, ...]
    exchanges: tuple[Exchange, ...]
    lateness: tuple[Lateness, ...]
    heats: tuple[Heat, ...]
    failures: tuple[Record, ...]
    provenance: Provenance
    # Of every cell that left a record: what comparisons are declared of. Tables of numbers know no equality.
    launches: tuple[Launches, ...] = field(default=(), compare=False, repr=False)

    @property
    def families(self) -> tuple[Family, ...]:
        """Of the cells that scale; a whole-machine reference belongs to one of these, or stands by itself.

        A control of the batch belongs to the waterfalls.
        """
        rows = [row for row in self.rows if row.cell.control != "alone"]
        scaling = {row.family for row in rows if row.cell.control != "whole_machine"}
        others = {row.family for row in rows if not any(one.covers(row.family) for one in scaling)}
        return tuple(sorted(scaling | others))

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """(framework, backend) of all cells."""
        return {(row.cell.framework, row.cell.backend) for row in self.rows}

    def of(self, family: Family) -> tuple[Row, ...]:
        """The rows of a family, and last the whole-machine references that belong beside it."""
        rows = [
            row
            for row in self.rows
            if row.family == family or (row.cell.control == "whole_machine" and family.covers(row.family))
        ]
        return tuple(sorted(rows, key=lambda row: row.cell.control == "whole_machine"))

    def comparisons_of(self, family: Family) -> tuple[Comparison, ...]:
        """The family's backends beside each other, one comparison per number of ranks."""
        return tuple(one for one in self.comparisons if one.family == family)

    def waterfalls_of(self, family: Family) -> tuple[Waterfall, ...]:
        """The family's, by backend and ranks."""
        return tuple(one for one in self.waterfalls if one.family == family)

    def exchanges_of(self, family: Family) -> tuple[Exchange, ...]:
        """The family's, by backend and ranks."""
        return tuple(one for one in self.exchanges if one.family == family)

    def lateness_of(self, family: Family) -> tuple[Lateness, ...]:
        """The family's, by ranks."""
        return tuple(one for one in self.lateness if one.family == family)


def scaling_table(
    records: Iterable[Record], *, planned: Iterable[Case] = (), parities: Iterable[Parity] = ()
) -> ScalingTable:
    """What the records say about scaling.

    `planned` are the cases of the study's plan: with them, launches and cells that left no record count too.
    `parities` are the parity gate's verdicts: rows that it failed or did not check carry a note.
    Raises UsageError if the records do not belong on one curve (see `frame.tidy`).
    """
    everything = list(records)
    records = [record for record in everything if record.case.cell.control not in APART]
    cells = {record.case.cell.id: record.case.cell for record in records}
    measured = [
        Launches.of(cells[str(cell_id)], system=str(system), cases=cases)
        for (system, cell_id), cases in tidy(records).groupby(["system", "cell_id"], sort=False)
    ]
    apart = latest_good(everything)
    good = Good(record for record in apart if record.case.cell.control not in APART)
    falls = waterfalls(good)
    beside = trimmed(measured, outliers(good))
    rows = _with_limits([row for launches in measured for row in _rows(launches, measured, beside)], apart)
    where = provenance(record for record in everything if record.case.cell.control != "canary")
    system = where.systems[0] if where.systems else "unknown"
    return ScalingTable(
        rows=tuple(sorted(_with_parity(_with_plan(rows, planned, system=system), parities), key=_order)),
        comparisons=compare_backends(measured),
        start_ups=tuple(start_ups(records)),
        savings=tuple(savings(records)),
        energies=tuple(energies(good)),
        steps=tuple(steps_of(good)),
        drifts=tuple(drifts(everything)),
        waterfalls=falls,
        exchanges=exchanges(apart, falls),
        lateness=lateness(good),
        heats=heats(good),
        failures=tuple(
            sorted(
                (record for record in everything if why_unusable(record) is not None),
                key=lambda record: (record.system, record.study, record.case.id, record.attempt),
            )
        ),
        provenance=where,
        launches=tuple(measured),
    )


def _rows(launches: Launches, measured: Sequence[Launches], beside: Trimmed) -> Iterator[Row]:
    """One row per kind of evidence, so that kinds are never mixed; failed launches count in the first.

    `beside` are the measured ones without launches that stand out: numbers have these in, and notes say what they would
    be without.
    """
    cell = launches.cell
    num_failed = len(launches.cases) - len(launches.good)
    common_notes = list(flaws(launches))
    for index, kind in enumerate(launches.kinds):
        good = launches.only(kind)
        notes = list(common_notes)
        rate = throughput(good, notes)
        against_none = efficiency(good, measured, same_backend=False, notes=notes)
        against_backend = against_none
        if cell.backend != "none":
            against_backend = efficiency(good, measured, same_backend=True, notes=notes)
        mine = beside.out.get((launches.family, cell.id, str(kind)))
        notes += outlier_notes(mine) if mine else ()
        if launches.family in beside.families:
            without = efficiency(trim(good, beside.out), beside.launches, same_backend=False, notes=[])
            notes += efficiency_notes(against_none, without)
        num_launches = len(good.cases)
        yield Row(
            cell=cell,
            family=launches.family,
            evidence=kind,
            fingerprint=str((good if num_launches else launches).cases["fingerprint"].iloc[0]),
            throughput=rate,
            efficiency_none=against_none,
            efficiency_backend=against_backend,
            input_stall=input_stall(good, measured),
            input_loss=input_loss(good, measured),
            peak_rss_bytes=good.peak_rss_bytes,
            num_launches=num_launches,
            num_planned=num_launches + (num_failed if index == 0 else 0),
            notes=tuple(notes),
            outliers=mine,
        )


def _with_limits(rows: Iterable[Row], good: Good) -> Iterator[Row]:
    """The rows with what they cannot exceed."""
    found = {(one.family, one.cell.id, one.evidence): one.found for one in limits(good)}
    for row in rows:
        yield replace(row, limits=found.get((row.family, row.cell.id, row.evidence or ""), ()))


def _with_plan(rows: Iterable[Row], planned: Iterable[Case], *, system: str) -> Iterator[Row]:
    """The rows with the plan's number of launches, and one for each planned cell without a record."""
    num_planned: dict[str, int] = {}
    cells: dict[str, Cell] = {}
    for case in planned:
        if case.cell.control in APART:
            continue
        num_planned[case.cell.id] = num_planned.get(case.cell.id, 0) + 1
        cells[case.cell.id] = case.cell
    for row in rows:
        yield replace(row, num_planned=max(row.num_planned, num_planned.get(row.cell.id, 0)))
        cells.pop(row.cell.id, None)
    for cell in cells.values():
        yield Row(
            cell=cell,
            family=family_of(cell, system=system),
            evidence=None,
            fingerprint=None,
            throughput=None,
            efficiency_none=None,
            efficiency_backend=None,
            input_stall=None,
            input_loss=None,
            peak_rss_bytes=None,
            num_launches=0,
            num_planned=num_planned[cell.id],
            notes=("not run",),
        )


def _with_parity(rows: Iterable[Row], parities: Iterable[Parity]) -> Iterator[Row]:
    """The rows with their pair, and its note first."""
    rows = list(rows)
    pairs = pairs_of({row.family for row in rows}, parities)
    for row in rows:
        pair = pairs.get(row.family)
        notes = (pair.note, *row.notes) if pair and pair.note else row.notes
        yield replace(row, pair=pair, notes=notes)


def _order(row: Row) -> tuple[object, ...]:
    """Backend `none` first, as the others' base case; then by name."""
    cell = row.cell
    options = tuple(sorted((name, str(value)) for name, value in cell.backend_options.items()))
    control = CONTROLS.index(cell.control)
    return (
        *(row.family, cell.backend != "none", cell.backend, options),
        *(control, cell.num_ranks, cell.num_servers, cell.num_nodes, row.evidence or ""),
    )
