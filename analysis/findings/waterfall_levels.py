"""The levels of a waterfall: seconds per step of a training and of its controls, in the blocks that all of them have.

A level that the waterfall needs must be there; one that refines it is left out where it would leave too few blocks. The
base case may have run in another job: then a chain of trainings leads to it, or it is unpaired. `waterfall` has the
picture of the levels and of the parts between them.

Nobody waits for samples longer than fetching them takes. So where fetching alone was measured (control `loader`), the
input stall lies between minus what 1 rank and plus what N ranks need for it, whatever noise the difference of four
levels has; what it loses or gains by that is counted as sharing the machine, and the sum of the two stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlscale.analysis.findings.scaling import links
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, NONE, Floats, Interval, known, ratio, t_interval
from dlscale.benchmarks.records.record import Record

Terms = dict[str, int]  # a sum of levels, each with its factor
STALL: Terms = {"mean": 1, "ideal": -1, "ideal_resident": 1, "resident": -1}  # of the input stall by itself
# Fields that a case on 1 rank shares with the base case; then its batch, data and rows.
ALIKE = [
    *("system", "workload", "preset", "framework", "environment", "precision", "compiled", "device", "evidence"),
    *("cores_per_rank", "threads_per_rank", "backend", "num_ranks", "target", "learning_rate"),
    *("local_batch", "data", "split"),
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Logarithms of each level's seconds per step by block.

    `near` are over level "measured", in its blocks; `far` are those of the base case in other blocks, over the far end
    of a chain of trainings that leads there. `apart` is its near end over "measured", `between` are its further steps;
    without a chain, far levels and `apart` are over 1 s. `step` is the logarithm of the measured step. `bound` are the
    limits of the input stall as shares of that step, if they were measured.
    """

    near: Mapping[str, Floats]
    apart: Floats
    step: float
    blocks: Sequence[str]
    far: Mapping[str, Floats] = field(default_factory=dict)
    between: Sequence[Floats] = ()
    is_chained: bool = False
    bound: tuple[float, float] | None = None
    notes: Sequence[str] = ()

    @property
    def known(self) -> set[str]:
        """The levels that have values."""
        return {*self.near, *self.far}

    @cached_property
    def _typical(self) -> dict[str, float]:
        """Each level over the measured step, of geometric means."""
        apart = sum(float(logs.mean()) for logs in (self.apart, *self.between))
        means = {name: logs.mean() for name, logs in self.near.items()}
        means |= {name: logs.mean() + apart for name, logs in self.far.items()}
        return {name: math.exp(mean) for name, mean in means.items()}

    def efficiency(self) -> Interval:
        """The ideal over the measured step: paired by block, chained, or unpaired."""
        return self._interval({"ideal": 1.0}).mapped(np.exp)

    def share(self, terms: Terms, *, level: float = LEVEL) -> Interval:
        """A sum of levels as a share of the measured step, its interval by block, to first order.

        Its centre is the sum of the levels' ratios to the measured step, so that centres add up as the terms do.
        """
        weights = {name: factor * self._typical[name] for name, factor in terms.items()}
        return self._interval(weights, center=math.fsum(weights.values()), level=level)

    def _interval(
        self, weights: Mapping[str, float], *, center: float | None = None, level: float = LEVEL
    ) -> Interval:
        """The interval of the weighted sum of logarithms, over one group of independent blocks or several."""
        groups = [sum(weight * self.near.get(name, self.apart) for name, weight in weights.items())]
        distant = {name: weight for name, weight in weights.items() if name in self.far}
        if distant:
            groups += [sum(distant.values()) * logs for logs in self.between]
            groups.append(sum(weight * self.far[name] for name, weight in distant.items()))
        own = t_interval([np.asarray(group, float) for group in groups], center=center, level=level)
        return own._replace(method=own.method.replace("unpaired", "chained")) if self.is_chained else own

    def by_block(self, terms: Terms) -> pd.Series:
        """The sum in each block, as a share of the measured step; NaN if a level is far."""
        shares = (factor * np.exp(self.near.get(name, np.nan)) for name, factor in terms.items())
        return pd.Series(sum(shares), self.blocks, dtype=float)

    def bounded(self, terms: Terms, *, level: float = LEVEL) -> Interval:
        """`share` of a sum of parts, with the input stall in it kept within its bound.

        The sum holds the stall -f times if it holds level "resident" f times. Without the stall it is a sum of other
        levels, to which the bound adds its limits: where that is narrower than the sum's own interval, or the stall
        was measured outside of its bound, it counts.
        """
        own, times = self.share(terms, level=level), -terms.get("resident", 0)
        if self.bound is None or not times or not self.known.issuperset(STALL):
            return own
        stall, (low, high) = self.share(STALL, level=level), self.bound
        others = minus(terms, {name: times * factor for name, factor in STALL.items()})
        if not others:
            return stall.mapped(lambda value: np.clip(value, low, high))
        rest = self.share(others, level=level)
        center = rest.center + times * float(np.clip(stall.center, low, high))
        if np.isnan(own.low) or np.isnan(rest.low):
            return own._replace(center=center)
        ends = sorted((times * low, times * high))
        limits = max(own.low, rest.low + ends[0]), min(own.high, rest.high + ends[1])
        if not limits[0] <= center <= limits[1]:  # the stall is outside of its bound for certain
            finite = [end for end in ends if math.isfinite(end)]
            limits = min(center, rest.low + min(finite)), max(center, rest.high + max(finite))
        return own._replace(center=center, low=limits[0], high=limits[1])


