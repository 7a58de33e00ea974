"""Memory of each rank: what a training's state takes, what it should take, and the most that host and GPU held.

N trainable weights of 4 bytes, optimizers that keep k numbers of each (2 of Adam, 1 of momentum), P ranks:

    shard          parameters   gradients   optimizer      a rank sends per step
    none           4 N          4 N         4 N k          2 (P - 1)/P of the gradients: an allreduce
    optimizer      4 N          4 N         4 N k / P      likewise: a reduce-scatter and an allgather
    parameters     4 N / P      4 N / P     4 N k / P      3 (P - 1)/P: a reduce-scatter and two allgathers

State is counted between two steps; peaks also have activations, gathered weights, the framework and the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis import theme
from dlscale.analysis.attempts import sent_bytes
from dlscale.analysis.finding import PLACE, Column, Drawing, Finding, columns_of, each_said, on_several_ranks
from dlscale.analysis.findings.cautions import is_busy
from dlscale.analysis.load import MEMORY, Study
from dlscale.analysis.statistics import NONE, ratio
from dlscale.analysis.text import digits, plural, size_text, with_limits
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record
from dlscale.collectives.sharding import NONE as UNSHARDED
from dlscale.collectives.sharding import PARAMETERS

WEIGHT_BYTES = 4  # weights, gradients and what optimizers keep are float32
PARTS = ("parameters", "gradients", "optimizer")  # of a training's state
STATE = [f"{part}_bytes" for part in PARTS]
EXPECTED = [f"expected_{name}" for name in STATE]
SENT = "sent_bytes_per_step"
PEAKS = (  # label and meaning
    ("peak", "most bytes of a process"),
    ("GPU taken", "most bytes of tensors on a GPU"),
    ("GPU reserved", "most bytes reserved of a GPU"),
    ("GPU in all", "bytes of a GPU"),
)


def memory(study: Study) -> pd.DataFrame:
    """One row per training with a record: bytes of its largest rank; its step over an unsharded one's if not busy."""
    cells = study.cells[(study.cells["control"] == "train") & (study.cells["evidence"] != "")]
    largest = study.rows(_states, dict.fromkeys(STATE, float)).groupby("cell").max(skipna=False)[STATE]
    sent = study.rows(lambda record: [{SENT: sent_bytes(record)}], {SENT: float})
    expected = [_expected(study.measured[key]) for key in cells.index]
    frame = pd.DataFrame(expected, cells.index, EXPECTED, dtype=float)
    frame = frame.join(largest).join(sent.groupby("cell")[SENT].median())
    frame["state_bytes"] = frame[STATE].sum(axis=1, min_count=1)
    frame["expected_state_bytes"] = frame[EXPECTED].sum(axis=1, min_count=1)
    steps, whole = study.wide("step_seconds"), {} if is_busy(study) else _unsharded(cells)
    found = [ratio(steps[key], steps[whole[key]]) if key in whole else NONE for key in frame.index]
    frame = frame.join(columns_of(found, "slowdown", frame.index))
    return frame.join(study.ranks.groupby("cell")[list(MEMORY)].max()).rename_axis("cell").reset_index()


def _states(record: Record) -> list[dict[str, Any]]:
    states = (rank.state_bytes for rank in record.ranks)
    return [{f"{part}_bytes": getattr(state, part) for part in PARTS} for state in states if state]


def _expected(cell: Cell) -> list[float]:
    """What a rank keeps of each part, in whole bytes, by the table above; NaN if it is not known."""
    try:
        own = (cell.target and cell.target.optimizer) or cell.facts
        num_weights, num_slots = cell.preset_facts.num_parameters, own.num_slots
    except (UsageError, ImportError):  # of another version's records
        return [np.nan] * len(PARTS)
    if num_slots is None:
        return [np.nan] * len(PARTS)
    whole, parts = WEIGHT_BYTES * num_weights, 1 if cell.shard == UNSHARDED else cell.num_ranks
    weights = round(whole / parts if cell.shard == PARAMETERS else whole)
    return [weights, weights, round(num_slots * whole / parts)]


