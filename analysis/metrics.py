"""The metrics of a cell: throughput, efficiency, the cost of input, and the flaws that make them doubtful.

E(p) = (T(p) / p) / (T(b) / b) with T in samples per second and base cases on b ranks, 1 unless another base is chosen;
the same for weak and strong scaling; 1 is ideal. The cost of input is measured by the controls that ran in the same
launches as the training. docs/metrics.md explains them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlscale.analysis.families import Family, base_cell
from dlscale.analysis.launches import CellLaunches
from dlscale.analysis.measured import Measured
from dlscale.analysis.statistics import (
    LEVEL,
    MIN_BLOCKS,
    Interval,
    block_ratio,
    chained_median,
    chained_ratio,
    disagree,
)
from dlscale.analysis.text import listed, plural
from dlscale.benchmarks.records.cell import Cell

BASE_CASE = "base case"  # the method of an efficiency that is 1 by definition
VERSUS_NONE, VERSUS_BACKEND = "vs 1 rank", "vs same backend"  # headings of the two efficiencies


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """An efficiency against one base case; without a ratio, the notes say why there is none."""

    ratio: Interval | None = None  # of geometric means
    median: float | None = None  # of the median block; None for a base case
    notes: tuple[str, ...] = ()
    uneven: str = ""  # that of the notes on a median and a mean that differ


@dataclass(frozen=True, slots=True, kw_only=True)
class CellMetrics:
    """The numbers of a cell's good launches of one kind of evidence."""

    launches: CellLaunches  # those that the numbers are of; none if all failed
    evidence: str
    fingerprint: str
    num_failed: int  # launches that gave no number, counted with the first kind of evidence
    throughput: Interval | None  # samples per second over all ranks; None if no launch gave a number
    base_ranks: int
    against_none: Relation
    against_backend: Relation
    input_stall: Interval | None
    input_loss: Interval | None
    flaws: tuple[str, ...]  # of all launches of the cell


def metrics_of(measured: Measured) -> tuple[CellMetrics, ...]:
    """The numbers of every cell that was measured, separately by kind of evidence, so that kinds are never mixed."""
    return tuple(
        one for family, own in measured.by_family.items() for one in _metrics_of_family(family, own, measured)
    )


def _metrics_of_family(
    family: Family, own: Sequence[CellLaunches], measured: Measured
) -> Iterator[CellMetrics]:
    ranks = measured.base_ranks[family]
    cells = [launches.cell for launches in own]
    for every in own:
        none = base_cell(every.cell, cells, same_backend=False, num_ranks=ranks)
        same = base_cell(every.cell, cells, same_backend=True, num_ranks=ranks)
        for index, (kind, launches) in enumerate(every.of_kind.items()):
            base = _base(launches, own, none)
            against_none = _relation(launches, base, own, base_name=base_of(every.cell, ranks))
            against_backend = against_none
            if every.cell.backend != "none":
                other = _base(launches, own, same)
                name = base_of(every.cell, ranks, same_backend=True)
                against_backend = _relation(launches, other, own, base_name=name)
            stall, loss = _input_shares(launches, own)
            yield CellMetrics(
                launches=launches,
                evidence=kind,
                fingerprint=(launches.cases or every.cases)[0].record.fingerprint.digest,
                num_failed=len(every.cases) - len(every.good) if index == 0 else 0,
                throughput=launches.step_seconds.rate(every.cell.global_batch) if launches.cases else None,
                base_ranks=ranks,
                against_none=against_none,
                against_backend=against_backend,
                input_stall=stall,
                input_loss=loss,
                flaws=every.flaws,
            )


def _base(launches: CellLaunches, family: Iterable[CellLaunches], base: Cell | None) -> CellLaunches | None:
    """The launches of that base case, of the same kind of evidence if there are any."""
    if base is None or not launches.cases:
        return None
    of_kind = next(relative for relative in family if relative.id == base.id).of_kind
    return of_kind.get(launches.evidence) or next(iter(of_kind.values()))


