"""Stragglers: hosts and ranks that are slow in `none`, where no rank waits for another, in launch after launch.

If all are alike, the times of a launch are exchangeable: one that is slow in one launch is no more likely to be slow in
the next. So the times within each launch are permuted, and one is slow if its sum over launches of log(time / median)
exceeds the largest sum of any in all but 5 % of the permutations (Westfall and Young's maximum). A disturbance of a
single launch, however large, does not add up. With U alike in B launches, one of them is the slowest every time with
probability U^(1 - B), so few launches are not enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis.finding import COUNT, PLACE, SHARE, Column, Drawing, Finding, frame_of, on_most_ranks
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import MIN_BLOCKS, ratio
from dlscale.analysis.text import digits, interval, plural
from dlscale.analysis.theme import Axes
from dlscale.benchmarks.records.record import Record
from dlscale.collectives.capabilities import CONTROL

ALPHA = 0.05  # the chance that any host or rank is called slow if none is
# The part of it for hosts if their ranks are tested, too: enough to detect one of two hosts in 6 launches.
HOST_ALPHA = 0.04
BAND = 0.02  # a smaller slowdown is no reason to replace a node
NUM_DRAWS, SEED = 1999, 2018  # the same records, the same p
MOST_COLUMNS = 40  # of a launch in the drawing; with more windows, neighbours are averaged
MOST_NAMED = 16  # ranks whose names are next to their rows
LATE, NOT_KNOWN, NO_ONE = "late", "not known", "none"  # verdicts


def stragglers(study: Study) -> pd.DataFrame:
    """One row per suspect, of each number of ranks on which `none` was measured; one of verdict "none" without any."""
    cells = study.trained
    alone = cells[(cells["control"] == "train") & ~cells["is_exchanging"] & (cells["num_ranks"] > 1)]
    types = {"rank": int, "host": str, "seconds": float, "windows": object}
    ranks = study.rows(_relative_seconds, types).merge(
        alone[["family", "num_ranks", "split", "evidence"]], left_on="cell", right_index=True
    )
    rows: list[dict[str, Any]] = []
    for _, own in ranks.groupby(["family", "num_ranks", "split", "evidence"]):
        common = {"cell": own["cell"].iloc[0], "num_launches": own["number"].nunique()}
        common["num_hosts"] = own["host"].nunique()
        by_rank = own.sort_values("number", kind="stable").groupby("rank")
        # For the drawing: [P, columns] over all launches, and the hosts of the first.
        common["windows"] = np.array([np.concatenate(list(each)) for _, each in by_rank["windows"]])
        common["hosts"] = list(by_rank["host"].first())
        found = list(_suspects(own)) or [{"verdict": NO_ONE}]
        rows += ({"host": "", "reason": "", **common, **one} for one in found)
    numbers = ("rank", "slower", "slower_low", "slower_high", "p_value", "num_launches")
    frame = frame_of(rows, "cell", "host", "verdict", "reason", *numbers)
    return frame.astype(dict.fromkeys(numbers, float))


def _relative_seconds(record: Record) -> Iterator[dict[str, Any]]:
    """Each rank's seconds per own step over the median over ranks, median over windows.

    In asynchronous training, a rank that took no step in a window counts as if it had taken one.
    """
    cell, windows = record.case.cell, record.counted
    if cell.backend != CONTROL or cell.num_ranks < 2 or len(record.ranks) < cell.num_ranks:
        return
    steps = windows.num_steps[:, None] if windows.rank_steps is None else windows.rank_steps
    own = windows.seconds / np.maximum(steps, 1)
    own /= np.median(own, axis=1, keepdims=True)
    relative = np.median(own, axis=0)
    first = np.linspace(0, len(own), min(len(own), MOST_COLUMNS), endpoint=False).astype(int)
    shown = np.add.reduceat(own, first) / np.diff(first, append=len(own))[:, None]
    for place in record.ranks:
        rank = place.rank
        yield {"rank": rank, "host": place.node, "seconds": relative[rank], "windows": shown[:, rank]}


def _suspects(ranks: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The slow hosts, if there are several, then the slow ranks of the others."""
    several = ranks["host"].nunique() > 1
    shared = bool(ranks.duplicated(["number", "host"]).any())
    late: set[str] = set()
    if several:  # the lower of two middle ranks: one slow rank makes no slow host
        hosts = ranks.groupby(["number", "host"])["seconds"].quantile(0.5, interpolation="lower").unstack()
        for row in _slow(hosts, HOST_ALPHA if shared else ALPHA):
            late |= {row["name"]} if row["verdict"] == LATE else set()
            yield {**row, "host": row["name"]}
    if several and not shared:
        return  # a host's only rank is the host
    named = ranks.assign(name=ranks["host"] + " " + ranks["rank"].astype(str))
    times = named.pivot(index="number", columns="name", values="seconds")
    for row in _slow(times, ALPHA - HOST_ALPHA if several else ALPHA):
        host, _, rank = row["name"].rpartition(" ")
        if host not in late and (row["verdict"] == LATE or not several):
            yield {**row, "host": host, "rank": int(rank)}


