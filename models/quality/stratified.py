"""Simulated events in slices, and what a cut and a score make of them: the measurement that is resampled.

Background is generated in slices s (pT ranges), about as many events of each, though their cross sections sigma_s
fall by eight orders of magnitude. A background efficiency is therefore a mean over slices,
eff_B = sum_s sigma_s eff_s / sum_s sigma_s, with eff_s = passing events / generated events of the slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dlscale.models.quality.roc import ROUNDING, checked_events

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
        """Of the background events `chosen` (B,), how many lie in each slice (K,)."""
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