def _relation(
    launches: CellLaunches, base: CellLaunches | None, family: Sequence[CellLaunches], *, base_name: BaseName
) -> Relation:
    """(T(p) / p) / (T(b) / b) against a base case of the same family on b ranks.

    `launches` are good ones of one kind of evidence. Jobs of different sizes share no block with the base case, but one
    size with each other. A chain through that size is paired at each of its steps; without one, the two ends are
    unpaired.
    """
    if launches.cell.control != "train" or not launches.cases:
        return Relation()
    if base is None:
        return Relation(notes=(base_name.not_measured,))
    if base.id == launches.id:
        one = Interval(center=1.0, low=None, high=None, level=LEVEL, method=BASE_CASE, n=len(launches.cases))
        return Relation(ratio=one)
    if not base.cases:
        return Relation(notes=(f"{base_name.relation}: every launch of {base_name.base} failed",))
    notes, uneven = [], ""
    if base.evidence != launches.evidence:
        notes.append(base_name.is_other(base.evidence, launches.evidence))
    links = links_between(launches, base, family)
    if links != ():
        notes.append(link_note(base_name, links or ()))
    steps = [one.rank_rates for one in (launches, *(links or ()), base)]
    ratio, median = chained_ratio(steps), chained_median(steps)
    if disagree(ratio, median):
        uneven = (
            f"efficiency {base_name.relation} is {100 * median:.1f} % in the median block, "
            f"{100 * ratio.center:.1f} % by geometric means"
        )
        notes.append(uneven)
    if ratio.low is None:
        notes.append(f"{base_name.relation}: fewer than {MIN_BLOCKS} blocks, no interval")
    return Relation(ratio=ratio, median=median, notes=tuple(notes), uneven=uneven)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseName:
    """What an efficiency is called, `vs 1 rank` or `vs same backend`, and its base case, `none on 1 rank`."""

    relation: str
    base: str

    @property
    def not_measured(self) -> str:
        """The note where there is no base case."""
        return f"{self.relation}: {self.base} was not measured"

    def is_other(self, evidence: str, wanted: str) -> str:
        """The note on a base case of another kind of evidence."""
        return f"{self.relation}: {self.base} is {evidence}, not {wanted}"


def base_of(cell: Cell, num_ranks: int, *, same_backend: bool = False) -> BaseName:
    """The name of a cell's base case on that number of ranks."""
    ranks = plural(num_ranks, "rank")
    if same_backend:
        return BaseName(relation=VERSUS_BACKEND, base=f"{cell.backend} on {ranks}")
    return BaseName(relation=f"vs {ranks}", base=f"none on {ranks}")


def link_note(base_name: BaseName, links: Sequence[CellLaunches]) -> str:
    """What pairs a cell with the base case of that name, with which it shares no block."""
    apart = f"{base_name.relation}: no block in common with {base_name.base}"
    if not links:
        return f"{apart}, so unpaired"
    places = [f"{link.cell.backend} on {plural(link.cell.num_ranks, 'rank')}" for link in links]
    return f"{apart}; chained through {listed(places)}, which ran in both jobs"


def links_between(
    launches: CellLaunches, base: CellLaunches, family: Iterable[CellLaunches]
) -> tuple[CellLaunches, ...] | None:
    """The cells that pair `launches` with `base`: none if they share a block, None if nothing links the two.

    The shortest chain of trainings, each with 3 blocks or more in common with the next; of the same backend where
    there is one, else of `none`, and never of a third, so that no number decides which chain it is.
    """
    cell, kind = launches.cell, launches.evidence
    own = (cell.method, cell.options, cell.num_servers)

    if launches.world.keys() & base.world.keys():
        return ()
    candidates = [
        relative.of_kind[kind]
        for relative in family
        if relative.cell.control == "train"
        and kind in relative.of_kind
        and relative.id not in (launches.id, base.id)
        and (
            (relative.cell.method, relative.cell.options, relative.cell.num_servers) == own
            or relative.cell.backend == "none"
        )
    ]
    candidates.sort(key=lambda one: (one.cell.backend != cell.backend, one.cell.num_ranks, one.id))
    chains: list[tuple[CellLaunches, ...]] = [()]
    seen: set[str] = set()
    while chains:
        longer = []
        for chain in chains:
            end = (chain[-1] if chain else launches).world.keys()
            if chain and len(end & base.world.keys()) >= MIN_BLOCKS:
                return chain
            for link in candidates:
                if link.id not in seen and len(end & link.world.keys()) >= MIN_BLOCKS:
                    seen.add(link.id)
                    longer.append((*chain, link))
        chains = longer
    return None


def _input_shares(
    launches: CellLaunches, family: Iterable[CellLaunches]
) -> tuple[Interval | None, Interval | None]:
    """The shares of a training step that wait for input, and that resident tensors save; None without that control.

    `launches` are good ones of one kind of evidence, each control's are of the same framework, backend and kind, and
    paired with them by block like an efficiency. Batches are not prefetched, so all of the fetching is waiting: seconds
    of `loader` over seconds of training. What is saved is 1 - `synthetic` / training; noise can make it negative.
    """
    cell = launches.cell
    if cell.control != "train" or not launches.cases:
        return None, None
    ratios: dict[str, Interval] = {}
    for relative in family:
        control, good = relative.cell.control, relative.of_kind.get(launches.evidence)
        if (
            control in ("loader", "synthetic")
            and good
            and good.cases
            and relative.cell.model_copy(update={"control": "train"}) == cell
        ):
            ratios[control] = block_ratio(good.world, launches.world)
    saved = ratios.get("synthetic")
    return ratios.get("loader"), saved and saved.complement()
