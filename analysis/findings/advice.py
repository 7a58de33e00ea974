"""What to do next: how many launches would decide the comparisons, or a quieter machine (docs/report.md)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from dlscale.analysis.declare import Sentence
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import solution_table
from dlscale.analysis.findings.contrasts import Contrast, study_contrasts
from dlscale.analysis.findings.interference import is_busy
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Block
from dlscale.analysis.records import start_time
from dlscale.analysis.statistics import half_width
from dlscale.base.quantities import format_seconds

MOST_LAUNCHES = 40  # of each cell; what needs more is not worth it


def advice(study: Measured) -> list[str]:
    """Sentences; none where nothing follows. On a busy machine only that follows."""
    if is_busy(study):
        return ["Repeat the study when nothing else runs on the machine."]
    return list(_undecided(study))


def _undecided(study: Measured) -> Iterator[str]:
    """How many launches would decide the comparisons that these do not."""
    contrasts = study.once(study_contrasts)
    if contrasts is None:
        return
    if any(contrast.too_few for contrast in contrasts.found):
        yield f"To compare them, run {_launches(study, contrasts.blocks_needed)}."
        return
    open_ = [contrast for contrast in contrasts.found if contrast.verdict == "not shown"]
    if not open_:
        return
    contrast = max(open_, key=lambda one: abs(one.standardised.center) if one.standardised else 0.0)
    needed = launches_to_decide(contrast)
    names = f"{contrast.contender.name} and {contrast.reference.name}"
    if needed is None:
        yield f"A difference between {names}, if there is one, is too small for {MOST_LAUNCHES} launches to show."
    else:
        needed = max(needed, contrasts.blocks_needed)
        yield f"If {names} differ as they did here, {_launches(study, needed)} would show it."


def launches_to_decide(contrast: Contrast) -> int | None:
    """Launches with which an interval as wide as this spread makes it would leave 1 out; None beyond 40."""
    size = contrast.standardised
    if size is None or not size.center:
        return None
    enough = (
        n for n in range(contrast.num_blocks + 1, MOST_LAUNCHES + 1) if half_width(n) <= abs(size.center)
    )
    return next(enough, None)


def _launches(study: Measured, needed: int) -> str:
    """`8 launches of each cell (--launches 8, about 6 min)`, with the time where the records tell it."""
    seconds = _block_seconds(study)
    time = f", about {format_seconds(needed * seconds)}" if seconds else ""
    return f"{needed} launches of each cell (--launches {needed}{time})"


def _block_seconds(study: Measured) -> float | None:
    """The typical time from the begin of a block to that of the next; None without two."""
    begins: dict[tuple[str, int], float] = {}
    for launches in study.launches:
        for case in launches.cases:
            began = start_time(case.record.started_at).timestamp()
            begins[case.block] = min(began, begins.get(case.block, began))
    gaps = [
        after - before
        for ((study, _), before), ((later, _), after) in pairwise(sorted(begins.items()))
        if study == later and after > before
    ]
    return median(gaps) if gaps else None


def _screen(study: Measured) -> Iterator[Block]:
    if (steps := FINDING.of(study)) and not solution_table.FINDING.of(study):
        yield Sentence(text="What to do next", strong=True)
        yield from (Sentence(text=f"  {step}") for step in steps)


FINDING = Finding(
    name="advice",
    title="What to do next",
    answers=True,
    compute=advice,
    sentences=lambda steps: (Sentence(text=step) for step in steps),
    screen=_screen,
    data=lambda steps: {"advice": list(steps)},
)
FINDINGS = (FINDING,)
