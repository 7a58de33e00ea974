"""Several studies side by side, of two machines or two dates: each curve and each row is of one study and names it.

Numbers of different studies are unpaired: what else differed between them is in the difference, and nothing is
claimed of it. The renderers of one study show these findings.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlscale.analysis.curves import curves_of, missing_from
from dlscale.analysis.declare import Column, Sentence, Shown, Table, TableOf, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.curve_plots import against_backend, against_none, throughput_of
from dlscale.analysis.findings.efficiency import BACKEND, NONE, efficiency_plot, is_scaled
from dlscale.analysis.findings.scaling import SCALING, ScalingRow, base_text
from dlscale.analysis.findings.small_print import scaling_lines, span, warning
from dlscale.analysis.findings.throughput import throughput_plots
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Figure, Plot
from dlscale.analysis.records import named
from dlscale.analysis.text import RATIO_LIMITS, backend_name, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One of the studies: `label` is short and of it alone, `begun` the date of its first launch."""

    label: str
    name: str
    begun: str
    study: Measured
    warnings: tuple[str, ...] = ()

    @property
    def rows(self) -> Sequence[ScalingRow]:
        return scaling.FINDING.of(self.study)


UNPAIRED = (
    "Studies are not paired with each other: whatever else differed between them is in the difference of their "
    "numbers, and nothing is claimed of it."
)


def labels(members: Sequence[tuple[str, str, str]]) -> list[str]:
    """Labels of studies from (system, date, name): the first of these in which all differ, else name and system."""
    for place in range(3):
        if len({member[place] for member in members}) == len(members):
            return [member[place] for member in members]
    return [f"{name} on {system}" for system, _, name in members]


def title_of(members: Sequence[Member]) -> str:
    """`2 studies: cori and daint`."""
    return f"{len(members)} studies: {listed([member.label for member in members])}"


def together_findings(members: Sequence[Member], compared: Sequence[str]) -> tuple[Finding[Any], ...]:
    """What is shown of them, as findings of the first; `compared` are sentences on what differs between them."""

    def drawn(name: str) -> Finding[Any]:
        return Finding(
            name=name,
            answers=True,
            title=name.capitalize(),
            compute=lambda _: members,
            plots=lambda own: together_plots(own, name),
        )

    return (
        drawn("efficiency"),
        Finding(
            name="studies",
            answers=True,
            title="Studies",
            compute=lambda _: members,
            lead=UNPAIRED,
            table=STUDIES,
            sentences=lambda _: (Sentence(text=sentence) for sentence in compared),
        ),
        drawn("throughput"),
        Finding(
            name="numbers", title="All numbers", compute=lambda _: members, more=lambda own: (numbers(own),)
        ),
    )


def numbers(members: Sequence[Member], *, controls: bool = True) -> Table:
    """The rows of all studies, each with its study; without `controls` those of trainings alone."""
    items = [(member, row) for member in members for row in member.rows]
    return _NUMBERS.of(item for item in items if controls or item[1].cell.control == "train")


def numbers_json(members: Sequence[Member]) -> list[dict[str, object]]:
    """The rows of `numbers` for `--json`: those of each study's own report, with its name, label and data hash."""
    return [dict(_NUMBERS.data((member, row))) for member in members for row in member.rows]


def _of_row(show: Callable[[ScalingRow], Shown]) -> Callable[[tuple[Member, ScalingRow]], Shown]:
    return lambda item: show(item[1])


_NUMBERS = TableOf[tuple[Member, ScalingRow]](
    name="numbers",
    caption="All cells of all studies",
    columns=(
        Column("study", lambda item: item[0].label, numeric=False),
        *(
            Column(
                column.label, _of_row(column.show), column.unit, numeric=column.numeric, detail=column.detail
            )
            for column in SCALING.columns
        ),
    ),
    data=lambda item: {
        **SCALING.data(item[1]),
        "study": item[0].name,
        "label": item[0].label,
        "data_hash": item[0].study.provenance.data_hash,
    },
    legend=SCALING.legend,
    tags=lambda item: tags_of(item[1].cell),
    group=lambda item: item[0].label,
)
STUDIES = TableOf[Member](
    name="studies",
    caption="Studies on this page",
    columns=(
        Column("label", lambda member: member.label, numeric=False),
        Column("study", lambda member: member.name, numeric=False),
        Column("system", lambda member: ", ".join(member.study.provenance.systems), numeric=False),
        Column("begun", lambda member: member.begun, numeric=False),
        Column("commit", lambda member: _short(member.study.provenance.commits), numeric=False),
        Column("data", lambda member: member.study.provenance.data_hash[:12], numeric=False),
    ),
    data=lambda member: {
        "label": member.label,
        "study": member.name,
        "system": ", ".join(member.study.provenance.systems),
        "begun": member.begun,
        "commit": ", ".join(member.study.provenance.commits),
        "data_hash": member.study.provenance.data_hash,
    },
)


