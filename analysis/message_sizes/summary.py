"""The numbers of a run of the message-size benchmark: a row per library, setting and size.

The end of the file has the origin of the numbers, and the rows of `--json`.
"""

from __future__ import annotations

import hashlib
import itertools
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlscale.analysis.message_sizes.measurements import (
    PEER,
    RING,
    RING_SHARED,
    STREAM,
    LibrarySetting,
    MeasuredAt,
    MessageSizeRow,
    MessageTimes,
    Series,
    fastest,
    point_of,
    ratio,
    role_of,
)
from dlscale.analysis.message_sizes.validity import ValidityCheck, check_validity
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.records import attributes
from dlscale.analysis.statistics import Interval, median_interval
from dlscale.analysis.text import size_text
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, MessageSizeRun

DEFAULT = "default"  # the name of a library's default settings in peers.toml

# The driver's own operations: backend, title and setting of their rows.
OURS = {
    RING: ("ring", "ring", "ordinary memory"),
    RING_SHARED: ("ring", "ring, own memory", "memory of its own, direct push"),
    STREAM: ("memory", "memory bound", "each rank adds to its own memory"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSizeSummary:
    """Everything that the table, the figure and the files show of a run."""

    campaign: MessageSizeRun
    rows: Sequence[MessageSizeRow]
    checks: Sequence[ValidityCheck]
    choices: Sequence[str]  # how the ring moved large messages, a line each
    failures: Sequence[str]  # in a sentence each
    round_trips: Sequence[int]  # nanoseconds, of a message between two nodes, ascending
    start_skew: float  # nanoseconds, the median over calls; 0 if there are none
    provenance: Provenance


def summarise(campaign: MessageSizeRun, launches: Sequence[MessageSizeLaunch]) -> MessageSizeSummary:
    """The numbers of a complete or interrupted run."""
    measured = [launch for launch in launches if launch.purpose == "measured"]
    return MessageSizeSummary(
        campaign=campaign,
        rows=[_on_nodes(row, campaign) for row in _summary_rows(campaign, measured)],
        checks=check_validity(campaign, launches),
        choices=list(_choices(measured)),
        failures=list(_failures(campaign, launches)),
        round_trips=sorted(
            time for launch in measured for block in launch.samples for time in block.round_trip_nanoseconds
        ),
        start_skew=_start_skew(measured),
        provenance=run_origin(campaign, launches),
    )


def _choices(launches: Sequence[MessageSizeLaunch]) -> Iterator[str]:
    """The variants that most launches ended with, sizes with the same one together."""
    found: dict[tuple[int, str], dict[int, Counter[str]]] = {}
    for launch in launches:
        for choice in launch.choices:
            if choice.operation == RING:
                at = found.setdefault((launch.num_ranks, choice.collective), {})
                at.setdefault(choice.up_to_bytes, Counter())[choice.variant] += 1
    for (num_ranks, collective), by_size in sorted(found.items()):
        words = []
        usual = {size: by_size[size].most_common(1)[0] for size in sorted(by_size)}
        for variant, group in itertools.groupby(usual, key=lambda size: usual[size][0]):
            sizes = list(group)
            differ = [size_text(size) for size in sizes if usual[size][1] < by_size[size].total()]
            text = f"{variant} up to {size_text(sizes[-1])}"
            words.append(f"{text} (not in every launch: {', '.join(differ)})" if differ else text)
        yield f"The ring found fastest, {num_ranks} ranks, {collective}: {'; '.join(words)}."


def _start_skew(launches: Sequence[MessageSizeLaunch]) -> float:
    skews = [skew for launch in launches for block in launch.samples for skew in block.spread_nanoseconds]
    return statistics.median(skews) if skews else 0.0


def _summary_rows(
    campaign: MessageSizeRun, launches: Sequence[MessageSizeLaunch]
) -> Iterator[MessageSizeRow]:
    times = MessageTimes(launches)
    homes = {num_ranks: _home(times, launches, num_ranks) for num_ranks in campaign.rank_counts}
    titles = {peer.name: peer.title for peer in campaign.peers}
    variables = {(launch.backend, launch.setting): launch.variables for launch in launches}
    failed = _reasons(campaign, launches)
    hosts = dict.fromkeys(
        LibrarySetting(backend=launch.backend, setting=launch.setting)
        for launch in launches
        if launch.backend != RING  # its operations have their own rows
    )
    in_order = sorted(hosts, key=lambda host: list(titles).index(host.backend))
    for point in _measured_points(campaign):
        home = homes[point.num_ranks]
        for role, (backend, title, setting) in OURS.items():
            row = _empty(point, role, backend=backend, title=title, setting=setting, variables={})
            yield from _filled(row, times, home, point, home, failed)
        peers: list[MessageSizeRow] = []
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
            if peer.unusable:
                row = _empty(
                    point, PEER, backend=peer.name, title=peer.title, setting="not measured", variables={}
                )
                yield replace(row, failure=peer.unusable)


def _on_nodes(row: MessageSizeRow, campaign: MessageSizeRun) -> MessageSizeRow:
    """The row with its number of nodes and, where the wire is known, its share of that."""
    if not campaign.ranks_per_node:
        return row
    row = replace(row, num_nodes=row.num_ranks // campaign.ranks_per_node)
    return row.within_wire(campaign.wire_bytes_per_second) if campaign.wire_bytes_per_second else row


def average_bus_bandwidths(rows: Sequence[MessageSizeRow]) -> dict[tuple[int, str], float]:
    """GB/s by ranks and title: the mean over sizes of busbw, of each library at its best setting of the size."""
    rates: dict[tuple[int, str], list[float]] = {}
    for row in rows:
        if row.algbw and (row.role == RING or row.tuned):
            rates.setdefault((row.num_ranks, row.title), []).append(row.algbw.center * row.bus_factor)
    return {key: statistics.fmean(values) for key, values in rates.items()}


def _measured_points(campaign: MessageSizeRun) -> Iterator[MeasuredAt]:
    for num_ranks, collective, size in itertools.product(
        campaign.rank_counts, campaign.collectives, campaign.sizes
    ):
        yield MeasuredAt(collective=collective, num_ranks=num_ranks, message_bytes=size)


def _empty(
    point: MeasuredAt, role: str, *, backend: str, title: str, setting: str, variables: Mapping[str, str]
) -> MessageSizeRow:
    return MessageSizeRow(
        role=role,
        backend=backend,
        title=title,
        setting=setting,
        variables=variables,
        operation="in-place add" if role == STREAM else point.collective,
        collective=point.collective,
        num_ranks=point.num_ranks,
        message_bytes=point.message_bytes,
        num_launches=0,
    )


def _filled(
    row: MessageSizeRow,
    times: MessageTimes,
    host: LibrarySetting | None,
    point: MeasuredAt,
    home: LibrarySetting | None,
    failed: Mapping[tuple[LibrarySetting, str, MeasuredAt], str],
) -> Iterator[MessageSizeRow]:
    """The row with its numbers or its failure; nothing if it was neither measured nor failed."""
    series = times.of(host, row.role, point)
    if not series:
        if host and (reason := failed.get((host, row.role, point))):
            yield replace(row, failure=reason)
        return

    def beside(role: str) -> Series:
        """The times of the same launches if they measured this role; else those of the ring's launches, by block."""
        return times.of(host, role, point) or times.of(home, role, point)

    yield replace(
        row,
        used_bytes=times.used_bytes(point),
        num_launches=len(series),
        num_calls=sum(one.num_calls for one in series.values()),
        seconds=median_interval([one.median for one in series.values()]),
        best_seconds=min(one.best for one in series.values()),
        p99_seconds=statistics.median(one.p99 for one in series.values()),
        fraction_of_bound=ratio(beside(STREAM), series),
        ring_speedup=None if row.role == RING else ratio(series, beside(RING)),
        shared_speedup=None if row.role == RING_SHARED else ratio(series, beside(RING_SHARED)),
    )


def _mark_best(peers: Sequence[MessageSizeRow]) -> Iterator[MessageSizeRow]:
    """The rows, with the fastest of each library marked as `tuned`."""
    best = {
        backend: fastest([row for row in peers if row.backend == backend])
        for backend in {row.backend for row in peers}
    }
    for row in peers:
        yield replace(row, tuned=best[row.backend] is row)


def _home(
    times: MessageTimes, launches: Sequence[MessageSizeLaunch], num_ranks: int
) -> LibrarySetting | None:
    """The library setting whose launches give the ring's rows: only one, so that n counts blocks."""
    hosts = times.hosting(RING, num_ranks)
    if not hosts and any(launch.backend == RING and launch.num_ranks == num_ranks for launch in launches):
        return LibrarySetting(backend=RING, setting=DEFAULT)  # it failed, and the rows say why
    hosts = hosts or times.hosting(STREAM, num_ranks)
    defaults = [host for host in hosts if host.setting == DEFAULT]
    preferred = [host for host in defaults if host.backend in (RING, "mpich")]
    return next(iter(preferred or defaults or hosts), None)


def _reasons(
    campaign: MessageSizeRun, launches: Sequence[MessageSizeLaunch]
) -> dict[tuple[LibrarySetting, str, MeasuredAt], str]:
    """The reasons of failed measurements; a launch that failed as a whole counts wherever it has no numbers."""
    reasons: dict[tuple[LibrarySetting, str, MeasuredAt], str] = {}
    for launch in launches:
        host = LibrarySetting(backend=launch.backend, setting=launch.setting)
        for failure in launch.failures:
            reasons[host, role_of(launch, failure.operation), point_of(launch, failure)] = failure.reason
        if launch.failure:
            asked = {_role_and_collective(launch, word) for word in launch.operations} - {
                (STREAM, "allreduce")
            }
            for point in _measured_points(campaign):
                if point.num_ranks != launch.num_ranks:
                    continue
                roles = [role for role, collective in asked if collective == point.collective]
                for role in roles:
                    reasons.setdefault((host, role, point), launch.failure)
    return reasons


def _role_and_collective(launch: MessageSizeLaunch, word: str) -> tuple[str, str]:
    """The role and the collective of an operation as a launch was asked for it: "mpi", "mpi:broadcast"."""
    name, _, collective = word.partition(":")
    return role_of(launch, name), collective or "allreduce"


def _failures(campaign: MessageSizeRun, launches: Sequence[MessageSizeLaunch]) -> Iterator[str]:
    """Missing backends, failed launches, and operations that failed at some sizes, each in one sentence."""
    for peer in campaign.peers:
        if peer.unusable:
            yield f"{peer.title}: {peer.unusable}"
    counts: Counter[str] = Counter()
    for launch in launches:
        where = f"{launch.backend} ({launch.setting}), {launch.num_ranks} ranks, {launch.purpose}"
        if launch.failure:
            variants = [word for word in launch.operations if word == RING_SHARED]
            counts[f"{', '.join([where, *variants])}: {launch.failure}"] += 1
        for reason in dict.fromkeys(failure.reason for failure in launch.failures):
            cells = [cell for cell in launch.failures if cell.reason == reason]
            operations = dict.fromkeys(
                cell.operation + (f" {cell.collective}" if cell.collective != "allreduce" else "")
                for cell in cells
            )
            counts[f"{where}, {', '.join(operations)}: {reason}"] += 1
    for text, count in counts.items():
        yield text if count == 1 else f"{text} ({count} launches)"


def run_origin(campaign: MessageSizeRun, launches: Sequence[MessageSizeLaunch]) -> Provenance:
    """The origin of a run's numbers, whatever order its launches were read in; its system is the processor."""
    # What their files have: fields that are newer than a file would change its hash.
    digest = hashlib.sha256(campaign.model_dump_json(exclude_unset=True).encode() + b"\n")
    for text in sorted(launch.model_dump_json(exclude_unset=True) for launch in launches):
        digest.update(text.encode() + b"\n")
    return Provenance(
        studies=("collectives",),
        systems=(str(campaign.node.get("cpu_model", "unknown")),),
        commits=(campaign.commit,),
        commands=tuple(sorted({launch.command for launch in launches})),
        data_hash=digest.hexdigest(),
    )


def message_size_row(row: MessageSizeRow) -> dict[str, Any]:
    """A row as a dictionary with the stable keys of `dlscale collectives --json`."""
    rate = row.algbw
    return {
        **attributes(row, "backend setting operation num_ranks num_nodes message_bytes"),
        "used_bytes": row.message_bytes if row.used_bytes is None else row.used_bytes,
        "algbw_gb_per_second": rate.center if rate else None,
        "busbw_gb_per_second": rate.center * row.bus_factor if rate else None,
        "mode": "hot",  # the only state of the caches
        "algbw_low": rate.low if rate else None,
        "algbw_high": rate.high if rate else None,
        "best_algbw_gb_per_second": row.best_algbw,
        "median_seconds": row.seconds.center if row.seconds else None,
        "p99_seconds": row.p99_seconds,
        **_interval_values("fraction_of_bound", row.fraction_of_bound),
        **_interval_values("ring_speedup", row.ring_speedup),
        **_interval_values("ring_shared_speedup", row.shared_speedup),
        **attributes(row, "num_launches num_calls tuned"),
        "variables": dict(row.variables),
        "failure": row.failure,
    }


def message_sizes_json(summary: MessageSizeSummary) -> dict[str, Any]:
    """All rows, and the comparison with IMB-MPI1."""
    return {
        "schema": 1,
        "rows": [message_size_row(row) for row in summary.rows],
        "validity": [{**attributes(check, "backend setting valid found")} for check in summary.checks],
    }


def _interval_values(name: str, interval: Interval | None) -> dict[str, float | None]:
    if interval is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: interval.center, f"{name}_low": interval.low, f"{name}_high": interval.high}
