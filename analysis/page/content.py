"""From a scaling table, its records and what is known beside them to the content of the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dlscale.analysis import productivity
from dlscale.analysis.contrasts.contrast import Contrasts
from dlscale.analysis.page import exchange, heading
from dlscale.analysis.page.causes import Causes
from dlscale.analysis.page.contrasted import lead, told
from dlscale.analysis.page.curves import efficiency_plots, own_efficiency_plots, throughput_plots
from dlscale.analysis.page.launches import Launch, by_cell, launch_plot, launches_of
from dlscale.analysis.page.model import Block, Page, Section, Table, Text
from dlscale.analysis.page.plot_model import Losses, Plot
from dlscale.analysis.page.rules import judged
from dlscale.analysis.page.rules.facts import Facts
from dlscale.analysis.page.series import looks, tags_of
from dlscale.analysis.page.sound import StudyFacts, left_out
from dlscale.analysis.page.standing_out import standing_out
from dlscale.analysis.page.strips import strips
from dlscale.analysis.page.summary import on_most_ranks, summary
from dlscale.analysis.page.tables import backends, costs, energy, environment, failures, numbers, outliers
from dlscale.analysis.page.tables.contrasts import contrast_table
from dlscale.analysis.scaling import ScalingTable
from dlscale.analysis.words import input_cost
from dlscale.benchmarks.record import Record
from dlscale.benchmarks.record_files import BadFile


def page_of(
    table: ScalingTable,
    records: Iterable[Record],
    *,
    bad_files: Sequence[BadFile] = (),
    study: StudyFacts | None = None,
    causes: Causes | None = None,
    contrasts: Contrasts | None = None,
) -> Page:
    """The page of a study: `table`, `causes` and `contrasts` are made of `records`.

    The same records give the same page: nothing in it depends on when it is made.
    """
    records = list(records)
    study, causes = study or StudyFacts(), causes or Causes()
    launches = launches_of(records)
    efficiency = efficiency_plots(table, causes)
    rates = throughput_plots(table)
    own = own_efficiency_plots(table)
    drawn = looks(table.rows)
    every = launch_plot(launches, standing_out(table.rows))
    facts = Facts(
        table=table,
        launches=launches,
        groups=by_cell(launches),
        records=records,
        bad_files=bad_files,
        study=study,
        efficiency=efficiency,
        plots=[*efficiency, *rates, *own, *([every] if every else [])],
        contrasts=contrasts,
    )
    sections = [
        _section("losses", "Where the speed goes", _losses(causes)),
        _contrasts(contrasts),
        _section("backends", "Backends beside each other", _backends(table)),
        _section(
            "exchange",
            "The exchange by itself",
            exchange.exchange_blocks(table.exchanges, drawn),
            lead=exchange.LEAD,
        ),
        _section("throughput", "Throughput", rates),
        _section("own", "Against one rank of the same backend", own, lead=OWN),
        _section("numbers", "All numbers", [numbers.numbers_table(table.rows)] if table.rows else []),
        _section("launches", "Every launch", _launches(table, launches, every)),
        _section("energy", "Energy", _energy(table, records)),
        _section("costs", "Start, input and saving", _costs(table)),
        _section("gaps", "What is missing", _gaps(table, study, bad_files)),
        _section("productivity", "What it takes in a script", _known(_changes(table))),
        _section("environment", "Environment", _environment(records), folded=True),
    ]
    return Page(
        title=heading.title(table),
        facts=heading.facts(table, records, study),
        evidence=heading.evidence(table),
        summary=summary(table, causes.losses, contrasts),
        strips=strips(causes.losses),
        warnings=heading.warnings(table, study, bad_files),
        first=tuple(efficiency),
        sections=tuple(section for section in sections if section.blocks),
        rules=judged(facts),
        looks=drawn,
        origin=table.provenance.short_line(),
    )


OWN = "What each backend loses by scaling alone: its fixed costs on 1 rank are left out."


def _section(
    name: str, title: str, blocks: Iterable[Block], *, lead: str = "", folded: bool = False
) -> Section:
    return Section(name=name, title=title, blocks=tuple(blocks), lead=lead, folded=folded)


def _losses(causes: Causes) -> Iterator[Block]:
    if causes.losses:
        yield Losses(name="loss-plots", losses=tuple(on_most_ranks(causes.losses)))
    yield from causes.unknown
    if causes.losses:
        yield backends.loss_table(causes.losses)
    yield from causes.late
    yield from causes.heat_maps


def _backends(table: ScalingTable) -> Iterator[Block]:
    yield from backends.verdicts(table.comparisons)
    yield from _known(backends.comparison_table(table.comparisons))


def _contrasts(found: Contrasts | None) -> Section:
    """Rows in the table and, for the most ranks, sentences."""
    title = "Which differences are beyond chance"
    if found is None:
        return _section("contrasts", title, ())
    return _section("contrasts", title, [*told(found), contrast_table(found)], lead=lead(found))


def _launches(table: ScalingTable, launches: Sequence[Launch], every: Plot | None) -> Iterator[Block]:
    if every:
        yield every
    yield from _known(outliers.outlier_table(table.rows))
    if launches:
        yield numbers.step_table(launches)


def _energy(table: ScalingTable, records: Sequence[Record]) -> Iterator[Block]:
    yield from _known(energy.energy_table(table.energies, records))
    if said := energy.unknown_energy(table.energies):
        yield said


def _costs(table: ScalingTable) -> Iterator[Block]:
    for row in table.rows:
        if said := input_cost(row):
            yield Text(text=f"{row.cell.workload}, {row.cell.framework}, {said}", tags=tags_of(row.cell))
    yield from _known(costs.start_table(table.start_ups))
    yield from _known(costs.saving_table(table.savings))


def _gaps(table: ScalingTable, study: StudyFacts, bad_files: Sequence[BadFile]) -> Iterator[Block]:
    silent = sum(row.num_planned - row.num_launches for row in table.rows)
    if study.running and silent:
        yield Text(
            text=f"The study is still running: {silent} planned launches have given no number yet.",
            strong=True,
        )
    for said in left_out(study, bad_files):
        yield Text(text=f"Left out: {said}.")
    for one in table.drifts:
        yield Text(text=f"{one.text}.", strong=one.steady is False)
    yield from _known(failures.failure_table(table.failures))
    yield from _known(failures.file_table(bad_files))


def _changes(table: ScalingTable) -> Table | None:
    return costs.productivity(productivity.stored(table.pairs))


def _environment(records: Sequence[Record]) -> Iterator[Block]:
    yield from _known(environment.node_table(records))
    yield from _known(environment.settings_table(records))


def _known(table: Table | None) -> Iterator[Table]:
    if table:
        yield table
