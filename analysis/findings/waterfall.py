"""The parts of the speed that each backend loses, as far as the measured controls separate them, and the largest.

The loss is 1 - efficiency against 1 rank without communication. Parts are shares of the measured step, which makes them
percents of the ideal speed: with the ideal step i and the measured step m, the loss is 1 - i / m = (m - i) / m. Levels
form a staircase, in seconds per step, and every part is the height of a stair:

    ideal      1 rank of `none`, per sample, times the local batch of N ranks
      | batch effect            the local batch is smaller than the base case's (strong scaling only)
    alone      1 rank of `none` at the local batch of N ranks
      | thin blocks             rows of a sample take longer than their share of it (samples that ranks share only)
    thin       1 rank of `none` at that batch, with the rows of one of N ranks
      | sharing the machine     N ranks share memory, caches and power, and compute more slowly
    resident   N ranks of `none` on tensors in memory, and what 1 rank waits for its input
      | input stall             N ranks wait longer for their samples than 1 rank does
    mean       N ranks of `none`: the average rank's step
      | stragglers              every step has a latest rank, and all others wait for it
    latest     N ranks of `none`: mean over steps of the latest rank's
      | communication and waiting   the rest
    gathered   N ranks over the backend, less what the last rank to come spends in gathers (sharded weights only)
      | gathering weights
    haloed     likewise, less what it spends in exchanging rows (samples that ranks share only)
      | halo exchange
    measured   N ranks over the backend

If the control of a stair was not measured, its part is not guessed but merged with the next one, under both names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis import theme
from dlscale.analysis.finding import (
    COUNT,
    ENDS,
    MILLISECONDS,
    PLACE,
    SHARE,
    Column,
    Drawing,
    Finding,
    frame_of,
    on_most_ranks,
)
from dlscale.analysis.findings.cautions import is_busy
from dlscale.analysis.findings.waterfall_levels import Levels, Terms, levels_of, minus
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, Interval, half_width
from dlscale.analysis.text import digits, interval, listed, plural

BATCH, THIN, SHARING, INPUT = "batch effect", "thin blocks", "sharing the machine", "input stall"
STRAGGLERS, WAITING = "stragglers", "communication and waiting"
GATHERING, HALOS = "gathering weights", "halo exchange"
NAMES = (BATCH, THIN, SHARING, INPUT, STRAGGLERS, WAITING, GATHERING, HALOS)  # in the order of the staircase
COLORS = dict(zip(NAMES, theme.PHASES, strict=True))
SEPARATING = {  # levels, the part that ends at each, and what measures it
    "mean": (INPUT, "none on the same number of ranks, and of ranks per sample"),
    "alone": (BATCH, "1 rank at the local batch (control alone)"),
    "thin": (THIN, "1 rank with the rows of one rank (control alone)"),
    "ideal_resident": (SHARING, "resident data on 1 rank (control synthetic)"),
    "resident": (SHARING, "resident data on the same number of ranks of none (control synthetic)"),
    "alone_resident": (BATCH, "resident data on 1 rank at the local batch (control alone)"),
    "latest": (STRAGGLERS, "stamps of steps of none, and ranks that wait for each other"),
}
MOST_LAUNCHES = 99  # more is too many to separate two losses
LEAD_LEVEL = 1 - 2 * (1 - LEVEL)  # of a two-sided interval whose lower limit holds with 95 %
MOST_NAMED = 8  # curves in words
LABELLED = 5.0  # percent of the ideal speed: wide enough for its number
NUMBERS = [name + end for name in ("efficiency", "loss", "seconds") for end in ENDS]
TEXTS = ["part", "verdict", "reason", "notes"]


def staircase(cell: Mapping[str, Any], known: Set[str], *, is_together: bool) -> dict[str, Terms]:
    """The parts that the known levels allow, from ideal to measured: each one's name and its sum of levels.

    A study that does not read data has no input stall; ranks that do not step together do not wait for each other. The
    terms of all parts add up to measured - ideal.
    """
    reads, is_resident = cell["data"] != "synthetic", {"ideal_resident", "resident"} <= known
    is_smaller = cell["scaling_mode"] == "strong" and cell["local_batch"] < cell["global_batch"]
    # The levels where stairs end.
    ends = {BATCH: "alone"} if is_smaller else {}
    ends |= {THIN: "thin"} if cell["split"] > 1 else {}
    # With a control of what 1 rank computes but not of its input, the input stall may be in either of two stairs.
    is_apart = is_resident and all(end not in known or f"{end}_resident" in known for end in ends.values())
    ends |= {SHARING: "" if is_apart else "unknown", INPUT: "mean"} if reads else {SHARING: "mean"}
    ends[STRAGGLERS] = "latest" if is_together else "unknown"
    last = {HALOS: "haloed"} if "haloed" in known else {GATHERING: "gathered"} if "gathered" in known else {}
    ends |= {WAITING: next(iter(last.values()), "measured"), **dict.fromkeys(last, "measured")}
    stairs: dict[str, Terms] = {}
    names: list[str] = []
    below: Terms = {"ideal": 1}
    for name, level in ends.items():
        names.append(name)
        resident = f"{level}_resident" if level else "resident"
        if reads and is_resident and resident in known and (level in known or not level):
            end = {"ideal": 1, "ideal_resident": -1, resident: 1}  # and what 1 rank waits for its input
        elif level in known:
            end = {level: 1}
        else:
            continue
        stairs[" + ".join(names)] = minus(end, below)
        names, below = [], end
    return stairs


def stairs_of(study: Study) -> dict[str, tuple[Levels, dict[str, Terms]] | str]:
    """For each training over a backend on several ranks its levels and its parts, or why there are none."""
    together, cells = study.good.groupby("cell")["is_together"].all(), study.cells.to_dict("index")
    return {
        key: levels
        if isinstance(levels, str)
        else (levels, staircase(cells[key], levels.known, is_together=together[key]))
        for key, levels in study.once(levels_of).items()
    }


def waiting_shares(study: Study) -> pd.DataFrame:
    """Communication and waiting over the measured step, blocks x cells; NaN where it is not known by itself."""
    known = {key: found for key, found in study.once(stairs_of).items() if not isinstance(found, str)}
    shares = {key: own.by_block(stairs[WAITING]) for key, (own, stairs) in known.items() if WAITING in stairs}
    return pd.DataFrame(shares, dtype=float)


def waterfalls(study: Study) -> pd.DataFrame:
    """One row per part of each training over a backend on several ranks; one with a `reason` where there are none."""
    rows: list[dict[str, Any]] = []
    for key, found in study.once(stairs_of).items():
        parts = [{"reason": found}] if isinstance(found, str) else _parts(*found)
        rows += ({"cell": key, **row} for row in parts)
    frame = frame_of(rows, "cell", *NUMBERS, *TEXTS, "is_separated", "launches_needed")
    types = dict.fromkeys(NUMBERS, float) | dict.fromkeys(TEXTS, object)
    return frame.astype(types).fillna(dict.fromkeys(TEXTS, "")).assign(is_busy=is_busy(study))


def _parts(levels: Levels, stairs: Mapping[str, Terms]) -> Iterator[dict[str, Any]]:
    losses = {name: levels.bounded(terms) for name, terms in stairs.items()}
    largest = max(losses, key=lambda name: losses[name].center)
    # A lead is tested at one-sided 5 %, and all tests must agree. To be wrong, a part must be shown to exceed the truly
    # largest one, so there is no correction for the number of parts (Gutmann and Maymin 1987).
    leads = {
        name: levels.bounded(minus(stairs[largest], terms), level=LEAD_LEVEL)
        for name, terms in stairs.items()
        if name != largest
    }
    rivals = [name for name, lead in leads.items() if not lead.low > 0]
    is_certain = any(loss.low > 0 for loss in losses.values())
    step, efficiency = math.exp(levels.step), levels.efficiency()
    merged = {name for names in stairs for name in names.split(" + ") if " + " in names}
    own = [text for level, (part, text) in SEPARATING.items() if part in merged and level not in levels.known]
    notes = [*levels.notes, *([f"not separated without {listed(own)}"] if own else [])]
    for name, loss in losses.items():
        verdict = "smaller" if is_certain else ""
        if is_certain and name in (largest, *rivals):
            verdict = "not separable" if rivals else "largest"
        low, high = levels.bound if levels.bound and name == INPUT else (np.nan, np.nan)
        yield {
            **efficiency.columns("efficiency"),
            "ideal_seconds": efficiency.center * step,
            "measured_seconds": step,
            "launches_needed": _launches_needed(leads.values()) if rivals else np.nan,
            "is_separated": not rivals,
            "part": name,
            **loss.columns("loss"),
            **loss.times(step).columns("seconds"),
            "loss_by_controls": levels.share(stairs[name]).center,
            "bound_low": low if np.isfinite(low) else np.nan,
            "bound_high": high,
            "verdict": "gain" if loss.center <= 0 else verdict,
            "notes": "; ".join(notes),
        }


def _launches_needed(leads: Iterable[Interval]) -> float:
    """About how many launches show that all leads are above 0, if leads and noise stay; NaN if more than 99."""
    counts, needed = range(MIN_BLOCKS, MOST_LAUNCHES + 1), []
    for lead in leads:
        if np.isnan(lead.low) or lead.center <= 0:
            return np.nan
        spread = (lead.center - lead.low) / half_width(lead.n, level=LEAD_LEVEL)
        enough = (n for n in counts if spread * half_width(n, level=LEAD_LEVEL) < lead.center)
        needed.append(next(enough, np.nan))
    return float(np.max(needed))


# In words and drawn


def largest_loss(parts: pd.DataFrame) -> str:
    """`communication and waiting 32.0 % [30.1, 33.9]` of one training, with what cannot be told from it."""
    first = parts.iloc[0]
    if first["reason"]:
        return f"not known: {first['reason']}"
    if not first["efficiency_n"] >= MIN_BLOCKS:
        return "too few launches to tell"
    row = parts.loc[parts["loss"].idxmax()]
    text = f"{row['part']} {interval(row, 'loss', factor=100, write=digits(1), unit=' %')}"
    if not parts["verdict"].isin(["largest", "not separable"]).any():
        lost = "no single cause" if first["efficiency_high"] < 1 else "no loss"
        return f"{lost} is significant; largest: {text}"
    rivals = parts[(parts["verdict"] == "not separable") & (parts["part"] != row["part"])]["part"]
    if len(rivals):
        text += f"; not separable from {' or '.join(rivals) if len(rivals) < 3 else f'{len(rivals)} other causes'}"
    elif not row["is_separated"]:
        text += f"; {plural(row['loss_n'], 'launch')} do not show that no other is as large"
    needed = row["launches_needed"]
    return f"{text} (about {needed:.0f} launches would tell)" if needed > row["loss_n"] else text


def sentence(frame: pd.DataFrame) -> str:
    """The largest loss of each curve on the most ranks; of the slowest of each training where there are many."""
    parts = on_most_ranks(frame[frame["target"] == ""])  # trainings to a target have a separate answer
    if parts.empty or parts["is_busy"].any():  # then nothing is claimed, which cautions say
        return ""
    texts = {key: largest_loss(rows) for key, rows in parts.groupby("cell", sort=False)}
    if len(set(texts.values())) == 1:
        return f"Largest loss: {next(iter(texts.values()))}."
    first = parts.drop_duplicates("cell")
    if len(first) > MOST_NAMED:
        first = first.sort_values("efficiency", kind="stable").drop_duplicates("family")
    several, ranks = first["training"].nunique() > 1, sorted(set(first["num_ranks"]))
    lines = [f"Largest loss on {listed(map(str, ranks))} ranks, of the ideal speed:"]
    for row in first.to_dict("records"):
        what = f"{row['training']}, {row['name']}" if several else row["name"]
        lines.append(f"  {what}: {texts[row['cell']]}")
    return "\n".join(lines)


def draw(rows: pd.DataFrame, axes: theme.Axes) -> None:
    """A strip per curve, what is kept of the ideal speed at the left, then what is lost; gains hang below it."""
    seen: dict[str, Any] = {}
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "zorder": 4}
    start = max(100.0, *axes.get_xlim())
    for place, (_, parts) in enumerate(rows.groupby("cell", sort=False)):
        left = 100 * (1 - parts["loss"].clip(upper=0).sum())
        start = max(start, left)
        axes.text(0, place - 0.3, parts["name"].iloc[0], va="bottom", fontsize=7)
        for part in parts.to_dict("records"):
            name, loss = part["part"], 100 * part["loss"]
            is_largest = part["verdict"] in ("largest", "not separable")
            look: dict[str, Any] = {"facecolor": COLORS[name.split(" + ")[0]]}
            look["edgecolor"] = "black" if is_largest else "white"
            look |= {"hatch": "xxx"} if loss < 0 else {"hatch": "///"} if " + " in name else {}
            if loss < 0:
                bar = axes.barh(place + 0.36, loss, 0.12, left=left, **look)
            else:
                bar = axes.barh(place, -loss, 0.56, left=left, zorder=2 + is_largest, linewidth=0.8, **look)
                left -= loss
            seen.setdefault(f"{name}: gain" if loss < 0 else name, bar)
            bar[0].set_gid(f"tip:{name}: {interval(part, 'loss', factor=100, write=digits(1), unit=' %')}")
            if loss >= LABELLED:
                axes.text(left + loss / 2, place, f"{loss:.0f}", **middle)
        axes.barh(place, -left, 0.56, left=left, color=theme.KEPT, alpha=0.25)
        axes.text(left / 2, place, f"{left:.0f} % kept", **middle)
    top = -1.1 if len(seen) < 5 else -1.5  # above it are one or two rows of the legend
    axes.set(ylim=(max(rows["cell"].nunique() - 0.5, axes.get_ylim()[0]), top), xlim=(0, start), yticks=[])
    axes.set_xlabel(f"of the ideal speed [%], on {plural(rows['num_ranks'].iloc[0], 'rank')}")
    axes.legend(seen.values(), seen, loc="upper left", ncols=4, handlelength=1.2, columnspacing=1)


COLUMNS = {
    **PLACE,
    "part": Column("part of the loss, or several that no control separates", "part"),
    "loss": Column("share of the ideal speed that is lost; parts add up", "lost", **SHARE),
    "seconds": Column("the loss per step", "per step", **MILLISECONDS),
    "verdict": Column("largest, not separable, smaller or gain; empty: no loss is significant", "verdict"),
    "efficiency": Column("ideal over measured step: what is left of the ideal speed"),
    "ideal_seconds": Column("per step: 1 rank without communication, at the same work per rank"),
    "measured_seconds": Column("per step, geometric mean over blocks"),
    "loss_by_controls": Column("the loss before the input stall is kept within its bound"),
    "bound_low": Column("least input stall: minus what fetching takes 1 rank (control loader)"),
    "bound_high": Column("most input stall: what fetching takes all ranks (control loader)"),
    "launches_needed": Column("launches that would about separate the largest loss"),
    "loss_n": Column("blocks of launches", "n", write=COUNT),
    "notes": Column("what is doubtful or could not be separated"),
    "reason": Column("why there are no parts", "reason"),
}
FINDING = Finding(
    name="waterfall",
    title="Where the speed goes",
    compute=waterfalls,
    # One screen has the sentence alone.
    columns={name: replace(column, is_detail=True) for name, column in COLUMNS.items()},
    sentence=sentence,
    drawings=(
        Drawing(
            name="waterfall",
            draw=draw,
            rows=lambda frame: on_most_ranks(frame[frame["reason"] == ""]),
            size=(5.8, 2.5),
            left=0.15,
            about="Parts of the ideal speed that each backend loses on the most ranks; black edges: the largest, or "
            "not separable from it.",
        ),
    ),
    on_screen=True,
    is_answer=True,
)