def minus(over: Terms, under: Terms) -> Terms:
    """One sum of levels minus another."""
    factors = {name: over.get(name, 0) - under.get(name, 0) for name in {**over, **under}}
    return {name: factor for name, factor in factors.items() if factor}


def levels_of(study: Study) -> dict[str, Levels | str]:
    """For each training over a backend on several ranks its levels, or why there are none."""
    cells = study.trained[study.trained["num_launches"] > 0]
    is_first = (cells["num_ranks"] == 1) & ~cells["is_exchanging"] & cells["control"].isin(["alone", "train"])
    first = cells[is_first]
    alone = dict(zip(first[ALIKE].itertuples(index=False, name=None), first.index, strict=True))
    bases: dict[tuple[Any, ...], str] = {}  # on 1 rank, whatever base the study's efficiencies have
    for key, cell in first[first["control"] == "train"].iterrows():
        bases.setdefault((cell["base_family"], cell["evidence"]), key)
        bases.setdefault((cell["base_family"],), key)
    wide = _wide_frames(study).items()
    seconds = {name: dict(zip(frame, frame.to_numpy().T, strict=True)) for name, frame in wide}
    found: dict[str, Levels | str] = {}
    by_key = cells.to_dict("index")
    for key, cell in by_key.items():
        if cell["control"] == "train" and cell["is_exchanging"] and cell["num_ranks"] > 1:
            family = cell["base_family"]
            ideal = bases.get((family, cell["evidence"])) or bases.get((family,), "")
            found[key] = _levels(study.wide("step_seconds"), key, ideal, by_key, alone=alone, seconds=seconds)
    return found


def _wide_frames(study: Study) -> dict[str, pd.DataFrame]:
    """Seconds per step, blocks x cells: a launch's, its mean rank's and its latest ranks' steps, gathers and halos.

    Of gathers and of exchanges of rows they are those of the rank that spends least in them: who comes last waits
    least, and what others spend beyond that is waiting.
    """

    def make(record: Record) -> Iterator[dict[str, float]]:
        each = {"gathered": record.gather_seconds, "haloed": record.halo_seconds}
        yield {name: min(own) for name, own in each.items() if len(own) == record.case.cell.num_ranks}

    frames = {name: study.wide(f"{name}step_seconds") for name in ("", "mean_", "latest_")}
    launches = study.rows(make, {"gathered": float, "haloed": float})
    for name in ("gathered", "haloed"):
        timed = launches.pivot(index="block", columns="cell", values=name)
        frames[name] = timed.reindex(index=frames[""].index, columns=frames[""].columns)
    return frames


