"""The launches of one cell, and what they say: its rate, its efficiency against a base case, its flaws."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from dlscale.analysis.family import Family, base_cell, family_of
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, Interval, block_ratio, median_interval
from dlscale.benchmarks.record import Cell

BASE = "base case"  # the method of an efficiency that is 1 by definition
MAX_START_SKEW = 0.01  # of a window
MIN_WINDOWS = 10  # per launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """A cell's rows of the tidy frame: one per case, good or not."""

    cell: Cell
    family: Family
    cases: pd.DataFrame

    @classmethod
    def of(cls, cell: Cell, *, system: str, cases: pd.DataFrame) -> Launches:
        """With the family that follows from the cell."""
        return cls(cell=cell, family=family_of(cell, system=system), cases=cases)

    @property
    def good(self) -> pd.DataFrame:
        """Those that gave a number."""
        return self.cases[self.cases["good"]]

    @property
    def kinds(self) -> list[str]:
        """Kinds of evidence that gave numbers; of the failed launches, if all failed."""
        return sorted((self.good if len(self.good) else self.cases)["evidence"].unique())

    def only(self, kind: str) -> Launches:
        """Its good launches of one kind of evidence."""
        good = self.good
        return Launches(cell=self.cell, family=self.family, cases=good[good["evidence"] == kind])

    def by_block(self, column: str) -> dict[Hashable, float]:
        """(study, block) -> the launch's value in a column of the tidy frame."""
        cases = self.cases
        blocks = zip(cases["study"], cases["block"], strict=True)
        return dict(zip(blocks, cases[column].tolist(), strict=True))

    @property
    def exchange(self) -> str:
        """How gradients were exchanged: "overlapped", "in line", "mixed" if launches differ; empty if unknown."""
        found = sorted(set(self.good["exchange"]) - {""})
        return found[0] if len(found) == 1 else "mixed" if found else ""

    @property
    def peak_rss_bytes(self) -> int | None:
        """The most memory of any rank in any launch that gave a number; None if none is known."""
        peak = self.good["peak_rss_bytes"].max()
        return None if pd.isna(peak) else int(peak)


def throughput(launches: Launches, notes: list[str]) -> Interval | None:
    """Samples per second over all ranks: the batch over the median cost, with that median's interval."""
    if launches.cases.empty:
        return None
    interval = median_interval(launches.cases["seconds_per_step"].tolist()).rate(launches.cell.global_batch)
    if interval.low is None:
        notes.append(f"fewer than 6 launches: no {100 * LEVEL:.0f} % interval of samples/s")
    return interval


def efficiency(
    launches: Launches, relatives: Iterable[Launches], *, same_backend: bool, notes: list[str]
) -> Interval | None:
    """(T(p) / p) / (T(1) / 1) against a base case of the same family: (a), or (b) with `same_backend`.

    `launches` are good ones of one kind of evidence. Why there is no efficiency, or what is wrong with it,
    goes to `notes`.
    """
    cell = launches.cell
    if cell.control != "train" or launches.cases.empty:
        return None
    family = {one.cell.id: one for one in relatives if one.family == launches.family}
    name = f"(b), {cell.backend} on 1 rank" if same_backend else "(a), none on 1 rank"
    base = base_cell(cell, [one.cell for one in family.values()], same_backend=same_backend)
    if base is None:
        notes.append(f"no base case {name}: not measured")
        return None
    if base == cell:
        return Interval(center=1.0, low=None, high=None, level=LEVEL, method=BASE, n=len(launches.cases))
    reference = family[base.id]
    if reference.good.empty:
        notes.append(f"no base case {name}: every launch failed")
        return None
    kind = launches.kinds[0]
    if kind not in reference.kinds:
        notes.append(f"base case {name}, is {reference.kinds[0]}, not {kind}")
        kind = reference.kinds[0]
    ratio = block_ratio(_rank_rates(launches), _rank_rates(reference.only(kind)))
    if "unpaired" in ratio.method:
        notes.append(f"unpaired with base case {name}: no common block")
    if ratio.low is None:
        notes.append(f"fewer than {MIN_BLOCKS} blocks with base case {name}: no interval")
    return ratio


def _rank_rates(launches: Launches) -> dict[Hashable, float]:
    """Samples per second and rank of each block."""
    rates = launches.by_block("samples_per_second")
    return {block: rate / launches.cell.num_ranks for block, rate in rates.items()}


def flaws(launches: Launches) -> Iterator[str]:
    """What a reader must know about a cell before believing its number."""
    cases, good = launches.cases, launches.good
    if launches.cell.control == "whole_machine":
        yield f"a reference, never a base case: 1 rank on {launches.cell.cores_per_rank} cores"
    if num_servers := launches.cell.num_servers:
        yield f"{num_servers} server{'s' * (num_servers > 1)} besides the ranks"
    if good.empty:
        yield "every launch failed"
    if num_unsteady := len(good) - int(good["steady"].sum()):
        yield f"not steady in {num_unsteady} of {len(good)} launches"
    if cases["oversubscribed"].any():
        yield "oversubscribed: more ranks x cores than the machine has"
    if len(good) and (skew := float(good["start_skew"].median())) > MAX_START_SKEW:
        yield f"ranks start {skew:.0%} of a window apart"
    if len(good) and (num_windows := int(good["num_windows"].min())) < MIN_WINDOWS:
        yield f"a launch of only {num_windows} windows"
    if retried := int((good["num_attempts"] > 1).sum()):
        yield f"{retried} launch{'es' * (retried > 1)} repeated after other attempts"
    if num_skipped := int(good["num_skipped"].sum()):
        num_ranks = int(good["num_skipping"].max())  # shards and their order are the same in every launch
        yield (
            f"{num_skipped} unreadable sample{'s' * (num_skipped > 1)} left out on {num_ranks} "
            f"rank{'s' * (num_ranks > 1)}"
        )
