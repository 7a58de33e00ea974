"""One screen of a study: the verdict, the table of training cells, the largest loss per backend, and warnings.

The full text (`terminal_table`) and the page have everything else. Anything that makes a number doubtful is always
shown here, in one line that says where to read more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dlscale.analysis.advice import advice
from dlscale.analysis.efficiency import SCALING, ScalingRow, ScalingTable, base_text
from dlscale.analysis.families import Family, family_of
from dlscale.analysis.findings.compression import COMPRESSION, FAILED, compressed_cells
from dlscale.analysis.findings.contrast_declaration import Side, level_of
from dlscale.analysis.findings.contrasts import CONTRAST_BAND, Contrast, Contrasts
from dlscale.analysis.findings.ladder import LADDER, Ladder, ladder_sentences, ladder_title, rungs
from dlscale.analysis.findings.noise_scale import noise_scales
from dlscale.analysis.findings.predicted_points import (
    SimulatedPoint,
    comparison_sentence,
    curve_sentences,
    doubts_of,
)
from dlscale.analysis.findings.predicted_solutions import predictions
from dlscale.analysis.findings.solution_table import solution_legend, solution_table
from dlscale.analysis.findings.solutions import (
    TimeToSolution,
    fastest_first,
    goal_text,
    rules_text,
    tuned_text,
    unequal_tuning,
)
from dlscale.analysis.findings.tuning import TUNING_LEGEND, rate_searches, rate_table, search_sentences
from dlscale.analysis.findings.waterfall import Waterfall
from dlscale.analysis.records import why_unusable
from dlscale.analysis.render.html.comparisons import contrast_texts, contrasts_lead
from dlscale.analysis.render.tables import Grid, brief, numbered
from dlscale.analysis.render.text import backend_name, efficiency_text, plural, rate, share_text
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS
from dlscale.analysis.variants import STEP

FULL = "dlscale report --full"
MOST_NOTES = 8  # below a table
MOST_RIVALS = 2  # causes named besides the largest
MOST_SENTENCES = 4  # about a factor that is compared across trainings


def render_screen(table: ScalingTable, *, warnings: Iterable[str] = ()) -> RenderableType:
    """The screen, for `rich.console.Console.print`. `warnings` are sentences about the study as a whole."""
    contrasts, parts = table.contrasts, list[RenderableType]()
    compressed = compressed_cells(table.launches)
    if table.interference and table.interference.text:
        parts += [Text(table.interference.text, style="bold" if table.interference.busy else ""), ""]
    for ladder in table.ladders:
        parts += [*_render_ladder(ladder), ""]
    for family in () if table.ladders else table.families:
        render = _render_solutions if table.solutions_of(family) else _render_family
        parts += [*render(table, family), ""]
    parts += _render_predicted(table.predicted)
    if compressed:
        parts += [Text(COMPRESSION.caption, style="bold")]
        parts += [Text(cell.text, style="bold" if cell.gate == FAILED else "") for cell in compressed]
        parts += [Grid(brief(COMPRESSION.of(compressed)), sections=False), ""]
    if contrasts and contrasts.factor not in ("backend", STEP):
        parts += [*_across_trainings(contrasts), ""]
    if (steps := advice(table)) and not table.solutions:
        parts += [Text("What to do next", style="bold"), *(Text(f"  {step}") for step in steps), ""]
    if table.ladders:
        parts.append(Text(f"{LADDER.legend} All cells: {FULL}, and the page.", style="dim"))
    elif rate_searches(table.solutions, table.rows):
        parts.append(Text(f"All trainings: {FULL}, and the page.", style="dim"))
    elif table.solutions:
        parts.append(Text(solution_legend(table.solutions), style="dim"))
    elif table.rows:
        parts.append(Text(_legend(table.rows), style="dim"))
    else:
        parts.append("No records: nothing has been measured yet.")
    parts += _warning_lines([*warnings, *_gaps(table)])
    return Group(*parts)


def _render_predicted(points: Sequence[SimulatedPoint]) -> Iterator[RenderableType]:
    """What is predicted for the largest size of each curve, and how wrong that is where something is measured."""
    if not points:
        return
    if doubts := doubts_of(points):
        yield Text(doubts, style="bold")
    for sentence in curve_sentences(points):
        yield Text(sentence)
    if sentence := comparison_sentence(points):
        yield Text(sentence)
    yield ""


def _render_ladder(ladder: Ladder) -> Iterator[RenderableType]:
    yield Text(ladder_title(ladder), style="bold")
    yield Text(ladder.steps[0].family.constants)
    for sentence in ladder_sentences(ladder):
        yield Text(sentence)
    yield Grid(brief(LADDER.of(rungs([ladder]))), sections=False)


def _render_family(table: ScalingTable, family: Family) -> Iterator[RenderableType]:
    rows = [row for row in table.of(family) if row.cell.control == "train"]
    yield Text(family.title, style="bold")
    yield Text(family.constants)
    yield from _unchecked(rows)
    for sentence in verdict(rows, table.contrasts):
        yield Text(sentence)
    yield from _of_servers(table, family)
    if not rows:
        return
    notes: dict[str, int] = {}
    yield Grid(numbered(brief(SCALING.of(rows), without=("memory",)), notes), sections=False)
    if notes:
        yield Text(_notes_text(notes))
    falls = list(_on_most_ranks(table.waterfalls_of(family)))
    if falls and not (table.interference and table.interference.busy):
        yield ""
        yield Text(f"Largest loss on {plural(falls[0].cell.num_ranks, 'rank')}, of the ideal speed", "bold")
        losses = Table.grid(padding=(0, 2))
        for fall in falls:
            losses.add_row(Text(f"  {_name(fall)}"), Text(largest_loss(fall)))
        yield losses


def _render_solutions(table: ScalingTable, family: Family) -> Iterator[RenderableType]:
    rows = table.solutions_of(family)
    yield Text(family.title, style="bold")
    target = rows[0].target
    rules = "".join(f"; {text}" for text in [rules_text(target)] if text)
    goal = f"{family.constants}; to {goal_text(target)} on held-out samples{rules}"
    if searches := rate_searches(rows, table.of(family)):
        yield Text(goal)
        yield from (Text(text) for text in search_sentences(searches))
        if table.interference and table.interference.busy:
            yield Text("Numbers of samples, and the choice, do not depend on how busy the machine was.")
        yield Grid(brief(rate_table(searches)), sections=False)
        yield Text(TUNING_LEGEND, style="dim")
        return
    alike = "" if unequal_tuning(rows) else f", learning rates {tuned_text(target)}"
    yield Text(f"{goal}{alike}")
    yield from _unchecked(rows)
    yield from (Text(text, style="bold") for text in unequal_tuning(rows))
    for row in fastest_first(rows):
        yield Text(row.text)
    yield from _of_servers(table, family)
    # Ways of training are told apart by more columns; the page has what these leave no room for.
    compared = any(row.reference for row in rows)
    noises = [] if compared else noise_scales(rows)
    for noise in noises:
        yield Text(noise.text)
    for prediction in predictions(noises, table.weak_scaling):
        yield Text(prediction.text)
    without = ("training", "ranks") if compared else ()
    yield Grid(brief(solution_table(rows), without=without), sections=False)


def _of_servers(table: ScalingTable, family: Family) -> Iterator[Text]:
    """How stale pushes were and how many gradients late, on the most ranks, where there are others' to be missed."""
    for counted in (table.stalenesses, table.late_gradients):
        found = [one for one in counted if family_of(one.cell, system=family.system) == family]
        most = max((one.cell.num_ranks for one in found), default=0)
        yield from (Text(one.text) for one in found if one.cell.num_ranks == most)