def _unsharded(cells: pd.DataFrame) -> dict[str, str]:
    """The same training without sharding, for each sharded one on several ranks."""
    place = cells["system"] + " " + cells["evidence"]
    alike = place + cells["twin_text"].str.replace(r',?"shard":"\w+"', "", regex=True)
    whole = {text: key for key, text in alike[cells["shard"] == UNSHARDED].items()}
    others = alike[(cells["shard"] != UNSHARDED) & (cells["num_ranks"] > 1)]
    return {key: whole[text] for key, text in others.items() if text in whole}


def verdict(rows: pd.DataFrame) -> str:
    """Per training with a shard, on its most ranks: the state and throughput that it keeps, and whether that pays."""
    is_whole = rows["shard"] == UNSHARDED
    whole, kept = rows.loc[is_whole, "state_bytes"].max(), rows[~is_whole & rows["state_bytes"].notna()]
    if pd.isna(whole) or kept.empty:
        return ""
    parts = []
    for row in kept.to_dict("records"):
        limits = (100 / row[f"slowdown{end}"] for end in ("", "_high", "_low"))
        kept_rate = with_limits(*limits, write=digits(0), unit=" %")
        text = f"{row['curve']} keeps {100 * row['state_bytes'] / whole:.0f} % of the state"
        parts.append(f"{text} and {kept_rate} of the throughput" if kept_rate else text)
    slow, fast = (kept[f"slowdown_{end}"] for end in ("low", "high"))
    room = f"only where {size_text(kept['state_bytes'].min())} of state fit and {size_text(whole)} do not"
    pays = "in time and in memory" if (fast < 1).any() else room if (slow > 1).all() else "in memory"
    known = f"Sharding pays here {pays}." if slow.notna().any() else "Whether that pays in time is not known."
    return f"{rows['training'].iloc[0]}, {plural(rows['num_ranks'].iloc[0], 'rank')}: {'; '.join(parts)}. {known}"


def sharded(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of backends with a sharded training in their family, if they have several numbers of ranks."""
    group = frame["family"].astype(str) + frame["backend"]
    is_sharded = group.isin(group[frame["shard"] != UNSHARDED]) & frame["state_bytes"].notna()
    return on_several_ranks(frame[is_sharded])


def draw_state(rows: pd.DataFrame, axes: theme.Axes) -> None:
    """State of a rank over ranks; dotted, that of 1 rank over the ranks."""
    for label, own, look in theme.curves(rows):
        axes.plot(own["num_ranks"], own["state_bytes"] / 2**20, label=label, **look)
    ranks = np.unique(rows["num_ranks"])
    whole = rows.loc[rows["num_ranks"] == ranks[0], "state_bytes"].max() / 2**20
    axes.plot(ranks, whole * ranks[0] / ranks, ":", color="grey", label="all sharded")
    theme.rank_axis(axes, rows)
    axes.set(ylim=(0, None), ylabel="state of a rank [MiB]")
    axes.legend()


MIB: dict[str, Any] = {"unit": "MiB", "factor": 2.0**-20}
GIB: dict[str, Any] = {"unit": "GiB", "factor": 2.0**-30, "write": digits(2), "is_detail": True}
FINDING = Finding(
    name="memory",
    title="Memory",
    compute=memory,
    columns={
        **PLACE,
        **{f"{part}_bytes": Column(f"{part}, largest rank", part, **MIB) for part in PARTS},
        **{f"expected_{part}_bytes": Column(f"{part} by weights, optimizer and shard") for part in PARTS},
        "state_bytes": Column("all of these that the framework tells"),
        "expected_state_bytes": Column("all of these as they should be", "expected", **MIB),
        SENT: Column("sent by a rank in a step, median launch", "sent per step", **MIB),
        "slowdown": Column("step over that without sharding", "step vs unsharded", write=digits(2)),
        **{name: Column(about, label, **GIB) for name, (label, about) in zip(MEMORY, PEAKS, strict=True)},
    },
    sentence=lambda frame: each_said(frame, verdict),
    drawings=(Drawing(name="memory", draw=draw_state, rows=sharded, about="State of a rank over ranks."),),
)
