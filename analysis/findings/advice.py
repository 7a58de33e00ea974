"""What to do next: one rule per cause, in sentences that follow from a table's numbers. docs/report.md lists the rules.

Where a rule gives a number that was not measured, its sentence says "would" and names the assumption.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from dlscale.analysis.declare import Sentence
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import communication, scaling, solution_table
from dlscale.analysis.findings.communication_only import CommunicationOnly
from dlscale.analysis.findings.contrasts import Contrast, study_contrasts
from dlscale.analysis.findings.interference import is_busy
from dlscale.analysis.findings.scaling import ScalingRow, rows_of
from dlscale.analysis.findings.waterfall import FINDING as WATERFALLS
from dlscale.analysis.findings.waterfall_parts import BATCH, INPUT, SHARING, STRAGGLERS, WAITING, Waterfall
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Block
from dlscale.analysis.records import start_time
from dlscale.analysis.statistics import half_width
from dlscale.analysis.text import plural, share_text
from dlscale.base.quantities import format_seconds

MOST_LAUNCHES = 40  # of each cell; what needs more is not worth it
MOST_SENTENCES = 3
MOST_OF_IT = 0.8  # of the waiting for an exchange, which then is all of it


def advice(study: Measured) -> list[str]:
    """Sentences, the most important first; none where nothing follows. On a busy machine only that follows."""
    if is_busy(study):
        return ["Repeat the study when nothing else runs on the machine: --set wait_quiet=1h waits for that."]
    sentences = [*_undecided(study)]
    families = study.families
    for family in families:
        training = f"{family.workload} in {family.framework}: " if len(families) > 1 else ""
        sentences += [training + sentence for sentence in _loss(study, family)]
    return list(dict.fromkeys(sentences))[:MOST_SENTENCES]


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


def _loss(study: Measured, family: Family) -> Iterator[str]:
    """What would lessen the largest certain loss of the fastest backend on the most ranks."""
    waterfalls = [
        waterfall
        for waterfall in WATERFALLS.of(study)
        if waterfall.family == family and waterfall.largest_names and waterfall.sufficient
    ]
    if not waterfalls:
        return
    most = max(waterfall.cell.num_ranks for waterfall in waterfalls)
    waterfall = min(
        (waterfall for waterfall in waterfalls if waterfall.cell.num_ranks == most),
        key=lambda one: one.measured_seconds or 0.0,
    )
    part = waterfall.largest
    if waterfall.rivals or part is None or len(part.names) > 1:
        return
    if part.name == WAITING:
        cell = waterfall.cell
        exchanges = [one.alone for one in communication.FINDING.of(study) if one.cell == cell]
        yield _communicate_less(waterfall, part.loss.center, exchanges)
        return
    alone = [
        row
        for row in rows_of(scaling.FINDING.of(study), family)
        if (row.cell.backend, row.cell.control) == ("none", "train")
    ]
    row = next(
        (row for row in alone if row.cell.num_ranks == most), None
    )  # the input controls share its launches
    rule = {INPUT: _read_faster, SHARING: _share_less, STRAGGLERS: _find_stragglers, BATCH: _batch_more}.get(
        part.name
    )
    if rule:
        yield rule(waterfall, row)


def _communicate_less(waterfall: Waterfall, share: float, exchanges: Sequence[CommunicationOnly]) -> str:
    """A larger batch helps against what the exchange takes by itself, and not against other waiting."""
    waits, rest = f"{_backend(waterfall)} loses {100 * share:.0f} % of a step to {WAITING}", ""
    if not exchanges or not waterfall.measured_seconds:
        return f"{waits}; --set controls=exchange measures how much of that the exchange takes by itself."
    explained = exchanges[0].seconds.center / waterfall.measured_seconds
    if explained < MOST_OF_IT * share:
        waits += f", of which the exchange by itself takes {100 * explained:.0f} %"
        rest = " The rest is other waiting, which a larger batch need not lessen."
        share = explained
    if waterfall.cell.scaling_mode == "strong":
        return f"{waits}: a larger --batch, or fewer ranks, leaves more computation to each exchange.{rest}"
    return (
        f"{waits}: with twice the --batch that would be {100 * share / (2 - share):.0f} %, if computation grows with "
        f"the batch and the exchange does not.{rest}"
    )


def _read_faster(waterfall: Waterfall, row: ScalingRow | None) -> str:
    saved = ""
    if row and row.input_loss:
        saved = f"; training on samples in memory saves {share_text(row.input_loss)} of a step"
    return (
        f"Reading samples costs {_backend(waterfall)} the most{saved}: put the data on a faster disk or into memory, "
        "or convert images with dlscale data convert."
    )


def _share_less(waterfall: Waterfall, _row: ScalingRow | None) -> str:
    fewer = max(1, waterfall.cell.num_ranks // 2)
    return (
        "Ranks slow each other down, for they share memory, caches and power: try "
        f"{plural(fewer, 'rank')} with twice the cores each (--ranks {','.join(map(str, sorted({1, fewer})))})."
    )


def _find_stragglers(waterfall: Waterfall, _row: ScalingRow | None) -> str:
    name = _backend(waterfall)
    return f"{name} waits for stragglers: the page's heat map shows which, and dlscale report --full why."


def _batch_more(_fall: Waterfall, _row: ScalingRow | None) -> str:
    return "Each rank's share of the batch is too small to be fast: a larger --batch, or fewer ranks."


def _backend(waterfall: Waterfall) -> str:
    return f"{waterfall.cell.backend} on {plural(waterfall.cell.num_ranks, 'rank')}"


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
