"""Heat maps: each rank's time over windows without communication and with it, with the stragglers marked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.declare import Tags
from dlscale.analysis.families import Family, curve_order, on_most_ranks
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import scaling, stragglers
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.small_print import family_figure
from dlscale.analysis.findings.stragglers import (
    Stragglers,
    hosts_of,
    relative_seconds,
    straggler_sentences,
)
from dlscale.analysis.form import Form
from dlscale.analysis.launches import Block, CellLaunches, good_launches
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Figure, HeatMap
from dlscale.analysis.records import attributes, has_rank_steps
from dlscale.analysis.statistics import median
from dlscale.analysis.text import backend_name, plural, training_title
from dlscale.benchmarks.records.cell import Cell

MAX_COLUMNS = 240  # in a figure; with more, neighbouring windows of a launch are merged
SHOWN_COLUMNS = 120  # on the page
SHOWN_RANKS = 128  # on the page; beyond that, only the slowest ranks
MOST_PANELS = 4
MOST_SENTENCES = 6  # about stragglers, below a figure
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankTimes:
    """All launches of a cell side by side, in the order of their blocks.

    `values` [P][columns]: a rank's seconds over the median over ranks in the same window, minus 1; 0.1 is 10 % slower.
    A column is a window, or the median over neighbouring ones. `hosts` [P] are those of the first launch; `moved` is
    true if another launch ran on other hosts.
    """

    cell: Cell
    family: Family
    evidence: str
    values: Matrix
    first_columns: tuple[int, ...]  # of each launch
    blocks: tuple[Block, ...]  # of each launch
    hosts: tuple[str, ...]
    moved: bool
    waiting: bool  # whether its ranks wait for each other
    num_windows: int


def rank_times(measured: Iterable[CellLaunches], *, max_columns: int = MAX_COLUMNS) -> tuple[RankTimes, ...]:
    """One for each training on more than 1 rank that gave a number, by family, ranks and backend, `none` first."""
    trained = good_launches(measured, controls={"train"})
    heats = [_rank_times(launches, max_columns) for launches in trained if launches.cell.num_ranks > 1]
    return tuple(sorted(heats, key=_order))


def _rank_times(launches: CellLaunches, max_columns: int) -> RankTimes:
    records = launches.records
    room = max(1, max_columns // len(records))
    parts = _condensed([relative_seconds(record) for record in records], room)
    ends = np.cumsum([part.shape[1] for part in parts])
    hosts = [hosts_of(record) for record in records]
    return RankTimes(
        cell=launches.cell,
        family=launches.family,
        evidence=launches.evidence,
        values=np.concatenate(parts, axis=1) - 1,
        first_columns=(0, *(int(end) for end in ends[:-1])),
        blocks=tuple(case.block for case in launches.cases),
        hosts=hosts[0],
        moved=len(set(hosts)) > 1,
        waiting=launches.cell.backend != "none" and not has_rank_steps(records[0]),
        num_windows=sum(len(record.counted) for record in records),
    )


def _condensed(matrices: Sequence[Matrix], room: int) -> list[Matrix]:
    """Each with at most `room` columns, medians over neighbouring ones; those of one shape at once."""
    condensed = list(matrices)
    shapes = {matrix.shape for matrix in matrices if matrix.shape[1] > room}
    for num_rows, num_columns in shapes:
        alike = [place for place, matrix in enumerate(matrices) if matrix.shape == (num_rows, num_columns)]
        stacked = np.stack([matrices[place] for place in alike])
        # As np.array_split: the first parts have one column more.
        each, num_longer = divmod(num_columns, room)
        longer, rest = np.split(stacked, [num_longer * (each + 1)], axis=-1)
        columns = (
            median(longer.reshape(len(alike), num_rows, num_longer, each + 1)),
            median(rest.reshape(len(alike), num_rows, room - num_longer, each)),
        )
        for place, matrix in zip(alike, np.concatenate(columns, axis=-1), strict=True):
            condensed[place] = matrix
    return condensed


def _order(heat: RankTimes) -> tuple[object, ...]:
    """Curves as everywhere, but all of a number of ranks together, and `none` first."""
    cell = heat.cell
    curve = curve_order(heat.family, cell, heat.evidence)
    return heat.family, cell.num_ranks, cell.num_nodes, cell.backend != "none", curve


def to_heat_rows(heat: RankTimes) -> list[dict[str, Any]]:
    """One flat row per cell of a heat-map: a rank in one window, or in several neighbouring windows, of a launch."""
    ends = (*heat.first_columns[1:], heat.values.shape[1])
    return [
        {
            **attributes(heat.cell, "backend num_ranks"),
            "evidence": heat.evidence,
            "host": heat.hosts[rank] if heat.hosts and not heat.moved else None,
            "rank": rank,
            "block": block,
            "column": column - first,
            "slower": float(heat.values[rank, column]),
        }
        for (_, block), first, end in zip(heat.blocks, heat.first_columns, ends, strict=True)
        for rank in range(len(heat.values))
        for column in range(first, end)
    ]


def heat_maps(heats: Iterable[RankTimes], delays: Sequence[Stragglers]) -> Iterator[HeatMap]:
    """The heat map of backend `none` on each family's most ranks, where no rank waits for another."""
    last: dict[tuple[Family, str], RankTimes] = {}
    for heat in heats:
        if heat.cell.backend == "none":
            last[heat.family, heat.evidence] = heat  # ordered by ranks
    for index, ((family, _), heat) in enumerate(last.items()):
        ranks = _slowest(heat)
        rest = len(heat.values) - len(ranks)
        notes = [f"The {len(ranks)} slowest ranks; {rest} more are not shown."] if rest else []
        notes += ["Launches ran on different nodes; the names are those of the first one."] * heat.moved
        late = _late_ranks(heat, delays)
        yield HeatMap(
            name=f"heat-{index}",
            title=f"{training_title(family)}: none on {plural(heat.cell.num_ranks, 'rank')}",
            says=f"Each rank relative to the median of all ranks, over {plural(heat.num_windows, 'window')}.",
            values=_factors(heat.values[ranks]),
            hosts=tuple(_hosts(heat)[rank] for rank in ranks),
            ranks=tuple(ranks),
            late=tuple(rank for rank in ranks if rank in late),
            notes=tuple(notes),
            tags=Tags(workload=family.workload, framework=family.framework),
        )


