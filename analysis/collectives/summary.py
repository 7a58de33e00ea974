"""A run in numbers: a row per library, setting and place, and what follows from them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dlscale.analysis.collectives.goals import Verdict, judge
from dlscale.analysis.collectives.origin import origin
from dlscale.analysis.collectives.rows import Row, fastest
from dlscale.analysis.collectives.times import (
    PEER,
    RING,
    RING_SHARED,
    STREAM,
    UNSYNCHRONISED,
    ByBlock,
    Host,
    Point,
    Times,
    medians,
)
from dlscale.analysis.collectives.validity import Check, check
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import Interval, block_ratio, median_interval
from dlscale.benchmarks.collectives.record import Campaign, Launch

DEFAULT = "default"  # what peers.toml calls the settings that a library has by itself

# The rows that the operations of our programs make: backend, title, setting.
OURS = {
    RING: ("ring", "ring", "ordinary memory"),
    RING_SHARED: ("ring", "ring, own memory", "memory of its own, direct push"),
    UNSYNCHRONISED: ("unsynchronised", "ring, no waiting", "the same loads and stores; nobody waits"),
    STREAM: ("memory", "memory bound", "each rank adds to its own memory"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything that is shown of a run."""

    campaign: Campaign
    rows: Sequence[Row]
    verdicts: Sequence[Verdict]
    checks: Sequence[Check]
    failures: Sequence[str]  # in a sentence each
    round_trips: Sequence[int]  # nanoseconds, of a flag between two ranks, ascending
    provenance: Provenance


def summarise(campaign: Campaign, launches: Sequence[Launch]) -> Summary:
    """The numbers of a run, whole or interrupted."""
    measured = [launch for launch in launches if launch.purpose == "measured"]
    rows = list(_rows(campaign, measured))
    checks = check(campaign, launches)
    return Summary(
        campaign=campaign,
        rows=rows,
        verdicts=judge(rows, checks, num_cpus=len(campaign.cpus)),
        checks=checks,
        failures=list(_failures(campaign, launches)),
        round_trips=sorted(time for launch in measured for time in launch.round_trip_nanoseconds),
        provenance=origin(campaign, launches),
    )


def _rows(campaign: Campaign, launches: Sequence[Launch]) -> Iterator[Row]:
    times = Times(launches)
    homes = {num_ranks: _home(times, num_ranks) for num_ranks in campaign.rank_counts}
    titles = {peer.name: peer.title for peer in campaign.peers}
    variables = {(launch.backend, launch.setting): launch.variables for launch in launches}
    failed = _reasons(campaign, launches)
    hosts = dict.fromkeys(Host(backend=one.backend, setting=one.setting) for one in launches)
    in_order = sorted(hosts, key=lambda host: list(titles).index(host.backend))
    for point in _points(campaign):
        home = homes[point.num_ranks]
        for role, (backend, title, setting) in OURS.items():
            row = _empty(point, role, backend=backend, title=title, setting=setting, variables={})
            yield from _filled(row, times, home, point, home, failed)
        peers: list[Row] = []
        for host in in_order:
            row = _empty(
                point,
                PEER,
                backend=host.backend,
                title=titles[host.backend],
                setting=host.setting,
                variables=variables[host.backend, host.setting],
            )
            peers += _filled(row, times, host, point, home, failed)
        yield from _mark_best(peers)
        for peer in campaign.peers:
            if peer.unusable and point.mode == campaign.modes[0]:
                row = _empty(
                    point, PEER, backend=peer.name, title=peer.title, setting="not measured", variables={}
                )
                yield replace(row, failure=peer.unusable)


def _points(campaign: Campaign) -> Iterator[Point]:
    for num_ranks in campaign.rank_counts:
        for size in campaign.sizes:
            for mode in campaign.modes:
                yield Point(num_ranks=num_ranks, mode=mode, message_bytes=size)