def _unchecked(rows: Sequence[ScalingRow | TimeToSolution]) -> Iterator[Text]:
    """A sentence about a user's own model or sleep in the place of computation; nothing about another workload."""
    for cell in {row.cell.unchecked: row.cell for row in rows if row.cell.unchecked}.values():
        yield Text(f"Not checked{' of this file' if cell.own else ''}: {cell.unchecked}.", style="dim")


def verdict(rows: Sequence[ScalingRow], contrasts: Contrasts | None) -> list[str]:
    """Sentences about the trainings of one family on the most ranks that gave a number.

    A backend is called the best only if the declared comparisons put it before every other one; otherwise the text
    says "measured".
    """
    measured = [row for row in rows if row.throughput]
    if not measured:
        planned = sum(row.num_planned for row in rows)
        return [
            f"No case gave a number so far; {planned} are planned." if planned else "Nothing was planned."
        ]
    scaled = [row for row in measured if row.cell.num_ranks > 1]
    if not scaled:
        return ["Only 1 rank gave numbers: scaling needs a second number of ranks."]
    exchanging = [row for row in scaled if row.cell.backend != "none"] or scaled
    most = max(row.cell.num_ranks for row in exchanging)
    last = [row for row in exchanging if row.cell.num_ranks == most]
    declared = _declared(last, contrasts)
    return [
        _ranking(last, declared),
        *_differences(declared, needed=contrasts.blocks_needed if contrasts else 0),
    ]