def _short(commits: Sequence[str]) -> str:
    return ", ".join(commit[:12] for commit in commits)


Training = tuple[Family, list[tuple[Member, list[ScalingRow]]]]


def trainings_of(members: Sequence[Member]) -> list[Training]:
    """Trainings that are the same but for the machine and its environment, each with every study's rows of it.

    Their curves are named for the study.
    """
    systems = listed(
        list(dict.fromkeys(family.system for member in members for family in member.study.families))
    )

    def alike(family: Family) -> Family:
        return replace(family, system=systems, environment="")

    def rows_of(member: Member, training: Family) -> list[ScalingRow]:
        own = (row for row in member.rows if row.cell.control == "train" and alike(row.family) == training)
        return [
            replace(row, cell=named(row.cell, f"{backend_name(row.cell)}, {member.label}")) for row in own
        ]

    families = dict.fromkeys(alike(family) for member in members for family in member.study.families)
    return [(family, [(member, rows_of(member, family)) for member in members]) for family in families]


def together_plots(members: Sequence[Member], what: str) -> Iterator[Plot]:
    """The `throughput` or `efficiency` of each training that has it in one of the studies."""
    for index, training in enumerate(trainings_of(members)):
        if plot := together_plot(training, what):
            yield replace(plot, name=f"{what}-{index}")


def together_plot(training: Training, what: str) -> Plot | None:
    """The plot of a training in all studies; None where no row has more than its base's.

    Efficiency is against `none` where every study has it on more ranks than its base case's, else against the same
    backend.
    """
    family, own = training
    every = [row for _, rows in own for row in rows]
    if what == "throughput":
        plots = throughput_plots([(family, tuple(every), ())])
        return replace(plots[0], guides=()) if plots else None
    everywhere = all(is_scaled(rows, against_none) for _, rows in own if rows)
    value, base = (against_none, NONE) if everywhere else (against_backend, BACKEND)
    if not is_scaled(every, value):
        return None
    plot = efficiency_plot(family, every, (), value=value, base=base)
    bases = [
        f"{member.label}: vs {base.format(base_text(rows))}, of the same study."
        for member, rows in own
        if rows
    ]
    return replace(plot, notes=(f"{family.constants}.", *bases))


def together_figures(members: Sequence[Member]) -> Iterator[tuple[str, Figure]]:
    """A figure per training of these studies, and the name of its file; none where no study has a rate."""
    trainings = trainings_of(members)
    stems = Counter(family.file_stem for family, _ in trainings)
    for training in trainings:
        family, stem = training[0], training[0].file_stem
        if stems[stem] > 1:
            stem += "-" + hashlib.sha256(repr(family).encode()).hexdigest()[:6]
        if figure := together_figure(training):
            yield f"{stem}-together", figure


def together_figure(training: Training) -> Figure | None:
    """Throughput, and efficiency where a study has it on more ranks than its base case's; None without a rate."""
    family, own = training
    rates, ratios = together_plot(training, "throughput"), together_plot(training, "efficiency")
    if rates is None:
        return None
    every = [row for _, rows in own for row in rows]
    counts = [row.throughput.n for row in every if row.throughput]
    text = [f"Throughput: median over n = {span(counts)} launches, bars: its order-statistic interval."]
    if ratios:
        text.append(f"Efficiency: geometric mean over blocks, bars: {RATIO_LIMITS}.")
        text += ratios.notes[1:]
    if missing := missing_from(every, curves_of(every, throughput_of)):
        text.append(f"No point: {', '.join(missing)}.")
    return Figure(
        name="together",
        title=rates.title,
        warning=next(filter(None, (warning(rows) for _, rows in own if rows)), ""),
        subtitle=family.constants,
        small_print=(
            " ".join([*text, UNPAIRED]),
            *(f"{member.label}: {member.study.provenance.short_line()}." for member, rows in own if rows),
        ),
        panels=tuple(replace(plot, title="") for plot in (rates, ratios) if plot),
        rows=[
            {"label": member.label, "of_study": member.name, **line}
            for member, rows in own
            for line in scaling_lines(row for row in rows if row.throughput)
        ],
    )