def _empty(
    point: Point, role: str, *, backend: str, title: str, setting: str, variables: Mapping[str, str]
) -> Row:
    return Row(
        role=role,
        backend=backend,
        title=title,
        setting=setting,
        variables=variables,
        operation="in-place add" if role == STREAM else "allreduce",
        num_ranks=point.num_ranks,
        mode=point.mode,
        message_bytes=point.message_bytes,
        num_launches=0,
    )


def _filled(
    row: Row,
    times: Times,
    host: Host | None,
    point: Point,
    home: Host | None,
    failed: Mapping[tuple[Host, str, Point], str],
) -> Iterator[Row]:
    """The row with its numbers or its failure; none where nothing was measured and nothing failed."""
    series = times.of(host, row.role, point)
    if not series:
        if host and (reason := failed.get((host, row.role, point))):
            yield replace(row, failure=reason)
        return

    def beside(role: str) -> ByBlock:
        """What the same processes measured in turn with it; else the ring's own, in the same block."""
        return medians(times.of(host, role, point) or times.of(home, role, point))

    mine = medians(series)
    yield replace(
        row,
        num_launches=len(series),
        num_calls=sum(one.num_calls for one in series.values()),
        seconds=median_interval(list(mine.values())),
        best_seconds=min(one.best for one in series.values()),
        p99_seconds=statistics.median(one.p99 for one in series.values()),
        fraction_of_bound=_ratio(beside(STREAM), mine),
        ring_speedup=None if row.role == RING else _ratio(mine, beside(RING)),
        shared_speedup=None if row.role == RING_SHARED else _ratio(mine, beside(RING_SHARED)),
    )


def _ratio(over: ByBlock, under: ByBlock) -> Interval | None:
    return block_ratio(over, under) if over and under else None


def _mark_best(peers: Sequence[Row]) -> Iterator[Row]:
    """The fastest row of each library is marked."""
    best = {
        backend: fastest([row for row in peers if row.backend == backend])
        for backend in {row.backend for row in peers}
    }
    for row in peers:
        yield replace(row, tuned=best[row.backend] is row)


def _home(times: Times, num_ranks: int) -> Host | None:
    """In whose programs the rows of the ring itself were measured: one only, so that n counts blocks."""
    hosts = times.hosting(RING, num_ranks) or times.hosting(STREAM, num_ranks)
    defaults = [host for host in hosts if host.setting == DEFAULT]
    preferred = [host for host in defaults if host.backend == "mpich"]
    return next(iter(preferred or defaults or hosts), None)


def _reasons(campaign: Campaign, launches: Sequence[Launch]) -> dict[tuple[Host, str, Point], str]:
    """Why something could not be measured; of a launch that failed as a whole, wherever it has no numbers."""
    found: dict[tuple[Host, str, Point], str] = {}
    for launch in launches:
        host = Host(backend=launch.backend, setting=launch.setting)
        for failure in launch.failures:
            operation = PEER if failure.operation in ("mpi", launch.backend) else failure.operation
            point = Point(num_ranks=launch.num_ranks, mode=failure.mode, message_bytes=failure.message_bytes)
            found[host, operation, point] = failure.reason
        if launch.failure:
            for point in _points(campaign):
                if point.num_ranks == launch.num_ranks:
                    found.setdefault((host, PEER, point), launch.failure)
    return found


def _failures(campaign: Campaign, launches: Sequence[Launch]) -> Iterator[str]:
    """Once each: backends that are missing, launches that failed, operations that failed at some sizes."""
    for peer in campaign.peers:
        if peer.unusable:
            yield f"{peer.title}: {peer.unusable}"
    said: Counter[str] = Counter()
    for launch in launches:
        where = f"{launch.backend} ({launch.setting}), {launch.num_ranks} ranks, {launch.purpose}"
        if launch.failure:
            said[f"{where}: {launch.failure}"] += 1
        for reason in dict.fromkeys(one.reason for one in launch.failures):
            operations = dict.fromkeys(one.operation for one in launch.failures if one.reason == reason)
            said[f"{where}, {', '.join(operations)}: {reason}"] += 1
    for text, count in said.items():
        yield text if count == 1 else f"{text} ({count} launches)"