def _ranking(rows: Sequence[ScalingRow], declared: Sequence[Contrast]) -> str:
    """A sentence with the highest and the lowest efficiency of rows on the same number of ranks."""
    ranks = plural(rows[0].cell.num_ranks, "rank")
    rated = [(row, value) for row in rows if (value := row.efficiency_none)]
    against = ""
    if not rated:
        rated = [(row, value) for row in rows if (value := row.efficiency_backend)]
        against = f" against {base_text(rows)} of the same backend"
    if not rated:
        best = max(rows, key=lambda row: row.throughput.center if row.throughput else 0.0)
        return f"{_row_name(best)} does {rate(best.throughput)} samples/s on {ranks}; no efficiency: no base case."
    ordered = sorted(rated, key=lambda pair: -pair[1].center)
    (best, highest), (worst, lowest) = ordered[0], ordered[-1]
    if len(ordered) == 1:
        if best.cell.backend == "none":
            against = ", without communication"
        return (
            f"{_row_name(best)} has a scaling efficiency of {efficiency_text(highest)} on {ranks}{against}."
        )
    others = [row for row, _ in ordered[1:]]
    if not against and _leads(best, others, declared):
        first = f"{_row_name(best)} has the highest scaling efficiency on {ranks}: {efficiency_text(highest)}"
        return f"{first}; {_row_name(worst)} the lowest measured: {efficiency_text(lowest)}."
    return (
        f"Scaling efficiency measured on {ranks}{against}: highest {_row_name(best)}, {efficiency_text(highest)}; "
        f"lowest {_row_name(worst)}, {efficiency_text(lowest)}."
    )


def _leads(best: ScalingRow, others: Iterable[ScalingRow], declared: Sequence[Contrast]) -> bool:
    """Whether the claims together put `best` before all others.

    All comparisons are against one reference, and all claims hold jointly. So `best` must be the reference or faster,
    and every other backend the reference or slower.
    """
    faster = {contrast.contender.cell.id for contrast in declared if contrast.verdict == "faster"}
    slower = {contrast.contender.cell.id for contrast in declared if contrast.verdict == "slower"}
    references = {contrast.reference.cell.id for contrast in declared}
    return (
        len(references) == 1
        and best.cell.id in faster | references
        and all(row.cell.id in slower | (references - {best.cell.id}) for row in others)
    )


def _differences(declared: Sequence[Contrast], *, needed: int) -> Iterator[str]:
    """Sentences with the results of the comparisons, each of which needs `needed` launches."""
    claimed = [
        f"{_side(contrast.contender)} is {contrast.verdict} than {contrast.reference.name} "
        f"({share_text(contrast.ratio.excess(), unit='', sign='+')} % samples/s)"
        for contrast in declared
        if contrast.verdict in ("faster", "slower") and contrast.ratio
    ]
    if claimed:
        yield f"Significant: {', '.join(claimed)}."
    if alike := [_pair(contrast) for contrast in declared if contrast.verdict == "alike"]:
        yield f"Within {100 * CONTRAST_BAND:.0f} %: {', '.join(alike)}."
    if not_shown := [_pair(contrast) for contrast in declared if contrast.verdict == "not shown"]:
        yield f"No significant difference: {', '.join(not_shown)}."
    reasons: dict[str, list[str]] = {}
    for contrast in declared:
        if contrast.verdict == "cannot be shown":
            reason = contrast.reason
            if contrast.too_few:
                reason = f"{plural(contrast.num_blocks, 'launch')}; --launches {needed} can decide"
            reasons.setdefault(reason, []).append(
                f"{_side(contrast.contender)} and {contrast.reference.name}"
            )
    for reason, pairs in reasons.items():
        yield f"Insufficient data to compare {', '.join(pairs)}: {reason}."


def _pair(contrast: Contrast) -> str:
    return f"{_side(contrast.contender)} and {contrast.reference.name} (n = {contrast.num_blocks})"


def _side(side: Side) -> str:
    return side.name if side.evidence == "measured" else f"{side.name} ({side.evidence})"


def _declared(rows: Sequence[ScalingRow], contrasts: Contrasts | None) -> list[Contrast]:
    """The comparisons of backends among these rows."""
    if contrasts is None or contrasts.factor != "backend":
        return []
    wanted = {(row.family, row.cell.num_ranks, row.evidence) for row in rows}
    return [
        contrast
        for contrast in contrasts.found
        if (contrast.contender.family, contrast.contender.cell.num_ranks, contrast.contender.evidence)
        in wanted
    ]


