"""The message-size benchmark: from the launches of a run to a frame of rates, a row per library, setting and size.

Launches take turns and are compared turn by turn, and block by block where they ran alone: what a machine does in
between changes them alike. The slowest rank's time counts in every call.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from dlscale.analysis.statistics import median_interval, ratio
from dlscale.benchmarks.records.collective_operations import BY_NAME
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, MessageSizeRun

RING = "ring"
PEER = "peer"  # a library's own operation, whatever its name: "mpi", "gloo", "horovod"
DEFAULT = "default"  # the name of a library's default settings in peers.toml
POINT = ["num_ranks", "collective", "message_bytes"]
SERIES = [
    "host",
    "host_setting",
    "role",
    *POINT,
]  # what has a time per block: whose program measured what, where
NO_HOST = ("", "")

# The keys of a row of --json and of the CSV, in order. Rates are in GB/s, ratios of an operation's time to the ring's.
RATIOS = ("fraction_of_bound", "ring_speedup")
KEYS = (
    *("backend", "setting", "operation", "num_ranks", "num_nodes", "message_bytes", "used_bytes"),
    *("algbw_gb_per_second", "busbw_gb_per_second", "mode", "algbw_low", "algbw_high"),
    *("best_algbw_gb_per_second", "median_seconds", "p99_seconds"),
    *(name + end for name in RATIOS for end in ("", "_low", "_high")),
    *("num_launches", "num_calls", "tuned", "variables", "failure"),
)


def role_of(launch: MessageSizeLaunch, operation: str) -> str:
    """The role of an operation in rows: PEER for a library's own, else its name."""
    return PEER if operation in {"mpi", launch.backend} - {RING} else operation


def call_blocks(launches: Sequence[MessageSizeLaunch]) -> pd.DataFrame:
    """One row per block of calls: `seconds` is an array of the slowest rank's seconds of each call."""
    columns = [*SERIES, "block", "together", "round", "used_bytes", "seconds"]
    rows = [
        (
            *(launch.backend, launch.setting, role_of(launch, block.operation)),
            *(launch.num_ranks, block.collective, block.message_bytes),
            *(launch.block, launch.together, block.round, block.used_bytes or block.message_bytes),
            1e-9 * np.asarray(block.nanoseconds, np.float64).max(axis=0),
        )
        for launch in launches
        for block in launch.samples
        if block.operation not in ("stream", "ring-shared")  # of earlier versions
    ]
    return pd.DataFrame(rows, columns=columns).drop_duplicates([*SERIES, "block", "round"], keep="last")


def message_sizes(run: MessageSizeRun, launches: Sequence[MessageSizeLaunch]) -> pd.DataFrame:
    """One row per library, setting, number of ranks, operation and size: measured, or failed and why.

    Intervals are over launches. `tuned` is the fastest of a library's settings at its point; `role` says whose
    operation it is.
    """
    launches = [launch for launch in launches if launch.purpose == "measured"]
    calls = call_blocks(launches)
    times, series = _times(calls)
    ids = dict(zip(series[SERIES].itertuples(index=False, name=None), series.index, strict=True))
    homes = {num_ranks: _home(series, launches, num_ranks) for num_ranks in run.rank_counts}
    rows, reasons = _planned_rows(run, launches, homes), _reasons(run, launches)
    keys = list(rows[SERIES].itertuples(index=False, name=None))
    rows["id"] = [ids.get(key, -1) for key in keys]
    rows["failure"] = [
        given or ("" if place >= 0 else reasons.get(key, ""))
        for given, place, key in zip(rows["failure"], rows["id"], keys, strict=True)
    ]
    # The same launches' times of the ring, else those of the ring's launches; -1 for none.
    places = ([ids.get((*host, RING, *key[3:]), -1) for host in (key[:2], homes[key[3]])] for key in keys)
    rows[RING] = [own if own >= 0 else home for own, home in places]
    rows[RING] = rows[RING].where(rows["role"] != RING, -1)  # no ratio of an operation to itself
    rows = rows[(rows["id"] >= 0) | (rows["failure"] != "")].reset_index(drop=True)
    turns = _turns(calls, series)
    rows = rows.join(_ratios(times, turns, rows["id"], rows[RING]).add_prefix("ring_speedup"))
    rows = rows.join(series.drop(columns=SERIES), on="id")
    rows["used_bytes"] = rows["used_bytes"].fillna(rows["message_bytes"]).astype(int)
    rows = _with_rates(rows, run)
    return rows.assign(tuned=_is_tuned(rows))