def _levels(
    world: pd.DataFrame,
    key: str,
    ideal: str,
    cells: Mapping[str, Mapping[str, Any]],
    *,
    alone: Mapping[tuple[Any, ...], str],
    seconds: Mapping[str, Mapping[str, Floats]],
) -> Levels | str:
    steps, mean, latest = (seconds[name] for name in ("", "mean_", "latest_"))
    cell, own, ranks = cells[key], steps[key], f"none on {cells[key]['num_ranks']} ranks"
    own_none = cells.get(cell["own_none"], {})
    if not own_none and cell["split"] == 1:  # older records of split samples have no such control
        return f"{ranks} was not measured"
    if not ideal:
        return "none on 1 rank was not measured"
    base, needed, optional, notes = cells[ideal], {"measured": own}, dict[str, Floats](), list[str]()
    if base["evidence"] != cell["evidence"]:
        notes.append(f"none on 1 rank is {base['evidence']}, not {cell['evidence']}")
    num_own = len(known(own))
    if own_none:
        many = cell["own_none"]
        needed["mean"] = mean[many]
        if len(known(latest[many])) == len(known(steps[many])):
            needed["latest"] = latest[many]
        if not len(known(own + mean[many])):
            return f"no block in common with {ranks}"
        if own_none["synthetic"] in cells:
            optional["resident"] = mean[own_none["synthetic"]]
    timed = {name: own - seconds[name][key] for name in ("gathered", "haloed")}
    optional |= {name: values for name, values in timed.items() if len(known(values)) == num_own}
    if cell["scaling_mode"] == "strong" or cell["split"] > 1:
        optional |= {name: steps[one] for name, one in _one_rank(alone, cell, base)}
    scale = cell["rank_work"] / base["rank_work"]
    first = {"ideal": scale * steps[ideal]}
    resident = {"ideal_resident": scale * steps[base["synthetic"]]} if base["synthetic"] in cells else {}
    far: dict[str, Floats] = {}
    path: list[str] = []
    if len(known(sum(needed.values()) + first["ideal"])):
        needed, optional = needed | first, optional | resident
    else:
        path = links(world, cells, key, ideal) or []
        ends, _ = _common(first | ({"link": steps[path[-1]]} if path else {}), resident)
        link = ends.pop("link", np.ones(1))
        far = {name: np.log(values / link) for name, values in ends.items()}
        needed |= {"link": steps[path[0]]} if path else {}
        notes.append(f"no block in common with none on 1 rank, {'chained' if path else 'unpaired'}")
    near, there = _common(needed, optional)
    if left_out := num_own - int(there.sum()):
        notes.append(f"{left_out} of {num_own} blocks left out: a control is missing there")
    measured = near["measured"]
    return Levels(
        apart=np.log(near.pop("link", np.ones(1)) / measured),
        near={name: np.log(values / measured) for name, values in near.items()},
        step=float(np.log(measured).mean()),
        blocks=list(world.index[there]),
        far=far,
        between=[known(np.log(steps[over] / steps[under])) for under, over in pairwise(path)],
        is_chained=bool(path),
        bound=_bound(own, mean, own_none, base, scale),
        notes=notes,
    )


def _one_rank(
    alone: Mapping[tuple[Any, ...], str], cell: Mapping[str, Any], base: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """1 rank of `none` at the local batch of N: with the rows of one and with whole samples, resident and read."""
    for level, split in (("thin", cell["split"]), ("alone", 1)):
        for name, data in ((f"{level}_resident", "synthetic"), (level, cell["data"])):
            own = {**base, "local_batch": cell["local_batch"], "data": data, "split": split}
            if (one := alone.get(tuple(own[field] for field in ALIKE))) is not None:
                yield name, one


def _common(
    needed: Mapping[str, Floats], optional: Mapping[str, Floats]
) -> tuple[dict[str, Floats], NDArray[np.bool_]]:
    """All levels in their common blocks. An optional level is left out if it would leave too few blocks."""
    kept, there = dict(needed), ~np.isnan(sum(needed.values()))
    for name, values in optional.items():
        both = there & ~np.isnan(values)
        if both.sum() >= min(MIN_BLOCKS, there.sum()):
            kept[name], there = values, both
    return {name: values[there] for name, values in kept.items()}, there


def _bound(
    step: Floats,
    mean: Mapping[str, Floats],
    own_none: Mapping[str, Any],
    base: Mapping[str, Any],
    scale: float,
) -> tuple[float, float] | None:
    """Shares of the measured step that fetching takes on 1 rank, negative, and on N; None if not measured on N.

    Both are the outer ends of their intervals, -inf if fetching was not measured on 1 rank.
    """
    loaders = [(base.get("loader", ""), scale), (own_none.get("loader", ""), 1.0)]
    shares = [ratio(factor * mean[one], step) if one in mean else NONE for one, factor in loaders]
    low, high = (each.center if np.isnan(each.high) else each.high for each in shares)
    return None if np.isnan(high) else (-math.inf if np.isnan(low) else -low, high)