def _factors(values: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, (1 + values).tolist()))


def _hosts(heat: RankTimes) -> tuple[str, ...]:
    return heat.hosts or ("",) * len(heat.values)


def _late_ranks(heat: RankTimes, delays: Iterable[Stragglers]) -> set[int]:
    """Ranks of this heat map that are late; only those of `none` are told."""
    if heat.cell.backend != "none":
        return set()
    place = heat.family, heat.evidence, heat.cell.num_ranks
    return {
        rank
        for delay in delays
        if (delay.family, delay.evidence, delay.num_ranks) == place
        for suspect in delay.suspects
        if suspect.verdict == "late"
        for rank in (range(len(heat.values)) if suspect.rank is None else [suspect.rank])
        if _hosts(heat)[rank] == suspect.host
    }


def _slowest(heat: RankTimes) -> list[int]:
    order = np.argsort(-np.median(heat.values, axis=1), kind="stable")
    return sorted(order[:SHOWN_RANKS].tolist())


def heat_map_figure(study: Measured, family: Family, form: Form) -> Figure | None:
    """The heat maps on the largest number of ranks, of `none` and of at most three backends; None without any."""
    own = [heat for heat in rank_times(study.launches) if heat.family == family and form.draws(heat.cell)]
    shown = on_most_ranks(own)[:MOST_PANELS]
    if not shown:
        return None
    num_ranks = shown[0].cell.num_ranks
    delays = [
        delay
        for delay in stragglers.FINDING.of(study)
        if (delay.family, delay.num_ranks) == (family, num_ranks)
    ]
    blocks = sorted({block for heat in shown for block in heat.blocks})
    return family_figure(
        family,
        rows_of(scaling.FINDING.of(study), family),
        [heat.cell for heat in shown],
        study.provenance,
        name="heatmap",
        brief="Each rank's time by window, relative to the median rank's; only over none no rank waits.",
        subtitle=f"{num_ranks} ranks; {family.constants}",
        words=_words(shown, delays),
        panels=tuple(_panel(heat, delays, blocks) for heat in shown),
        lines=[row for heat in shown for row in to_heat_rows(heat)],
        wide=len(shown) > 1,
    )


def _panel(heat: RankTimes, delays: Sequence[Stragglers], blocks: Sequence[Block]) -> HeatMap:
    who = "ranks wait" if heat.waiting else "nobody waits"
    kind = "" if heat.evidence == "measured" else f" ({heat.evidence})"
    return HeatMap(
        name="heatmap",
        title=f"{backend_name(heat.cell)}{kind}: {who}",
        says="",
        values=_factors(heat.values),
        hosts=("",) * len(heat.values) if heat.moved else _hosts(heat),
        ranks=tuple(range(len(heat.values))),
        late=() if heat.moved else tuple(sorted(_late_ranks(heat, delays))),
        launches=tuple(
            (blocks.index(block), str(block[1]), first)
            for block, first in zip(heat.blocks, heat.first_columns, strict=True)
        ),
    )


def _words(shown: Sequence[RankTimes], delays: Iterable[Stragglers]) -> Iterator[str]:
    yield (
        "Each rank's seconds in a window over the median over ranks. In none no rank waits for another, so who is slow "
        "there is late by itself; over a backend that waits for all, times are alike whoever was late."
    )
    if any(heat.num_windows > heat.values.shape[1] for heat in shown):
        yield "Neighbouring windows of a launch are put together, as their median."
    if any(heat.moved for heat in shown):
        yield "Launches ran on different hosts: a row is a rank, wherever it was."
    sentences = [sentence for delay in delays for sentence in straggler_sentences(delay)]
    yield from (sentence[0].upper() + sentence[1:] for sentence in sentences[:MOST_SENTENCES])
    if len(sentences) > MOST_SENTENCES:
        yield f"And {len(sentences) - MOST_SENTENCES} more (see --json)."


FINDINGS = (
    Finding(
        name="rank_times",
        title="Rank times",
        compute=lambda study: [
            (rank_times(study.launches, max_columns=SHOWN_COLUMNS), stragglers.FINDING.of(study))
        ],
        plots=lambda found: (plot for heats, late in found for plot in heat_maps(heats, late)),
        figures={"heatmap": heat_map_figure},
        under="waterfalls",
    ),
)
