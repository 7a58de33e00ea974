"""Ranks by windows where nobody waits for anybody, and which of them are late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.family import Family
from dlscale.analysis.late.matrix import Heat
from dlscale.analysis.late.suspects import Lateness
from dlscale.analysis.page.plot_model import HeatMap, Tags
from dlscale.analysis.page.words import plural, training_title

MAX_COLUMNS = 120  # of a heat map; neighbours of a launch are put together beyond
MAX_RANKS = 128  # of a heat map; the slowest of more


def heat_maps(found: Iterable[Heat], delays: Iterable[Lateness]) -> Iterator[HeatMap]:
    """Of each family that of `none` on the most ranks, where nobody waits for anybody."""
    last: dict[tuple[Family, str], Heat] = {}
    for heat in found:
        if heat.cell.backend == "none":
            last[heat.family, heat.evidence] = heat  # ordered by ranks
    late = {(one.family, one.evidence, one.num_ranks): one for one in delays}
    for index, ((family, evidence), heat) in enumerate(last.items()):
        known = late.get((family, evidence, heat.cell.num_ranks))
        yield _heat_map(f"heat-{index}", family, heat, known)


def _heat_map(name: str, family: Family, heat: Heat, known: Lateness | None) -> HeatMap:
    ranks = _slowest(heat)
    values = _thinned(heat)
    hosts = heat.hosts or ("",) * len(heat.values)
    suspects = {
        rank
        for one in (known.suspects if known else ())
        if one.verdict == "late"
        for rank in range(len(hosts))
        if one.rank == rank or (one.rank is None and hosts[rank] in one.hosts)
    }
    rest = len(heat.values) - len(ranks)
    notes = [f"The {len(ranks)} slowest ranks; {rest} more are not shown."] if rest else []
    notes += ["Launches ran on different nodes; the names are those of the first one."] if heat.moved else []
    return HeatMap(
        name=name,
        title=f"{training_title(family)}: none on {plural(heat.cell.num_ranks, 'rank')}",
        says=f"Each rank against the median of all, over {plural(heat.num_windows, 'window')}.",
        values=tuple(tuple(1 + value for value in values[rank].tolist()) for rank in ranks),
        hosts=tuple(hosts[rank] for rank in ranks),
        ranks=tuple(ranks),
        late=tuple(rank for rank in ranks if rank in suspects),
        notes=tuple(notes),
        tags=Tags(workload=family.workload, framework=family.framework),
    )


def _slowest(heat: Heat) -> list[int]:
    order = np.argsort(-np.median(heat.values, axis=1), kind="stable")
    return sorted(order[:MAX_RANKS].tolist())


def _thinned(heat: Heat) -> NDArray[np.float64]:
    """[P][columns]: medians over neighbouring columns of a launch, so that it fits; unchanged where it does."""
    launches = np.split(heat.values, heat.first_columns[1:], axis=1)
    room = max(1, MAX_COLUMNS // len(launches))
    if heat.values.shape[1] <= MAX_COLUMNS or all(one.shape[1] <= room for one in launches):
        return heat.values
    parts = [
        np.median(part, axis=1)
        for one in launches
        for part in np.array_split(one, min(room, one.shape[1]), axis=1)
    ]
    return np.stack(parts, axis=1)