def _times(calls: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The median seconds per block and series, [blocks, series], and one row per series, numbered."""
    by_block = calls.explode("seconds").astype({"seconds": float}).groupby([*SERIES, "block"], sort=False)
    launch = by_block["seconds"].agg(median="median", best="min", num_calls="size")
    launch["p99"] = by_block["seconds"].quantile(0.99, interpolation="higher")
    launch["used_bytes"] = by_block["used_bytes"].last()
    launch = launch.reset_index()
    grouped = launch.groupby(SERIES, sort=False)
    series = grouped.agg(
        best_seconds=("best", "min"), p99_seconds=("p99", "median"), num_calls=("num_calls", "sum"),
        num_launches=("block", "size"), used_bytes=("used_bytes", "last"),
    )  # fmt: skip
    medians = [median_interval(own) for _, own in grouped["median"]]
    for name in ("center", "low", "high"):
        series[f"seconds_{name}"] = [getattr(found, name) for found in medians]
    series = series.reset_index()
    series["used_bytes"] = series.groupby(POINT)["used_bytes"].transform("last")
    launch["id"] = grouped.ngroup()
    return launch.pivot(index="block", columns="id", values="median"), series


def _turns(calls: pd.DataFrame, series: pd.DataFrame) -> pd.DataFrame:
    """The median seconds of each turn that launches took right after each other, [block and turn, series]."""
    shared = calls[calls["together"].notna()].merge(series[SERIES].reset_index(names="id"), on=SERIES)
    shared = shared.assign(seconds=[float(np.median(seconds)) for seconds in shared["seconds"]])
    return shared.pivot(index=["block", "together", "round"], columns="id", values="seconds")


def _ratios(times: pd.DataFrame, turns: pd.DataFrame, over: pd.Series, under: pd.Series) -> pd.DataFrame:
    """Intervals of one series over another, a row each; columns "", "_low" and "_high".

    A block's ratio is the median over common turns, else that of its medians; Welch's interval without a common block.
    """
    num_blocks = len(times)
    tops, bottoms = (times.reindex(columns=ids).to_numpy(float) for ids in (over, under))
    by_turn = turns.reindex(columns=over).to_numpy(float) / turns.reindex(columns=under).to_numpy(float)
    by_block = pd.DataFrame(by_turn, index=turns.index).groupby("block").median().reindex(times.index)
    paired = by_block.fillna(pd.DataFrame(tops / bottoms, times.index)).to_numpy(float)
    found = [
        ratio(paired[:, place], np.ones(num_blocks))
        if not np.isnan(paired[:, place]).all()
        else ratio(tops[:, place], bottoms[:, place])
        for place in range(len(over))
    ]
    return pd.DataFrame([one[:3] for one in found], columns=["", "_low", "_high"])


def _with_rates(rows: pd.DataFrame, run: MessageSizeRun) -> pd.DataFrame:
    """The rows with their bandwidths; between nodes the bound is the wire, where the system states it."""
    sent = rows["used_bytes"]
    rows["num_nodes"] = rows["num_ranks"] // (run.ranks_per_node or 1) if run.ranks_per_node else 1
    factors, least = (
        np.array([BY_NAME[name].bus_factor(int(size)) for name, size in pairs.itertuples(index=False)])
        for pairs in (rows[["collective", "num_ranks"]], rows[["collective", "num_nodes"]])
    )
    rows["algbw_gb_per_second"] = 1e-9 * sent / rows["seconds_center"]
    rows["algbw_low"], rows["algbw_high"] = (1e-9 * sent / rows[f"seconds_{end}"] for end in ("high", "low"))
    rows["busbw_gb_per_second"] = rows["algbw_gb_per_second"] * factors
    rows["best_algbw_gb_per_second"] = 1e-9 * sent / rows["best_seconds"]
    wire = (run.ranks_per_node and run.wire_bytes_per_second) or np.nan
    for end, other in (("", "center"), ("_low", "high"), ("_high", "low")):
        rows[f"fraction_of_bound{end}"] = least * sent / wire / rows[f"seconds_{other}"]
    counts = ["num_launches", "num_calls"]
    return rows.rename(columns={"seconds_center": "median_seconds"}).assign(
        mode="hot",  # the only state of the caches
        operation=rows["collective"],
        **rows[counts].fillna(0).astype(int),
    )


def _is_tuned(rows: pd.DataFrame) -> pd.Series:
    """The fastest setting of each library at each point, by ratios to the ring if all have one: they drift less."""
    peers = rows[(rows["role"] == PEER) & rows["median_seconds"].notna()]
    by = [*POINT, "backend"]
    has_ratios = peers["ring_speedup"].notna().groupby([peers[name] for name in by]).transform("all")
    score = peers["ring_speedup"].where(has_ratios, peers["median_seconds"])
    return rows.index.isin(score.groupby([peers[name] for name in by]).idxmin())


def _planned_rows(
    run: MessageSizeRun, launches: Sequence[MessageSizeLaunch], homes: dict[int, tuple[str, str]]
) -> pd.DataFrame:
    """All rows that a run may have, in order: per point the ring's, each setting's, each missing library's."""
    titles = {peer.name: peer.title for peer in run.peers}
    given = {(launch.backend, launch.setting): launch.variables for launch in launches}
    hosts = [host for host in given if host[0] != RING]  # whose operations have their own rows
    hosts.sort(key=lambda host: list(titles).index(host[0]))
    rows: list[tuple[object, ...]] = []
    for point in itertools.product(run.rank_counts, run.collectives, run.sizes):
        rows.append((*homes[point[0]], RING, *point, RING, RING, "ordinary memory", {}, ""))
        rows += [(*host, PEER, *point, host[0], titles[host[0]], host[1], given[host], "") for host in hosts]
        rows += [
            (*NO_HOST, PEER, *point, peer.name, peer.title, "not measured", {}, peer.unusable)
            for peer in run.peers
            if peer.unusable
        ]
    columns = [*SERIES, "backend", "title", "setting", "variables", "failure"]
    return pd.DataFrame(rows, columns=columns)


def _home(series: pd.DataFrame, launches: Sequence[MessageSizeLaunch], num_ranks: int) -> tuple[str, str]:
    """The library and setting whose launches give the ring's rows: only one, so that n counts blocks."""
    rows = series[(series["role"] == RING) & (series["num_ranks"] == num_ranks)]
    hosts = list(dict.fromkeys(zip(rows["host"], rows["host_setting"], strict=True)))
    if not hosts and any((launch.backend, launch.num_ranks) == (RING, num_ranks) for launch in launches):
        return RING, DEFAULT  # it failed, and the rows say why
    defaults = [host for host in hosts if host[1] == DEFAULT]
    preferred = [host for host in defaults if host[0] in (RING, "mpich")]
    return next(iter(preferred or defaults or hosts), NO_HOST)


def _reasons(run: MessageSizeRun, launches: Sequence[MessageSizeLaunch]) -> dict[tuple[object, ...], str]:
    """Why a series has no time; a launch that failed as a whole counts wherever nothing else does."""
    reasons: dict[tuple[object, ...], str] = {}
    for launch in launches:
        host = (launch.backend, launch.setting)
        for failure in launch.failures:
            role = role_of(launch, failure.operation)
            reasons[*host, role, launch.num_ranks, failure.collective, failure.message_bytes] = failure.reason
        for word in launch.operations if launch.failure else ():
            name, _, collective = word.partition(":")  # "mpi", "mpi:broadcast"
            for size in run.sizes:
                key = (*host, role_of(launch, name), launch.num_ranks, collective or "allreduce", size)
                reasons.setdefault(key, str(launch.failure))
    return reasons


def average_bus_bandwidths(rows: pd.DataFrame) -> pd.Series:
    """GB/s by ranks and title: the mean over sizes of busbw, of each library at its best setting of the size."""
    best = rows[rows["median_seconds"].notna() & ((rows["role"] == RING) | rows["tuned"])]
    return best.groupby(["num_ranks", "title"], sort=False)["busbw_gb_per_second"].mean()
