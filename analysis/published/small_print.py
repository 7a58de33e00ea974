"""What stands below a published figure: what is public of it, what is said in words, whose series join it."""

from __future__ import annotations

from collections.abc import Sequence

from dlscale.analysis.provenance import Provenance
from dlscale.analysis.published.catalogue import Figure, Own
from dlscale.analysis.published.load import Published
from dlscale.analysis.published.marks import Plot
from dlscale.analysis.published.units import HALF_WIDTH


def small_print(published: Published, figure: Figure, plots: Sequence[Plot], where: Provenance) -> list[str]:
    """Paragraphs, the shortest way to find everything again."""
    lines = [f"Public: {figure.public} {figure.publication}."]
    if said := [_sentence(one.statement, one.kind, one.about) for one in published.statements_of(figure.id)]:
        lines.append(f"Said: {'. '.join(said)}.")
    if not all(plot.in_full for plot in plots):
        lines.append("The ends of axes without published values are ours.")
    lines += _not_drawn(published, figure, plots)
    lines.append(_ours(figure, plots, where))
    return lines


def _sentence(statement: str, kind: str, about: bool) -> str:
    mark = "" if kind == "text" else f" ({kind})"
    return f"{statement}{mark}" if not about or "about" in statement.lower() else f"About: {statement}{mark}"


def _not_drawn(published: Published, figure: Figure, plots: Sequence[Plot]) -> list[str]:
    """Values that the panels have no place for."""
    drawn = {mark.value for plot in plots for mark in plot.marks}
    lines = []
    if unplaced := [
        mark.value for plot in plots for mark in plot.marks if mark.x is None and figure.named_points
    ]:
        words = [f"{row.series} {row.printed} {row.y_unit} on a {row.system}" for row in unplaced]
        lines.append(f"Not on the axes, for the number of devices is not given: {', '.join(words)}.")
    lines += [
        f"{plot.panel.y_label.capitalize()}: derived from the published values."
        for plot in plots
        if plot.marks and all(mark.value.kind == "derived" for mark in plot.marks)
    ]
    if any(plot.panel.aside for plot in plots):
        lines.append("Points of one place are moved aside, to be told apart.")
    others = [
        row
        for row in published.values_of(figure.id)
        if row not in drawn and not row.quantity.endswith(HALF_WIDTH)
    ]
    if others:
        quantities = dict.fromkeys(row.quantity.replace("_", " ") for row in others)
        lines.append(f"Published besides, in results/published/{figure.id}.csv: {', '.join(quantities)}.")
    if any(mark.half_width for plot in plots for mark in plot.marks):
        notes = dict.fromkeys(
            row.note for row in published.values_of(figure.id) if row.quantity.endswith(HALF_WIDTH)
        )
        lines.append(f"Bars: {next(iter(notes)).split('; ')[-1]}.")
    return lines


def _ours(figure: Figure, plots: Sequence[Plot], where: Provenance) -> str:
    found = [point for plot in plots for point in plot.ours]
    data = f"Data {where.data_hash[:12]}."
    if found:
        studies = ", ".join(where.studies[1:])
        commits = ", ".join(commit[:12] for commit in where.commits)
        systems = ", ".join(where.systems)
        return (
            f"Ours: study {studies}; system {systems}; commit {commits}; bars as in docs/metrics.md. {data}"
        )
    if figure.own is None:
        return f"No study of ours measures this. {data}"
    return f"Nothing of ours yet; what would join: {wanted(figure.own)}. {data}"


def wanted(own: Own) -> str:
    """In words: what a cell must be."""
    words = [
        own.workload,
        own.preset and f"preset {own.preset}",
        own.scaling_mode and f"{own.scaling_mode} scaling",
        own.framework,
        own.backend,
        own.system and f"on {own.system}",
        own.device and f"device {own.device}",
        own.precision,
        own.local_batch and f"{own.local_batch} samples per rank",
        own.global_batch and f"{own.global_batch} samples over all ranks",
        own.data and f"{own.data} data",
        own.ranks_per_node and f"{own.ranks_per_node} rank{'s' * (own.ranks_per_node > 1)} per node",
    ]
    return ", ".join(word for word in words if word)
