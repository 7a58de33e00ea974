"""Does a network find more signal than a cut-based selection, at the same background?

The selection lets some share of the background pass. The network gets the loosest threshold that lets no more of it
pass, and the two signal efficiencies are compared. Everything is resampled by the bootstrap, slice by slice:
background is generated in slices s (pT ranges), about as many events of each, though their cross sections sigma_s
fall by eight orders of magnitude.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dlscale.models.quality.roc import ROUNDING, checked_events, effective_sample_size

Counts = NDArray[np.int64]


class Measurement(NamedTuple):
    """The cut, and the score at the loosest threshold that lets no more background pass than the cut."""

    selection_signal: float  # efficiencies
    selection_background: float
    network_signal: float
    network_background: float
    num_accepted: int  # background events above the threshold, the first ones of the sorted events


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StratifiedEvents:
    """B background events and S signal events, each kind by descending score, and K slices."""

    slices: Counts  # (B,) slice of each event
    share: NDArray[np.float64]  # (B,) what the event adds to a background efficiency
    passes: NDArray[np.bool_]  # (B,) the cut
    first: Counts  # (B,) the first event with the same score
    signal_ahead: Counts  # (B,) signal events with a higher score
    signal_passes: NDArray[np.bool_]  # (S,) the cut
    members: tuple[Counts, ...]  # per slice, its events
    num_generated: Counts  # (K,)
    cross_section_share: NDArray[np.float64]  # (K,) sigma_s / sum of sigma_s

    def measure(self, background: Counts, signal: Counts) -> Measurement:
        """Efficiencies of both, if the events were there `background` (B,) and `signal` (S,) times.

        The loosest threshold that exists is taken, without interpolation; equal scores pass or fail together.
        """
        efficiency = background * self.share
        allowed = float(efficiency @ self.passes)
        summed = np.cumsum(efficiency)
        # The event that would be too much; it fails with all of its score.
        refused = int(np.searchsorted(summed, allowed * (1 + ROUNDING), side="right"))
        num_accepted, ahead = len(summed), len(signal)
        if refused < len(summed):
            num_accepted, ahead = int(self.first[refused]), int(self.signal_ahead[refused])
        num_signal = signal.sum()
        return Measurement(
            selection_signal=float(signal @ self.signal_passes / num_signal),
            selection_background=allowed,
            network_signal=float(signal[:ahead].sum() / num_signal),
            network_background=float(summed[num_accepted - 1]) if num_accepted else 0.0,
            num_accepted=num_accepted,
        )

    def resample(self, rng: np.random.Generator) -> tuple[Counts, Counts]:
        """How often each background and signal event is drawn, if as many are drawn as were generated.

        Drawing is with replacement, within each slice and within the signal. An event that was generated but
        is not here can be drawn as well.
        """
        background = np.zeros(len(self.slices), dtype=np.int64)
        for members, num_generated in zip(self.members, self.num_generated, strict=True):
            if len(members):
                num_drawn = rng.binomial(num_generated, len(members) / num_generated)
                background[members] = _draw(rng, len(members), num_drawn)
        return background, _draw(rng, len(self.signal_passes), len(self.signal_passes))

    def num_per_slice(self, chosen: NDArray[np.bool_]) -> Counts:
        """Number of the background events `chosen` (B,) in each slice (K,)."""
        return np.bincount(self.slices[chosen], minlength=len(self.members))


def _draw(rng: np.random.Generator, num_events: int, num_drawn: int) -> Counts:
    return np.bincount(rng.integers(num_events, size=num_drawn), minlength=num_events)


def stratify(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    passes: ArrayLike,
    slices: ArrayLike,
    cross_sections_mb: ArrayLike,
    num_generated: ArrayLike | None = None,
) -> StratifiedEvents:
    """The checked events; `selection.compare_with_selection` describes the arguments. Raises ValueError."""
    score, is_signal = checked_events(scores, labels)
    cut, slice_ = np.asarray(passes), np.asarray(slices)
    if cut.shape != score.shape or slice_.shape != score.shape:
        raise ValueError(f"{cut.shape} selection flags and {slice_.shape} slices for {score.shape} scores")
    if not np.all((cut == 0) | (cut == 1)):
        raise ValueError("a selection flag must be 1 (passes) or 0")
    if is_signal.all() or not is_signal.any():
        raise ValueError(f"need signal and background, got {is_signal.sum()} signal of {len(score)} events")
    sigma = np.asarray(cross_sections_mb, dtype=np.float64)
    if sigma.ndim != 1 or not np.all(np.isfinite(sigma) & (sigma > 0)):
        raise ValueError(f"cross sections must be positive, one per slice, got {sigma}")
    slice_, cut = slice_.astype(np.int64), cut.astype(np.bool_)

    background = np.flatnonzero(~is_signal)
    background = background[np.argsort(-score[background], kind="stable")]
    signal = np.flatnonzero(is_signal)
    signal = signal[np.argsort(-score[signal], kind="stable")]
    if np.any((slice_[background] < 0) | (slice_[background] >= len(sigma))):
        raise ValueError(f"slices of background events must be 0 to {len(sigma) - 1}")
    num_present = np.bincount(slice_[background], minlength=len(sigma))
    generated = num_present if num_generated is None else np.asarray(num_generated).astype(np.int64)
    if generated.shape != sigma.shape or np.any(generated < np.maximum(num_present, 1)):
        raise ValueError(
            f"{generated} events generated in {len(sigma)} slices, of which {num_present} are here: each "
            "slice needs one at least, and no fewer than are here"
        )
    cross_section_share = sigma / sigma.sum()
    return StratifiedEvents(
        slices=slice_[background],
        share=(cross_section_share / generated)[slice_[background]],
        passes=cut[background],
        first=np.searchsorted(-score[background], -score[background], side="left"),
        signal_ahead=np.searchsorted(-score[signal], -score[background], side="left"),
        signal_passes=cut[signal],
        members=tuple(np.flatnonzero(slice_[background] == s) for s in range(len(sigma))),
        num_generated=generated,
        cross_section_share=cross_section_share,
    )


LEVEL = 0.95
# With fewer, intervals are too narrow: in simulated samples without a true difference, where 2.5 % should, 24 % of the
# intervals lay above 0 with one passing event on average, 8 % with two, and 3 to 7 % with four or more.
MIN_EFFECTIVE_PASSING = 5.0
BETTER = "better"
WORSE = "worse"
NO_DIFFERENCE = "no difference shown"
UNDECIDABLE = "not decidable"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionComparison:
    """A network's score against a selection, at the background efficiency of the selection.

    Efficiencies are shares of collisions (stratified.py). Intervals are (low, high), 95 %, percentiles of a
    bootstrap within slices and within the signal, in which selection and threshold are measured anew.
    """

    selection_signal_efficiency: float
    selection_background_efficiency: float
    selection_background_interval: tuple[float, float]
    selection_background_limit: float  # upper, 95 %; also counts what slices without a passing event may hide
    network_signal_efficiency: float
    network_background_efficiency: float  # at most the selection's, on these events
    network_background_unseen: float  # the same on events that had no part in the choice of the threshold
    difference_interval: tuple[float, float]  # of the signal efficiencies
    num_passing: int  # background events that pass the selection
    effective_passing: float  # equal ones that would scatter as much
    num_background: int
    effective_background: float
    blind_slices: tuple[int, ...]  # none passes the selection, and one alone would be more than all that do
    num_replicates: int

    @property
    def difference(self) -> float:
        """Signal efficiency of the network minus that of the selection."""
        return self.network_signal_efficiency - self.selection_signal_efficiency

    @property
    def background_rejection(self) -> float:
        """The working point: 1 - background efficiency of the selection."""
        return 1 - self.selection_background_efficiency

    @property
    def same_background(self) -> bool:
        """Whether the threshold keeps its background efficiency on events that it was not chosen by.

        A threshold is chosen so that the events at hand stay below it. Where a single one stands for more
        than all background that may pass, it is placed just above that one by chance, and new events would
        exceed it. "Keeps" means: stays within the interval of the selection's own background efficiency.
        """
        return self.network_background_unseen <= self.selection_background_interval[1]

    @property
    def verdict(self) -> str:
        """`BETTER` or `WORSE` if the interval of the difference excludes 0, else `NO_DIFFERENCE`.

        `UNDECIDABLE` if no background event passes the selection, for then there is no working point; and
        instead of `BETTER` if fewer than `MIN_EFFECTIVE_PASSING` do, or if the network would not keep to that
        background: both favour the network, so `WORSE` stands in spite of them.
        """
        low, high = self.difference_interval
        if self.num_passing == 0:
            return UNDECIDABLE
        if high < 0:
            return WORSE
        if low <= 0:
            return NO_DIFFERENCE
        enough = self.effective_passing >= MIN_EFFECTIVE_PASSING
        return BETTER if enough and self.same_background else UNDECIDABLE

    def sentence(self) -> str:
        """The result in plain words, with its interval and effective sample sizes."""
        low, high = self.difference_interval
        if self.num_passing == 0:
            background = "that rejects every background event here"
        else:
            background = f"at the background efficiency {self.selection_background_efficiency:.3g}"
        parts = [
            f"signal efficiency {self.network_signal_efficiency:.3f} against "
            f"{self.selection_signal_efficiency:.3f} of the selection, {background}: difference "
            f"{self.difference:+.3f}, {LEVEL:.0%} interval [{low:+.3f}, {high:+.3f}] from "
            f"{self.num_replicates} stratified bootstrap replicates: {self.verdict}",
            f"{self.num_passing} background events pass the selection, worth {self.effective_passing:.1f} "
            f"equal ones; all {self.num_background} are worth {self.effective_background:.1f}",
        ]
        if 0 < self.effective_passing < MIN_EFFECTIVE_PASSING:
            parts.append(f'"{BETTER}" needs the worth of {MIN_EFFECTIVE_PASSING:.0f}; add background events')
        elif self.num_passing and not self.same_background:
            parts.append(
                "on events that did not choose the threshold the network's background efficiency is "
                f"{self.network_background_unseen:.3g}, more than the selection's; add background events"
            )
        limit = f"below {self.selection_background_limit:.2g} with {LEVEL:.0%} confidence"
        if self.num_passing == 0:
            parts.append(f"all that is known of its background efficiency is that it lies {limit}")
        elif self.blind_slices:
            slices = ", ".join(map(str, self.blind_slices))
            parts.append(
                f"no event of slice {slices} passes, though one would outweigh all that do: with these the "
                f"selection's background efficiency is only known to be {limit}"
            )
        return "; ".join(parts)


def compare_with_selection(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    passes: ArrayLike,
    slices: ArrayLike,
    cross_sections_mb: ArrayLike,
    num_generated: ArrayLike | None = None,
    num_replicates: int = 1000,
    seed: int = 2018,
) -> SelectionComparison:
    """Compares the score of N events with a selection, at the selection's background efficiency.

    `scores` (N,), higher for signal; `labels` (N,), 1 for signal; `passes` (N,), 1 if the event passes the
    selection; `slices` (N,), 0 .. K - 1, what a background event was generated in (signal: any number).
    `cross_sections_mb` (K,) [mb] and `num_generated` (K,) are the slices'; without the latter all generated
    events are here, with it those that are not here pass neither. The events must not have been trained on.

    Raises ValueError if shapes or values do not fit, or a kind of events or a slice is empty.
    """
    if num_replicates < 100:
        raise ValueError(f"{num_replicates} replicates are too few for a 95 % interval; take 100 or more")
    events = stratify(
        scores,
        labels,
        passes=passes,
        slices=slices,
        cross_sections_mb=cross_sections_mb,
        num_generated=num_generated,
    )
    once = events.measure(np.ones_like(events.slices), np.ones(len(events.signal_passes), dtype=np.int64))
    differences, backgrounds, unseen = _bootstrap(events, num_replicates, np.random.default_rng(seed))
    num_passing = events.num_per_slice(events.passes)
    one_event = events.cross_section_share / events.num_generated
    return SelectionComparison(
        selection_signal_efficiency=once.selection_signal,
        selection_background_efficiency=once.selection_background,
        selection_background_interval=_interval(backgrounds),
        selection_background_limit=_upper_limit(events, num_passing),
        network_signal_efficiency=once.network_signal,
        network_background_efficiency=once.network_background,
        network_background_unseen=unseen,
        difference_interval=_interval(differences),
        num_passing=int(num_passing.sum()),
        effective_passing=effective_sample_size(events.share[events.passes]),
        num_background=len(events.share),
        effective_background=effective_sample_size(events.share),
        blind_slices=tuple(
            np.flatnonzero((num_passing == 0) & (one_event > once.selection_background)).tolist()
        ),
        num_replicates=num_replicates,
    )


def _bootstrap(
    events: StratifiedEvents, num_replicates: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Per replicate the difference and the selection's background efficiency; and the network's on unseen events.

    Unseen are the events that a replicate did not draw, more than a third: they are put to its threshold.
    """
    differences, backgrounds = np.empty(num_replicates), np.empty(num_replicates)
    num_unseen = np.zeros(len(events.members), dtype=np.int64)
    num_unseen_accepted = np.zeros_like(num_unseen)
    for replicate in range(num_replicates):
        background, signal = events.resample(rng)
        measured = events.measure(background, signal)
        differences[replicate] = measured.network_signal - measured.selection_signal
        backgrounds[replicate] = measured.selection_background
        left_out = background == 0
        num_unseen += events.num_per_slice(left_out)
        left_out[measured.num_accepted :] = False
        num_unseen_accepted += events.num_per_slice(left_out)
    present = np.array([len(members) for members in events.members]) / events.num_generated
    efficiency = num_unseen_accepted / np.maximum(num_unseen, 1) * present
    return differences, backgrounds, float(events.cross_section_share @ efficiency)


def _upper_limit(events: StratifiedEvents, num_passing: NDArray[np.int64]) -> float:
    """Upper limit of the selection's background efficiency, from exact binomial limits of every slice.

    Adding limits is cautious: it is as if all slices fluctuated together (Clopper & Pearson, 1934).
    """
    from scipy.special import betaincinv

    num_failing = events.num_generated - num_passing
    limit = betaincinv(num_passing + 1, np.maximum(num_failing, 1), LEVEL)
    return float(events.cross_section_share @ np.where(num_failing == 0, 1.0, limit))


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
