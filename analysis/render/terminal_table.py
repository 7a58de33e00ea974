"""A scaling table in the terminal: numbers, a sentence per backend, the findings, and all problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.markup import escape

from dlscale.analysis.efficiency import SCALING, ScalingRow, ScalingTable, base_text, input_cost
from dlscale.analysis.families import Family
from dlscale.analysis.findings import backends, bounds, communication, energy, stragglers, waterfall_table
from dlscale.analysis.findings.checkpoints import CHECKPOINTS
from dlscale.analysis.findings.compression import COMPRESSION, compressed_cells
from dlscale.analysis.findings.hardware_use import HARDWARE, hardware_use
from dlscale.analysis.findings.ladder import LADDER, ladder_sentences, ladder_title, rungs
from dlscale.analysis.findings.late_gradients import LATE_GRADIENTS
from dlscale.analysis.findings.noise_scale import NOISE, noise_scales
from dlscale.analysis.findings.pareto import PARETO, priced
from dlscale.analysis.findings.predicted_points import PREDICTED_POINTS, SimulatedPoint, lead_sentences
from dlscale.analysis.findings.predicted_solutions import PREDICTED, predictions, shown_points
from dlscale.analysis.findings.productivity import PRODUCTIVITY, stored_changes
from dlscale.analysis.findings.profiles import PROFILES
from dlscale.analysis.findings.staleness import STALENESS
from dlscale.analysis.findings.startup import STARTUP
from dlscale.analysis.records import why_unusable
from dlscale.analysis.render.grid import render_legend, render_table
from dlscale.analysis.text import CONTROL_NAMES, backend_name, efficiency_text, plural, rate
from dlscale.benchmarks.records.files import BadFile


def render_scaling(table: ScalingTable, *, bad_files: Sequence[BadFile] = ()) -> RenderableType:
    """The full text report of a study, for `rich.console.Console.print`."""
    parts: list[RenderableType] = []
    for ladder in table.ladders:
        parts += [f"[bold]{escape(ladder_title(ladder))}[/bold]", *map(escape, ladder_sentences(ladder))]
        parts += render_table(LADDER.of(rungs([ladder])), caption=False)
    for family in table.families:
        parts += _render_family(table.of(family), family)
        for comparison in table.comparisons_of(family):
            parts += [*backends.render_comparison(comparison), ""]
        parts += waterfall_table.render_waterfalls(table.waterfalls_of(family))
        parts += communication.render_communication(table.exchanges_of(family))
        parts += stragglers.render_stragglers(table.lateness_of(family))
    parts += _render_predicted(table.predicted)
    if table.rows:
        parts += render_legend(SCALING.legend)
    else:
        parts.append("No records: nothing has been measured yet.")
    if table.comparisons:
        parts += render_legend(backends.BACKENDS.legend)
    if table.waterfalls:
        parts += render_legend(waterfall_table.LOSSES.legend)
    if table.exchanges:
        parts += render_legend(communication.BUCKETS.legend)
    parts += render_table(COMPRESSION.of(compressed_cells(table.launches)))
    parts += render_table(PARETO.of(priced(table.solutions, table.energies)))
    noises = noise_scales(table.solutions)
    parts += render_table(NOISE.of(noises))
    parts += render_table(PREDICTED.of(shown_points(predictions(noises, table.weak_scaling))))
    parts += render_table(PROFILES.of(table.profiles))
    parts += render_table(STARTUP.of(table.start_ups))
    parts += render_table(CHECKPOINTS.of(table.savings))
    parts += render_table(STALENESS.of(table.stalenesses))
    parts += render_table(LATE_GRADIENTS.of(table.late_gradients))
    parts += render_table(HARDWARE.of(hardware_use(table.rows)))
    parts += render_table(energy.energy_table(table.energies))
    if unknown := energy.unknown_energy(table.energies):
        parts += render_legend(unknown)
    parts += render_table(PRODUCTIVITY.of(stored_changes(table.pairs)))
    parts += _problems(table, bad_files)
    return Group(*parts)


def _render_family(rows: Sequence[ScalingRow], family: Family) -> Iterator[RenderableType]:
    yield f"[bold]{escape(family.title)}[/bold]"
    yield escape(family.constants)
    if pair := rows[0].pair:
        yield escape(pair.verdict) if pair.comparable else f"[bold]{escape(pair.verdict)}[/bold]"
    yield from render_table(SCALING.of(rows), caption=False, legend=False)
    for _, group in groupby(rows, key=lambda row: (row.cell.control, backend_name(row.cell), row.evidence)):
        if sentence := efficiency_summary(list(group)):
            yield escape(sentence)
    for row in rows:
        if sentence := input_cost(row):
            yield escape(sentence)
    for sentence in bounds.bound_sentences([(row.cell, row.limits) for row in _on_most_ranks(rows)]):
        yield escape(sentence)
    yield ""


def _render_predicted(points: Sequence[SimulatedPoint]) -> Iterator[RenderableType]:
    """The predictions, by themselves; nothing without any."""
    if points:
        yield from render_table(PREDICTED_POINTS.of(points))
        yield from map(escape, lead_sentences(points))
        yield ""


def efficiency_summary(rows: Sequence[ScalingRow]) -> str:
    """A sentence on a backend's efficiency at its largest number of ranks; empty without a training on several."""
    scaled = [row for row in rows if row.cell.control == "train" and row.cell.num_ranks > 1]
    if not scaled:
        return ""
    row = max(scaled, key=lambda row: (row.throughput is not None, row.cell.num_ranks))
    name, ranks = backend_name(row.cell), f"{row.cell.num_ranks} ranks"
    if row.evidence not in (None, "measured"):
        name += f" ({row.evidence})"
    if row.throughput is None:
        return f"{name}: no number on more than 1 rank ({row.num_launches} of {row.num_planned} launches)."
    against_none, against_backend = row.efficiency_none, row.efficiency_backend
    if against_none is None and against_backend is None:
        return f"{name}: {rate(row.throughput)} samples/s on {ranks}; no base case, so no efficiency."
    base = base_text([row])
    if against_none is None:
        lacking = "no single-rank baseline" if row.base_ranks == 1 else f"none was not measured on {base}"
        return (
            f"{name}: scaling efficiency {efficiency_text(against_backend)} at {ranks} versus its own {base}; "
            f"{lacking}."
        )
    if row.cell.backend == "none":
        return (
            f"{name}: efficiency {efficiency_text(against_none)} at {ranks} without communication; the rest is lost to "
            "sharing the machine."
        )
    own = f" ({efficiency_text(against_backend)} versus its own {base})" if against_backend else ""
    return f"{name}: scaling efficiency {efficiency_text(against_none)} at {ranks}{own}."