def _slow(times: pd.DataFrame, alpha: float) -> Iterator[dict[str, Any]]:
    """The columns that are slower than the others by BAND or more; a row per launch, in any unit."""
    times = times[times.count(axis=1) > 1]
    slower = {name: ratio(times[name], times.drop(columns=name).median(axis=1)) for name in times}
    if not any(one.center - 1 >= BAND for one in slower.values()):
        return
    p_values, fewest = _p_values(times), 2
    while float(times.count(axis=1).min()) ** (1 - fewest) > alpha:
        fewest += 1
    for name, one in slower.items():
        if one.center - 1 < BAND:
            continue
        p_value, why = p_values[name], ""
        if p_value > alpha:
            few = f"{plural(len(times), 'launch')}; {fewest} are needed to tell it from chance"
            why = few if len(times) < fewest else f"not the same from launch to launch (p = {p_value:.2g})"
        yield {
            "name": name,
            **one.mapped(lambda value: value - 1).columns("slower"),
            "p_value": p_value,
            "verdict": NOT_KNOWN if why else LATE,
            "reason": why,
        }


def _p_values(times: pd.DataFrame) -> dict[str, float]:
    """The chance that any of them is this slow if all are alike."""
    generator = np.random.default_rng(SEED)
    logs = np.log(times)
    logs = logs.sub(logs.median(axis=1), axis=0)
    dealt = np.zeros((NUM_DRAWS, times.shape[1]))
    for launch in logs.to_numpy():
        there = ~np.isnan(launch)
        dealt[:, there] += generator.permuted(np.tile(launch[there], (NUM_DRAWS, 1)), axis=1)
    scale = np.sqrt(logs.count())  # one that took part in more launches has a larger sum by chance, too
    largest = (dealt / scale.to_numpy()).max(axis=1)
    least = logs.sum() / scale - 1e-12  # equal sums count as equal
    return {name: float((1 + (largest >= value).sum()) / (1 + NUM_DRAWS)) for name, value in least.items()}


def sentence(frame: pd.DataFrame) -> str:
    """The late hosts and ranks on the most ranks of each training, or that there is none."""
    rows = on_most_ranks(frame)
    late = rows[rows["verdict"] == LATE]
    several = rows["training"].nunique() > 1
    lines = []
    for row in late.to_dict("records"):
        host, rank = row["host"], row["rank"]
        who = f"Host {host}" if np.isnan(rank) else f"Rank {rank:.0f} (host {host})"
        slower = interval(row, "slower", factor=100, write=digits(1), unit=" %")
        of = f" of {row['training']}" if several else ""
        lines.append(f"{who} is late on {row['num_ranks']} ranks{of}: {slower} slower without communication.")
    if not lines and len(rows):
        least = rows["num_launches"].min()
        said = "No host or rank is consistently late"
        said = said if least >= MIN_BLOCKS else "Too few launches to tell whether a host or rank is late"
        lines = [f"{said} ({plural(least, 'launch')} without communication)."]
    return "\n".join(lines)


def draw(rows: pd.DataFrame, axes: Axes) -> None:
    """Each rank's time over the median of all ranks, window by window; names of late ranks are bold."""
    first, late = rows.iloc[0], rows[rows["verdict"] == LATE]
    slower = 100 * (first["windows"] - 1)
    limit = max(5.0, float(np.percentile(np.abs(slower), 98)))
    image = axes.imshow(slower, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", extent=(0, 1, 1, 0))
    limits = [-limit, -limit / 2, 0, limit / 2, limit]
    axes.figure.colorbar(image, ax=axes, ticks=limits, format="%+.0f", label="slower than the median [%]")
    names = [f"{host} {rank}" for rank, host in enumerate(first["hosts"])]
    late_hosts = set(late.loc[late["rank"].isna(), "host"])
    for rank, name in enumerate(names if len(names) <= MOST_NAMED else ()):
        is_late = rank in set(late["rank"]) or first["hosts"][rank] in late_hosts
        place, weight = (rank + 0.5) / len(names), "bold" if is_late else "normal"
        axes.text(-0.02, place, name, weight=weight, ha="right", va="center", fontsize=7)
    axes.set(xticks=[], yticks=[], xlabel=f"windows of {plural(first['num_launches'], 'launch')}")
    axes.set_ylabel(f"{len(names)} ranks" if len(names) > MOST_NAMED else "")


FINDING = Finding(
    name="stragglers",
    title="Stragglers and slow hosts",
    compute=stragglers,
    columns={
        **{name: PLACE[name] for name in ("training", "constants", "num_ranks")},
        "host": Column("node; a row without a rank is about all of its ranks", "host"),
        "rank": Column("the rank, of a host that is not slow as a whole", "rank", write=COUNT),
        "slower": Column(
            "time without communication over the median of the others, minus 1", "slower", **SHARE
        ),
        "p_value": Column("chance that any is this slow if all are alike", "p", write="{:.2g}".format),
        "verdict": Column("late, not known, or none: no one is 2 % slower than the others", "verdict"),
        "num_launches": Column("launches without communication", "n", write=COUNT),
        "reason": Column("why it is not known", "reason"),
    },
    sentence=sentence,
    drawings=(
        Drawing(
            name="heatmap",
            draw=draw,
            rows=on_most_ranks,
            left=0.9,
            about="Each rank's time in each window without communication, where no rank waits for another.",
        ),
    ),
)
