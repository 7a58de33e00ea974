"""The network against the published physics selection, on events that pass the preselection.

Cuts and numbers of the published comparison: github.com/eracah/atlas_dl, `scripts/physics_selections.py` and
`results/run111/training.log`. Here both are measured on events of our own. Background comes in slices of pT with
cross sections sigma_s; of the n_s events generated in a slice, a file of preselected events holds those that passed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.base.redaction import home_folder
from dlscale.models.hep_cnn.data import EventFile, Images
from dlscale.models.quality.roc import ROUNDING, Roc, roc_curve
from dlscale.models.quality.selection import SelectionComparison, compare_with_selection

_ROWS_PER_READ = 128
_COLUMNS = ("component", "preselection", "psr")
_ATTRIBUTES = ("components", "component_labels", "component_generated", "component_cross_sections_mb")

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreselectedEvents:
    """Events of a file, by their rows, and the K components that they come from. Images stay in the file."""

    path: Path
    rows: Rows  # (N,) ascending
    component: Rows  # (N,)
    psr: NDArray[np.bool_]  # (N,) passes the physics selection
    names: tuple[str, ...]  # (K,)
    component_labels: Rows  # (K,) 1 for signal
    num_generated: Rows  # (K,) events of which these are the preselected ones
    cross_sections_mb: NDArray[np.float64]  # (K,)

    @property
    def labels(self) -> Rows:
        """(N,), 1 for signal and 0 for background."""
        return self.component_labels[self.component]

    @property
    def weights_mb(self) -> NDArray[np.float64]:
        """(N,), the cross section [mb] that each event stands for."""
        return (self.cross_sections_mb / self.num_generated)[self.component]

    @property
    def num_present(self) -> Rows:
        """(K,), events of each component."""
        return np.bincount(self.component, minlength=len(self.names))

    def subset(self, chosen: Rows) -> PreselectedEvents:
        """The events `chosen`, positions below N, as the part of the generated ones that they are.

        A component's generated events are divided in proportion, so that its efficiency stays what it was; one
        at least is left to every component.
        """
        chosen = np.sort(chosen)
        part = replace(self, rows=self.rows[chosen], component=self.component[chosen], psr=self.psr[chosen])
        share = np.where(
            self.num_present > 0,
            part.num_present / np.maximum(self.num_present, 1),
            len(chosen) / max(len(self.rows), 1),
        )
        num_generated = np.maximum(np.rint(self.num_generated * share), 1).astype(np.int64)
        return replace(part, num_generated=num_generated)

    def images(self) -> Iterator[Images]:
        """The images of all events in order, a few at a time, (n, H, W, C)."""
        with EventFile(self.path) as file:
            for begin in range(0, len(self.rows), _ROWS_PER_READ):
                yield file.read(self.rows[begin : begin + _ROWS_PER_READ])[0]


def default_path() -> Path:
    """Where the events of the comparison are kept: in the user's cache. Raises UsageError without a home folder."""
    home = home_folder()
    cache = os.environ.get("XDG_CACHE_HOME") or (home and home / ".cache")
    if not cache:
        raise UsageError("this user has no home folder; set HOME or XDG_CACHE_HOME")
    return Path(cache) / "dlscale" / "hep_cnn" / "preselected_64.h5"


def load_events(path: Path, *, max_events: int | None = None) -> PreselectedEvents:
    """The events of a generated file that pass the preselection; of more than `max_events`, the first ones.

    Raises UsageError if the file cannot be read, does not say where its events come from, or has no signal or no
    background.
    """
    with EventFile(path) as events, h5py.File(path, "r") as file:
        num_events = len(events)
        missing = [name for name in _COLUMNS if name not in file]
        missing += [name for name in _ATTRIBUTES if name not in file.attrs]
        if missing:
            raise UsageError(
                f"{path}: has no {', '.join(missing)}, which the comparison with the physics selection needs; "
                "make a file with `dlscale data hep-cnn --preselected`"
            )
        component, preselection, psr = (file[name][()] for name in _COLUMNS)
        names, labels, generated, sigma = (np.asarray(file.attrs[name]) for name in _ATTRIBUTES)
        fits = all(column.shape == (num_events,) for column in (component, preselection, psr))
        fits &= len({len(names), len(labels), len(generated), len(sigma)}) == 1
        if not fits or not np.array_equal(labels[np.minimum(component, len(labels) - 1)], events.labels):
            raise UsageError(
                f"{path}: component, preselection or psr do not fit its {num_events} events; "
                "the file is damaged: make it again"
            )
    whole = PreselectedEvents(
        path=path,
        rows=np.flatnonzero(preselection),
        component=component[preselection > 0].astype(np.int64),
        psr=psr[preselection > 0] > 0,
        names=tuple(str(name) for name in names),
        component_labels=labels.astype(np.int64),
        num_generated=generated.astype(np.int64),
        cross_sections_mb=sigma.astype(np.float64),
    )
    selected = whole if max_events is None else whole.subset(np.arange(min(max_events, len(whole.rows))))
    for label, kind in ((1, "signal"), (0, "background")):
        if np.count_nonzero(selected.labels == label) < 4:
            raise UsageError(
                f"{path}: fewer than 4 of {len(selected.rows)} preselected events are {kind}; take more events"
            )
    return selected


