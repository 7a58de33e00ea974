"""Builds the content of the page from a scaling table and its records.

The first screen gives the efficiency and the largest loss in at most three sentences, and the losses of each curve
as a strip; the sections follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from dlscale.analysis.advice import advice
from dlscale.analysis.declare import Block, Loss, Losses, Part, Plot, Sentence, Table, WhatIf, tags_of
from dlscale.analysis.efficiency import SCALING, ScalingRow, ScalingTable, base_text, input_cost
from dlscale.analysis.findings.backends import BACKENDS, pairs
from dlscale.analysis.findings.checkpoints import CHECKPOINTS
from dlscale.analysis.findings.compression import COMPRESSION, FAILED, compressed_cells
from dlscale.analysis.findings.contrast_table import CONTRASTS, compared
from dlscale.analysis.findings.contrasts import Contrasts
from dlscale.analysis.findings.energy import energy_table, unknown_energy
from dlscale.analysis.findings.hardware_use import HARDWARE, hardware_use
from dlscale.analysis.findings.ladder import LADDER, ladder_sentences, ladder_title, rungs
from dlscale.analysis.findings.late_gradients import LATE_GRADIENTS
from dlscale.analysis.findings.productivity import PRODUCTIVITY, stored_changes
from dlscale.analysis.findings.profiles import PROFILES
from dlscale.analysis.findings.staleness import STALENESS
from dlscale.analysis.findings.startup import STARTUP
from dlscale.analysis.findings.tuning import rate_searches, search_sentences
from dlscale.analysis.findings.waterfall_table import LOSSES, loss_rows
from dlscale.analysis.render.html import communication, comparisons, study_facts, tables
from dlscale.analysis.render.html.comparisons import claims, contrast_texts, contrasts_lead
from dlscale.analysis.render.html.content import Page, Section, Segment, Strip
from dlscale.analysis.render.html.curves import (
    efficiency_plots,
    looks,
    own_efficiency_plots,
    throughput_plots,
)
from dlscale.analysis.render.html.larger_batches import LEAD as LARGER_BATCHES
from dlscale.analysis.render.html.larger_batches import larger_batch_blocks
from dlscale.analysis.render.html.losses import Causes
from dlscale.analysis.render.html.predicted import LEAD as PREDICTED_LEAD
from dlscale.analysis.render.html.predicted import predicted_blocks
from dlscale.analysis.render.html.rules import Facts, judged
from dlscale.analysis.render.html.solutions import (
    LEAD,
    RATES_LEAD,
    search_blocks,
    solution_blocks,
    solution_sentences,
)
from dlscale.analysis.render.html.study_facts import StudyFacts, left_out
from dlscale.analysis.render.html.timeline import launch_plot, outlier_marks
from dlscale.analysis.text import (
    backend_name,
    efficiency_text,
    listed,
    plural,
    rate,
    share_text,
    workload_title,
)
from dlscale.benchmarks.records.files import BadFile
from dlscale.benchmarks.records.record import Record


def page_of(
    table: ScalingTable,
    records: Iterable[Record],
    *,
    bad_files: Sequence[BadFile] = (),
    study: StudyFacts | None = None,
    causes: Causes | None = None,
    what_ifs: Sequence[WhatIf] = (),
) -> Page:
    """The page of a study; `table` and `causes` must come from `records`.

    The same records give the same page: nothing in it depends on the time.
    """
    records = list(records)
    study, causes = study or StudyFacts(), causes or Causes()
    efficiency = efficiency_plots(table, causes)
    rates = throughput_plots(table)
    own, base = own_efficiency_plots(table), base_text(table.rows)
    drawn = looks(table.rows, table.predicted)
    every = launch_plot(table.launches, outlier_marks(table.rows))
    facts = Facts(
        table=table,
        records=records,
        bad_files=bad_files,
        study=study,
        efficiency=efficiency,
        plots=[*efficiency, *rates, *own, *([every] if every else [])],
    )
    searches = rate_searches(table.solutions, table.rows)
    sections = [
        _section("rates", "Learning rates", search_blocks(searches), lead=RATES_LEAD),
        _section(
            "solutions", "Time to solution", solution_blocks(table.solutions, table.energies), lead=LEAD
        ),
        _section("batches", "Larger batches", larger_batch_blocks(table), lead=LARGER_BATCHES),
        _section("compression", "Compressed gradients", _compression(table)),
        _section("next", "What to do next", (Sentence(text=step) for step in advice(table))),
        _section("losses", "Where the speed goes", _losses(table, causes)),
        _section("ladder", "Gain of each step", _ladders(table)),
        _contrasts(table.contrasts),
        _section("backends", "Backend comparison", _backends(table)),
        _section(
            "exchange",
            "Communication only",
            communication.exchange_blocks(table.exchanges, drawn),
            lead=communication.LEAD,
        ),
        _section("profiles", "Inside a step", _known(PROFILES.of(table.profiles))),
        _section("throughput", "Throughput", rates),
        _section(
            "predicted", "Predicted, not measured", predicted_blocks(table.predicted), lead=PREDICTED_LEAD
        ),
        _section("what-if", "What if", what_ifs, lead=PREDICTED_LEAD),
        _section(
            "own",
            f"Relative to {'one rank' if base == '1 rank' else base} of the same backend",
            own,
            lead=OWN.format(base),
        ),
        _section("numbers", "All numbers", _known(SCALING.of(table.rows))),
        _section("hardware", "Use of the hardware", _known(HARDWARE.of(hardware_use(table.rows)))),
        _section("launches", "Every launch", _launches(table, every)),
        _section("energy", "Energy", _energy(table)),
        _section("costs", "Start-up, input and checkpoints", _costs(table)),
        _section("gaps", "Missing and failed launches", _gaps(table, study, bad_files)),
        _section(
            "productivity", "Lines of code per backend", _known(PRODUCTIVITY.of(stored_changes(table.pairs)))
        ),
        _section("environment", "Environment", _environment(records), folded=True),
    ]
    return Page(
        title=study_facts.page_title(table),
        facts=study_facts.heading_facts(table, records, study),
        evidence=study_facts.evidence_note(table),
        summary=(search_sentences(searches) or solution_sentences(table.solutions))[:3]
        or summary(table, causes.losses),
        strips=strips(causes.losses),
        warnings=study_facts.study_warnings(table, study, bad_files),
        first=tuple(efficiency),
        sections=tuple(section for section in sections if section.blocks),
        rules=judged(facts),
        looks=drawn,
        origin=table.provenance.short_line(),
    )


OWN = "What each backend loses by scaling alone: its fixed costs on {} are left out."


def _section(
    name: str, title: str, blocks: Iterable[Block], *, lead: str = "", folded: bool = False
) -> Section:
    return Section(name=name, title=title, blocks=tuple(blocks), lead=lead, folded=folded)


def _losses(table: ScalingTable, causes: Causes) -> Iterator[Block]:
    if causes.losses:
        yield Losses(name="loss-plots", losses=tuple(on_most_ranks(causes.losses)))
    yield from causes.unknown
    if causes.losses:
        yield from _known(LOSSES.of(loss_rows(table.waterfalls)))
    yield from causes.late
    yield from causes.heat_maps


def _backends(table: ScalingTable) -> Iterator[Block]:
    yield from comparisons.notes(table.comparisons)
    yield from _known(BACKENDS.of(pairs(table.comparisons)))


def _ladders(table: ScalingTable) -> Iterator[Block]:
    for ladder in table.ladders:
        several = f"{ladder_title(ladder)}. " if len(table.ladders) > 1 else ""
        yield Sentence(text=several + " ".join(ladder_sentences(ladder)), tags=tags_of(ladder.cell))
    yield from _known(LADDER.of(rungs(table.ladders)))


def _contrasts(contrasts: Contrasts | None) -> Section:
    """The section of contrasts: a table and, for the most ranks, sentences."""
    title = "Significant differences"
    if contrasts is None:
        return _section("contrasts", title, ())
    return _section(
        "contrasts",
        title,
        [*contrast_texts(contrasts), CONTRASTS.of(compared(contrasts))],
        lead=contrasts_lead(contrasts),
    )


def _launches(table: ScalingTable, every: Plot | None) -> Iterator[Block]:
    if every:
        yield every
    yield from _known(tables.outlier_table(table.rows))
    yield from _known(tables.step_table(table.launches))


def _energy(table: ScalingTable) -> Iterator[Block]:
    yield from _known(energy_table(table.energies))
    if sentence := unknown_energy(table.energies):
        yield Sentence(text=sentence)


def _costs(table: ScalingTable) -> Iterator[Block]:
    for row in table.rows:
        if cost := input_cost(row):
            yield Sentence(text=f"{row.cell.workload}, {row.cell.framework}, {cost}", tags=tags_of(row.cell))
    yield from _known(STARTUP.of(table.start_ups))
    yield from _known(CHECKPOINTS.of(table.savings))
    yield from _known(STALENESS.of(table.stalenesses))
    yield from _known(LATE_GRADIENTS.of(table.late_gradients))


def _gaps(table: ScalingTable, study: StudyFacts, bad_files: Sequence[BadFile]) -> Iterator[Block]:
    silent = sum(row.num_planned - row.num_launches for row in table.rows)
    if study.running and silent:
        yield Sentence(
            text=f"The study is still running: {silent} planned cases have given no number yet.",
            strong=True,
        )
    for sentence in left_out(study, bad_files):
        yield Sentence(text=f"Left out: {sentence}.")
    for drift in table.drifts:
        yield Sentence(text=f"{drift.text}.", strong=drift.steady is False)
    yield from _known(tables.FAILURES.of(table.failures))
    yield from _known(tables.UNREADABLE.of(bad_files))


def _compression(table: ScalingTable) -> Iterator[Block]:
    compressed = compressed_cells(table.launches)
    for cell in compressed:
        yield Sentence(text=cell.text, strong=cell.gate == FAILED, tags=tags_of(cell.cell))
    yield from _known(COMPRESSION.of(compressed))


def _environment(records: Sequence[Record]) -> Iterator[Block]:
    yield from _known(study_facts.node_table(records))
    yield from _known(study_facts.settings_table(records))


def _known(table: Table | None) -> Iterator[Table]:
    if table and table.rows:
        yield table


OTHERS = 3  # backends that the second sentence names


def summary(table: ScalingTable, losses: Sequence[Loss] = ()) -> tuple[str, ...]:
    """At most three sentences about the largest numbers of ranks; with `losses`, they name the largest loss.

    The last one is the strongest claim of the contrasts. Of a busy machine the first says so, and none names a loss.
    """
    if not table.rows:
        return ("Nothing has been measured yet.",)
    claim = tuple(claims(table.contrasts)[:1]) if table.contrasts else ()
    busy = table.interference.text if table.interference and table.interference.busy else ""
    if losses and not busy:
        return _of_losses(on_most_ranks(losses), claim)
    trained = [row for row in table.rows if row.cell.control == "train"]
    if not any(row.throughput for row in trained):
        planned = sum(row.num_planned for row in table.rows)
        return (f"No case gave a number so far; {planned} are planned.",)
    scaled = [row for row in trained if row.cell.num_ranks > 1 and row.throughput]
    if not scaled:
        return (f"Only 1 rank gave numbers ({_best_rate(trained)}): scaling needs a second number of ranks.",)
    return (busy, *_of_rows(scaled, ()))[:3] if busy else _of_rows(scaled, claim)


def _of_losses(losses: Sequence[Loss], verdict: tuple[str, ...]) -> tuple[str, ...]:
    trainings = Counter(loss.title for loss in losses)
    exchanging = [loss for loss in losses if loss.tags.backend != "none"] or list(losses)
    best = max(exchanging, key=lambda loss: loss.kept.center)
    sentences = [best.sentence]
    if len(trainings) > 1:
        worst = min(exchanging, key=lambda loss: loss.kept.center)
        if worst is not best:
            sentences.append(
                f"That is the highest of {plural(len(exchanging), 'curve')}; the lowest: {worst.sentence}"
            )
        causes = Counter(loss.largest[0] for loss in exchanging if len(loss.largest) == 1 and loss.separated)
        if causes:
            label, count = causes.most_common(1)[0]
            sentences.append(f"The largest loss is {label} in {count} of {len(exchanging)}.")
        return tuple(sentences)
    others = sorted((loss for loss in exchanging if loss is not best), key=lambda loss: -loss.kept.center)
    if others:
        sentences.append(f"{listed([_short(loss) for loss in others[:OTHERS]])}{_more(others)}.")
    return (*sentences, *verdict)


def _of_rows(scaled: Sequence[ScalingRow], verdict: tuple[str, ...]) -> tuple[str, ...]:
    """The summary without losses: the efficiencies alone."""
    most = max(row.cell.num_ranks for row in scaled)
    rated = [
        (row, interval)
        for row in scaled
        if row.cell.num_ranks == most and (interval := row.efficiency_none or row.efficiency_backend)
    ]
    if not rated:
        best = max(
            scaled, key=lambda row: (row.cell.num_ranks, row.throughput.center if row.throughput else 0.0)
        )
        return (
            f"{backend_name(best.cell)} does {rate(best.throughput)} samples/s on "
            f"{plural(best.cell.num_ranks, 'rank')}; {base_text(scaled)} gave no number, so there is no efficiency.",
        )
    exchanging = [item for item in rated if item[0].cell.backend != "none"] or rated
    ordered = sorted(exchanging, key=lambda item: -item[1].center)
    row, interval = ordered[0]
    name = f"{workload_title(row.cell.workload)} ({row.cell.framework}) on {backend_name(row.cell)}"
    sentences = [f"{name}: scaling efficiency {efficiency_text(interval)} at {plural(most, 'rank')}."]
    if len(ordered) > 1:
        last, least = ordered[-1]
        name = f"{workload_title(last.cell.workload)} ({last.cell.framework}) on {backend_name(last.cell)}"
        sentences.append(f"The lowest of {len(ordered)} is {efficiency_text(least)}: {name}.")
    return (*sentences, *verdict)[:3]


def on_most_ranks(losses: Iterable[Loss]) -> list[Loss]:
    """The losses of each training on its largest number of ranks with a loss."""
    by_training: dict[str, list[Loss]] = {}
    for loss in losses:
        by_training.setdefault(loss.title, []).append(loss)
    return [
        loss
        for group in by_training.values()
        for loss in group
        if loss.num_ranks == max(member.num_ranks for member in group)
    ]


def _short(loss: Loss) -> str:
    shares = {part.label: share_text(part.share) for part in loss.parts}
    cause = f" ({' or '.join(f'{label}: {shares[label]}' for label in loss.largest)})" if loss.largest else ""
    return f"{loss.name}: {efficiency_text(loss.kept)}{cause}"


def _more(others: Sequence[Loss]) -> str:
    return f", {len(others) - OTHERS} more below" if len(others) > OTHERS else ""


def _best_rate(rows: Iterable[ScalingRow]) -> str:
    rated = [(row, row.throughput) for row in rows if row.throughput]
    row, interval = max(rated, key=lambda item: item[1].center)
    return f"{backend_name(row.cell)}: {rate(interval)} samples/s"


MOST = 5  # strips at the top; all losses are drawn further down


def strips(losses: Iterable[Loss]) -> tuple[Strip, ...]:
    """A strip per backend of a single training, or for the best backend of each training; highest efficiency first."""
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
        kept=f"{efficiency_text(loss.kept)} of ideal",
        cause=_cause(loss),
        certain=len(loss.largest) == 1 and loss.separated,
        segments=tuple(_segments(loss)),
        tags=loss.tags,
    )


def _cause(loss: Loss) -> str:
    largest = [part for part in loss.parts if part.label in loss.largest]
    if len(largest) == 1:
        return _says(largest[0]) + ("" if loss.separated else ", not separable from the rest")
    if largest:
        return f"{' or '.join(part.label for part in largest)}: not separable"
    low = loss.kept.complement().low
    return "no single cause is significant" if low is not None and low > 0 else "no significant loss"


def _segments(loss: Loss) -> Iterator[Segment]:
    """The segments of a strip. A gain (a negative part) has no width; the losses are scaled to the total loss."""
    left = min(1.0, max(0.0, loss.kept.center))
    yield Segment(begin=0.0, width=_percent(left), says=f"{efficiency_text(loss.kept)} of the ideal speed")
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
    return f"{part.label}: {share_text(part.share)}"


def _percent(value: float) -> float:
    return round(100 * value, 3)