def _across_trainings(contrasts: Contrasts) -> Iterator[RenderableType]:
    """Sentences about a factor in which two families differ, such as the framework."""
    sentences = [sentence.text for sentence in contrast_texts(contrasts)] or [contrasts_lead(contrasts)]
    for sentence in sentences[:MOST_SENTENCES]:
        yield Text(sentence)
    if len(sentences) > MOST_SENTENCES:
        yield Text(f"{len(sentences) - MOST_SENTENCES} more: dlscale compare")


def largest_loss(fall: Waterfall) -> str:
    """`exposed communication 32.0 % [30.1, 33.9]` and losses not separable from it, or why it is unknown."""
    largest = fall.largest
    if largest is None or fall.loss is None:
        return f"not known: {fall.reason}"
    if not fall.sufficient:
        return f"insufficient data: {fall.loss.n} of {MIN_BLOCKS} blocks"
    if not any(part.loss.low is not None and part.loss.low > 0 for part in fall.parts):
        certain = fall.loss.low is not None and fall.loss.low > 0
        what = "no single cause" if certain else "no loss"
        return f"{what} is significant; largest: {largest.name} {share_text(largest.loss)}"
    text = f"{largest.name} {share_text(largest.loss)}"
    if fall.separated:
        return text
    if not fall.rivals:
        return f"{text}; {plural(largest.loss.n, 'launch')} do not show that no other is as large"
    names = (
        " or ".join(fall.rivals) if len(fall.rivals) <= MOST_RIVALS else f"{len(fall.rivals)} other causes"
    )
    return f"{text}; not separable from {names}"


def _on_most_ranks(falls: Sequence[Waterfall]) -> Iterator[Waterfall]:
    most = max((fall.cell.num_ranks for fall in falls), default=0)
    return (fall for fall in falls if fall.cell.num_ranks == most)


def _notes_text(notes: dict[str, int]) -> str:
    listed_notes = [f"({mark}) {note}" for note, mark in notes.items() if mark <= MOST_NOTES]
    more = [f"{plural(len(notes) - MOST_NOTES, 'note')} more: {FULL}"] if len(notes) > MOST_NOTES else []
    return "; ".join([*listed_notes, *more])


def _legend(rows: Sequence[ScalingRow]) -> str:
    levels = {
        round(row.throughput.level, 3) for row in rows if row.throughput and row.throughput.low is not None
    }
    other_levels = ", ".join(f"{100 * level:.1f} %" for level in sorted(levels - {LEVEL}))
    brackets = f"{100 * LEVEL:.0f} % intervals" + (f" (samples/s: {other_levels})" if other_levels else "")
    return (
        f"Efficiency: samples/s per rank over that of {base_text(rows)}, (a) of none, without communication, (b) of "
        f"the same backend. [ ]: {brackets}. n: launches that gave a number, of those planned. Controls, start-up, "
        f"energy, bounds: {FULL}, and the page."
    )


def _gaps(table: ScalingTable) -> Iterator[str]:
    """The number of cases without a throughput, controls included, and why the first attempt failed."""
    planned = sum(row.num_planned for row in table.rows)
    if missing := planned - sum(row.num_launches for row in table.rows):
        yield f"{missing} of {plural(planned, 'case')} gave no throughput, controls included."
    yield from (drift.text for drift in table.drifts if not drift.steady)
    for record in table.failures[:1]:
        cell = record.case.cell
        what = backend_name(cell) if cell.control == "train" else f"{backend_name(cell)} ({cell.control})"
        training = f"{cell.workload} {cell.framework}, " if len(table.families) > 1 else ""
        yield (
            f"First failure: {training}{what} on {plural(cell.num_ranks, 'rank')}, block {record.case.block}: "
            f"{why_unusable(record)}."
        )


def _warning_lines(warnings: Sequence[str]) -> Iterator[RenderableType]:
    """One line per warning, cut at the terminal's width; the heading says where to read them in full."""
    if warnings:
        yield ""
        yield Text(f"Warnings ({FULL} and the page have more)", style="bold")
    for warning in warnings:
        yield Text(f"  {' '.join(warning.split())}", no_wrap=True, overflow="ellipsis")


def _row_name(row: ScalingRow) -> str:
    name = level_of(row.cell, "backend")
    return name if row.evidence in (None, "measured") else f"{name} ({row.evidence})"


def _name(fall: Waterfall) -> str:
    name = level_of(fall.cell, "backend")
    return name if fall.evidence == "measured" else f"{name} ({fall.evidence})"
