"""Heat maps: each rank's time over windows without communication, with the stragglers marked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.declare import HeatMap, Tags
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import stragglers
from dlscale.analysis.findings.rank_times import RankTimes, rank_times
from dlscale.analysis.findings.stragglers import Stragglers
from dlscale.analysis.text import plural, training_title

SHOWN_COLUMNS = 120  # of a heat map; beyond that, neighbouring windows of a launch are merged
SHOWN_RANKS = 128  # of a heat map; beyond that, only the slowest ranks


def heat_maps(heats: Iterable[RankTimes], delays: Iterable[Stragglers]) -> Iterator[HeatMap]:
    """The heat map of backend `none` on each family's most ranks, where no rank waits for another."""
    last: dict[tuple[Family, str], RankTimes] = {}
    for heat in heats:
        if heat.cell.backend == "none":
            last[heat.family, heat.evidence] = heat  # ordered by ranks
    suspects = {(late.family, late.evidence, late.num_ranks): late for late in delays}
    for index, ((family, evidence), heat) in enumerate(last.items()):
        known = suspects.get((family, evidence, heat.cell.num_ranks))
        yield _heat_map(f"heat-{index}", family, heat, known)


def _heat_map(name: str, family: Family, heat: RankTimes, known: Stragglers | None) -> HeatMap:
    ranks = _slowest(heat)
    values = _thinned(heat)
    hosts = heat.hosts or ("",) * len(heat.values)
    suspects = {
        rank
        for suspect in (known.suspects if known else ())
        if suspect.verdict == "late"
        for rank in range(len(hosts))
        if suspect.rank == rank or (suspect.rank is None and hosts[rank] in suspect.hosts)
    }
    rest = len(heat.values) - len(ranks)
    notes = [f"The {len(ranks)} slowest ranks; {rest} more are not shown."] if rest else []
    notes += ["Launches ran on different nodes; the names are those of the first one."] if heat.moved else []
    return HeatMap(
        name=name,
        title=f"{training_title(family)}: none on {plural(heat.cell.num_ranks, 'rank')}",
        says=f"Each rank relative to the median of all ranks, over {plural(heat.num_windows, 'window')}.",
        values=tuple(tuple(1 + value for value in values[rank].tolist()) for rank in ranks),
        hosts=tuple(hosts[rank] for rank in ranks),
        ranks=tuple(ranks),
        late=tuple(rank for rank in ranks if rank in suspects),
        notes=tuple(notes),
        tags=Tags(workload=family.workload, framework=family.framework),
    )


def _slowest(heat: RankTimes) -> list[int]:
    order = np.argsort(-np.median(heat.values, axis=1), kind="stable")
    return sorted(order[:SHOWN_RANKS].tolist())


def _thinned(heat: RankTimes) -> NDArray[np.float64]:
    """[P][columns]: medians over neighbouring columns of a launch, so that they fit; unchanged if they do."""
    launches = np.split(heat.values, heat.first_columns[1:], axis=1)
    room = max(1, SHOWN_COLUMNS // len(launches))
    if heat.values.shape[1] <= SHOWN_COLUMNS or all(launch.shape[1] <= room for launch in launches):
        return heat.values
    parts = [
        np.median(part, axis=1)
        for launch in launches
        for part in np.array_split(launch, min(room, launch.shape[1]), axis=1)
    ]
    return np.stack(parts, axis=1)


FINDINGS = (
    Finding(
        name="rank_times",
        title="Rank times",
        compute=lambda study: [(rank_times(study.launches), stragglers.FINDING.of(study))],
        plots=lambda found: (plot for heats, late in found for plot in heat_maps(heats, late)),
        under="waterfalls",
    ),
)