def split(
    events: PreselectedEvents, *, seed: int, share: float = 0.5
) -> tuple[PreselectedEvents, PreselectedEvents]:
    """The `share` of every component's events in a random order, and the rest; the order is that of `seed`."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(events.rows))
    first = np.zeros(len(order), dtype=np.bool_)
    for component in range(len(events.names)):
        members = order[events.component[order] == component]
        first[members[: round(share * len(members))]] = True
    return events.subset(np.flatnonzero(first)), events.subset(np.flatnonzero(~first))


def write_balanced(events: PreselectedEvents, out: Path, *, seed: int) -> int:
    """Writes images and labels to the new file `out`, for training; returns the number of events in it.

    There are as many signal as background events: of the kind that has fewer, some are there more than once. Who
    trains on the file cannot meet any other event.
    """
    rng = np.random.default_rng(seed)
    kinds = [rng.permutation(events.rows[events.labels == label]) for label in (0, 1)]
    longest = max(map(len, kinds))
    rows = rng.permutation(np.concatenate([np.resize(kind, longest) for kind in kinds]))
    with EventFile(events.path) as source, h5py.File(out, "x") as file:
        shape = source.images.shape[1:]
        data = file.create_dataset(
            "data", (len(rows), *shape), np.float32, chunks=(1, *shape), compression="lzf"
        )
        for place, row in enumerate(rows):
            image, _ = source.event(int(row))
            data[place] = image.transpose(2, 0, 1)
        file["label"] = source.labels[rows]
    return len(rows)


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
        result = self.comparison
        low, high = result.difference_interval
        sentences = [
            f"At a background rejection of {self.rejection:.4%} the network finds "
            f"{result.network_signal_efficiency:.2%} of the signal and the selection "
            f"{result.selection_signal_efficiency:.2%}: difference {100 * result.difference:+.2f} points, "
            f"95 % interval [{100 * low:+.2f}, {100 * high:+.2f}]. Verdict: {result.verdict}.",
            f"It rests on {result.num_passing} background events in the signal region, worth "
            f"{result.effective_passing:.1f} of equal weight, and {result.num_background} preselected ones, worth "
            f"{result.effective_background:.1f}; with 95 % confidence the selection's background efficiency is "
            f"below {self.background(result.selection_background_limit):.3g}.",
        ]
        if result.num_passing == 0:
            sentences.append(
                "No background event passes the selection: these events do not carry its working point."
            )
        elif not result.same_background:
            sentences.append(
                "On events that did not choose the threshold, the network's background efficiency is "
                f"{self.background(result.network_background_unseen):.3g}, above the interval of the selection's: "
                "its signal efficiency is flattered by these events; take more."
            )
        background = [each for each in self.slices if each.label == 0]
        empty = [each for each in background if each.num_preselected == 0]
        for each in empty:
            # Of n generated events none is seen: 95 % upper limit of its share, -ln 0.05 / n.
            limit = each.cross_section_mb * -np.log(0.05) / each.num_generated
            sentences.append(
                f"None of {each.num_generated} events of {each.name} passes the preselection: it is left out, and "
                f"with 95 % confidence it would add at most {self._of_preselected(limit):.2%} to the preselected "
                "background."
            )
        blind = [background[number].name for number in result.blind_slices if background[number] not in empty]
        if blind and result.num_passing:
            sentences.append(
                f"Of {', '.join(blind)} no event passes the selection, and one that did would outweigh all that do: "
                "the background efficiencies hold for the other slices only."
            )
        allowed = 1 - PUBLISHED_BACKGROUND_REJECTION
        verb = "is finer than" if self.coarsest_event > allowed else "can be resolved by"
        sentences.append(
            f"The published working point, a rejection of {PUBLISHED_BACKGROUND_REJECTION:.4%}, {verb} these events, "
            f"of which the heaviest alone stands for {self.coarsest_event:.2g} of the preselected background."
        )
        return sentences

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
