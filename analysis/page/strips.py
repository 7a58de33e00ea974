"""Where the speed goes, at a glance: for the first screen, a strip per curve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dlscale.analysis.page.model import Segment, Strip
from dlscale.analysis.page.plot_model import Loss, Part
from dlscale.analysis.page.summary import on_most_ranks
from dlscale.analysis.page.words import kept, plural, share, workload_title

MOST = 5  # strips; all losses are drawn further down


def strips(losses: Iterable[Loss]) -> tuple[Strip, ...]:
    """Of one training its backends, of several the best backend of each; what keeps most comes first."""
    ordered = sorted(on_most_ranks(losses), key=lambda loss: -loss.kept.center)
    names = {loss.title: f"{workload_title(loss.tags.workload)}, {loss.tags.framework}" for loss in ordered}
    if len(names) == 1:
        return tuple(_strip(loss) for loss in ordered[:MOST])
    best = [next(loss for loss in ordered if loss.title == title) for title in names]
    clear = len(set(names.values())) == len(names)
    return tuple(_strip(loss, names[loss.title] if clear else loss.title) for loss in best[:MOST])


def _strip(loss: Loss, training: str = "") -> Strip:
    where = f"{loss.name}, {plural(loss.num_ranks, 'rank')}"
    return Strip(
        name=f"{training}: {where}" if training else where,
        kept=f"{kept(loss.kept)} kept",
        cause=_cause(loss),
        certain=len(loss.largest) == 1,
        segments=tuple(_segments(loss)),
        tags=loss.tags,
    )


def _cause(loss: Loss) -> str:
    largest = [part for part in loss.parts if part.label in loss.largest]
    if len(largest) == 1:
        return _says(largest[0])
    if largest:
        return f"{' or '.join(part.label for part in largest)}: not told apart"
    low = loss.kept.complement().low
    return "no single cause is certain" if low is not None and low > 0 else "no loss beyond the noise"


def _segments(loss: Loss) -> Iterator[Segment]:
    """What was gained (a negative part) has no width of its own: the others share what is lost in all."""
    left = min(1.0, max(0.0, loss.kept.center))
    yield Segment(begin=0.0, width=_percent(left), says=f"{kept(loss.kept)} kept")
    costs: Sequence[Part] = [part for part in loss.parts if part.share.center > 0]
    scale = (1 - left) / (sum(part.share.center for part in costs) or 1.0)
    for part in costs:
        width = part.share.center * scale
        yield Segment(
            begin=_percent(left),
            width=_percent(width),
            says=_says(part),
            largest=part.label in loss.largest,
        )
        left += width


def _says(part: Part) -> str:
    return f"{part.label}: {share(part.share)}"


def _percent(value: float) -> float:
    return round(100 * value, 3)
