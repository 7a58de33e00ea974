"""The network against the published physics selection, on events that pass the preselection.

Cuts and numbers of the published comparison: github.com/eracah/atlas_dl, `scripts/physics_selections.py` and
`results/run111/training.log`. Here both are measured on events of our own generation, so that they can be compared
with each other; docs/physics-selection.md says how, and what differs from the publication.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.models.hep_cnn.preselected import PreselectedEvents
from dlscale.models.quality.roc import ROUNDING, Roc, roc_curve
from dlscale.models.quality.selection import SelectionComparison, compare_with_selection

PUBLISHED_BACKGROUND_REJECTION = 0.999945  # of the selection on the validation events of training.log


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One component's events: generated, of them preselected, of them passing the selection and the network."""

    name: str
    label: int
    cross_section_mb: float
    num_generated: int
    num_preselected: int
    num_selected: int
    num_accepted: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhysicsResult:
    """The comparison on preselected events. Efficiencies in `comparison` are shares of what was generated.

    `background` makes shares of the preselected cross section of them.
    """

    comparison: SelectionComparison
    slices: tuple[Slice, ...]
    preselected_share: float  # of the background's cross section
    coarsest_event: float  # share of the preselected background that the heaviest event stands for
    auc: float  # weighted, of the network

    def background(self, efficiency: float) -> float:
        """A share of the generated background as one of the preselected background."""
        return efficiency / self.preselected_share

    @property
    def rejection(self) -> float:
        """Background rejection of the selection, the working point of both."""
        return 1 - self.background(self.comparison.selection_background_efficiency)

    def sentences(self) -> list[str]:
        """The result in plain words: the verdict with its interval, what it rests on, and what it cannot show."""
        found = self.comparison
        low, high = found.difference_interval
        said = [
            f"At a background rejection of {self.rejection:.4%} the network finds "
            f"{found.network_signal_efficiency:.2%} of the signal and the selection "
            f"{found.selection_signal_efficiency:.2%}: difference {100 * found.difference:+.2f} points, 95 % interval "
            f"[{100 * low:+.2f}, {100 * high:+.2f}]. Verdict: {found.verdict}.",
            f"It rests on {found.num_passing} background events in the signal region, worth "
            f"{found.effective_passing:.1f} of equal weight, and {found.num_background} preselected ones, worth "
            f"{found.effective_background:.1f}; with 95 % confidence the selection's background efficiency is below "
            f"{self.background(found.selection_background_limit):.3g}.",
        ]
        if found.num_passing == 0:
            said.append(
                "No background event passes the selection: these events do not carry its working point."
            )
        elif not found.same_background:
            said.append(
                "On events that did not choose the threshold, the network's background efficiency is "
                f"{self.background(found.network_background_unseen):.3g}, above the interval of the selection's: "
                "its signal efficiency is flattered by these events; take more."
            )
        background = [each for each in self.slices if each.label == 0]
        empty = [each for each in background if each.num_preselected == 0]
        for each in empty:
            # Of n generated events none is seen: 95 % upper limit of its share, -ln 0.05 / n.
            limit = each.cross_section_mb * -np.log(0.05) / each.num_generated
            said.append(
                f"None of {each.num_generated} events of {each.name} passes the preselection: it is left out, and "
                f"with 95 % confidence it would add at most {self._of_preselected(limit):.2%} to the preselected "
                "background."
            )
        blind = [background[number].name for number in found.blind_slices if background[number] not in empty]
        if blind and found.num_passing:
            said.append(
                f"Of {', '.join(blind)} no event passes the selection, and one that did would outweigh all that do: "
                "the background efficiencies hold for the other slices only."
            )
        allowed = 1 - PUBLISHED_BACKGROUND_REJECTION
        verb = "is finer than" if self.coarsest_event > allowed else "can be resolved by"
        said.append(
            f"The published working point, a rejection of {PUBLISHED_BACKGROUND_REJECTION:.4%}, {verb} these events, "
            f"of which the heaviest alone stands for {self.coarsest_event:.2g} of the preselected background."
        )
        return said

    def _of_preselected(self, cross_section_mb: float) -> float:
        total = sum(each.cross_section_mb for each in self.slices if each.label == 0)
        return self.background(cross_section_mb / total)


def judge(
    events: PreselectedEvents,
    scores: NDArray[np.floating[Any]],
    *,
    num_replicates: int = 1000,
    seed: int = 2018,
) -> PhysicsResult:
    """The comparison for held-out `events`, by the network's `scores` (N,), higher for signal.

    Raises ValueError if a score is not finite.
    """
    background = np.flatnonzero(events.component_labels == 0)
    number = np.full(len(events.names), 0, dtype=np.int64)
    number[background] = np.arange(len(background))
    sigma, generated = events.cross_sections_mb[background], events.num_generated[background]
    comparison = compare_with_selection(
        scores,
        events.labels,
        passes=events.psr,
        slices=number[events.component],
        cross_sections_mb=sigma,
        num_generated=generated,
        num_replicates=num_replicates,
        seed=seed,
    )
    preselected_mb = events.weights_mb[events.labels == 0]
    share = float(preselected_mb.sum() / sigma.sum())
    curve = roc_curve(scores, events.labels, weights=events.weights_mb)
    accepted = scores >= _threshold(curve, comparison.selection_background_efficiency / share)
    counts = [
        np.bincount(events.component[chosen], minlength=len(events.names))
        for chosen in (np.ones(len(scores), np.bool_), events.psr, accepted)
    ]
    return PhysicsResult(
        comparison=comparison,
        slices=tuple(
            Slice(
                name=name,
                label=int(events.component_labels[k]),
                cross_section_mb=float(events.cross_sections_mb[k]),
                num_generated=int(events.num_generated[k]),
                num_preselected=int(counts[0][k]),
                num_selected=int(counts[1][k]),
                num_accepted=int(counts[2][k]),
            )
            for k, name in enumerate(events.names)
        ),
        preselected_share=share,
        coarsest_event=float(preselected_mb.max() / preselected_mb.sum()),
        auc=curve.auc,
    )


def _threshold(curve: Roc, background_efficiency: float) -> float:
    """The loosest one that lets no more of the background pass, as in `compare_with_selection`."""
    allowed = background_efficiency * (1 + ROUNDING)
    last = int(np.searchsorted(curve.background_efficiency, allowed, side="right")) - 1
    return float(curve.thresholds[last])