def _on_most_ranks(rows: Iterable[ScalingRow]) -> Iterable[ScalingRow]:
    """The last measured row on the most ranks, for each backend that exchanges gradients."""
    bounded = [row for row in rows if row.limits and row.cell.backend != "none"]
    return {(backend_name(row.cell), row.evidence): row for row in bounded}.values()


def _problems(table: ScalingTable, bad_files: Iterable[BadFile]) -> Iterator[str]:
    for index, drift in enumerate(table.drifts):
        if index == 0:
            yield "[bold]Drift of the nodes while jobs ran[/bold]"
        yield f"  {escape(drift.text)}" if drift.steady else f"  [bold]{escape(drift.text)}[/bold]"
    for index, record in enumerate(table.failures):
        if index == 0:
            yield "[bold]Failed launches[/bold]"
        cell = record.case.cell
        whose = f"{cell.workload} {cell.framework}" if len(table.families) > 1 else ""
        what = ", ".join(filter(None, (whose, backend_name(cell), CONTROL_NAMES[cell.control])))
        where = f"{what}, {plural(cell.num_ranks, 'rank')}"
        reason = why_unusable(record)
        yield escape(f"  {where}, block {record.case.block}, attempt {record.attempt}: {reason}")
    for index, bad in enumerate(bad_files):
        if index == 0:
            yield "[bold]Files that are not records[/bold]"
        yield escape(f"  {bad.path}: {bad.reason}")
