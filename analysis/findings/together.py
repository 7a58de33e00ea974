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

from dlscale.analysis.curves import Curve, Value, curves_of, missing_from
from dlscale.analysis.declare import Axis, Column, Figure, Plot, Sentence, Shown, Table, TableOf, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.curve_plots import (
    IDEAL,
    Say,
    against_backend,
    against_none,
    rank_axis,
    rate_axis,
    samples_text,
    says,
    series_of,
    throughput_of,
)
from dlscale.analysis.findings.scaling import SCALING, ScalingRow, base_text
from dlscale.analysis.findings.small_print import scaling_lines, span, warning
from dlscale.analysis.measured import Measured
from dlscale.analysis.statistics import LEVEL
from dlscale.analysis.text import listed, percent, workload_title


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
        """The rows of all its cells."""
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
    return (
        Finding(
            name="efficiency",
            title="Efficiency",
            compute=lambda _: members,
            plots=lambda own: together_plots(own, "efficiency"),
        ),
        Finding(
            name="studies",
            title="Studies",
            compute=lambda _: members,
            lead=UNPAIRED,
            table=STUDIES,
            sentences=lambda _: (Sentence(text=sentence) for sentence in compared),
        ),
        Finding(
            name="throughput",
            title="Throughput",
            compute=lambda _: members,
            plots=lambda own: together_plots(own, "throughput"),
        ),
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


def together_plots(members: Sequence[Member], what: str) -> Iterator[Plot]:
    """A plot per training that is the same but for the machine and its environment."""
    for index, (alike, own) in enumerate(trainings_of(members)):
        if plot := together_plot(alike, own, what, index):
            yield plot


def together_plot(
    alike: Family, own: Sequence[tuple[Member, Sequence[ScalingRow]]], what: str, index: int = 0
) -> Plot | None:
    """The `throughput` or `efficiency` of a training in all studies; None where no row has more than its base's."""
    value, say = efficiency_of(own) if what == "efficiency" else (throughput_of, samples_text)
    curves = [curve for member, rows in own for curve in named_curves(member, rows, value)]
    shown = [row for curve in curves for row in curve.rows]
    if not shown or (what == "efficiency" and all(row.cell.num_ranks == row.base_ranks for row in shown)):
        return None
    title = (
        f"{workload_title(alike.workload)} {alike.preset}, {alike.framework}, {alike.scaling_mode} scaling"
    )
    return Plot(
        name=f"{what}-{index}",
        title=title,
        says=" ".join(
            f"{member.label}: {says(what.capitalize(), rows, value, say)}"
            for member, rows in own
            if curves_of(rows, value)
        ),
        x=rank_axis(shown),
        y=_efficiency_axis(shown, value) if what == "efficiency" else rate_axis(shown),
        series=series_of(curves, value, say=say, unit="block" if what == "efficiency" else "launch"),
        guides=(IDEAL,) if what == "efficiency" else (),
        notes=(f"{alike.constants}.", *(bases_text(own, value) if what == "efficiency" else ())),
        table="numbers",
    )


def trainings_of(
    members: Sequence[Member],
) -> list[tuple[Family, list[tuple[Member, list[ScalingRow]]]]]:
    """Trainings that are the same but for the machine and its environment, each with every study's rows of it."""
    families = [family for member in members for family in member.study.families]
    return [
        (
            alike,
            [(member, [row for row in member.rows if _alike(row.family) == alike]) for member in members],
        )
        for alike in dict.fromkeys(map(_alike, families))
    ]


def _alike(family: Family) -> Family:
    return replace(family, system="", environment="")


def named_curves(member: Member, rows: Sequence[ScalingRow], value: Value) -> list[Curve]:
    """The curves of a study's rows, named for it."""
    return [replace(curve, name=f"{curve.name}, {member.label}") for curve in curves_of(rows, value)]


def efficiency_of(own: Sequence[tuple[Member, Sequence[ScalingRow]]]) -> tuple[Value, Say]:
    """Efficiency against (a) where every study has it on more ranks than its base case's, else against (b)."""
    everywhere = all(
        any(row.efficiency_none and row.cell.num_ranks != row.base_ranks for row in rows)
        for _, rows in own
        if rows
    )
    return (against_none if everywhere else against_backend), percent


def bases_text(own: Sequence[tuple[Member, Sequence[ScalingRow]]], value: Value) -> Iterator[str]:
    """Which base case the efficiencies of each study are relative to, in sentences."""
    which = "without a communication layer" if value is against_none else "of the same backend"
    for member, rows in own:
        if rows:
            yield f"{member.label}: relative to {base_text(rows)} {which}, of the same study."


def _efficiency_axis(rows: Sequence[ScalingRow], value: Value) -> Axis:
    intervals = [interval for row in rows if (interval := value(row))]
    high = max(interval.center if interval.high is None else interval.high for interval in intervals)
    return Axis(title="efficiency [%]", kind="percent", low=0, high=max(1.1, 1.05 * high))


def together_figures(members: Sequence[Member]) -> Iterator[tuple[str, Figure]]:
    """A figure per training of these studies, and the name of its file; none where no study has a rate."""
    trainings = trainings_of(members)
    stems = Counter(alike.file_stem for alike, _ in trainings)
    for alike, own in trainings:
        stem = alike.file_stem
        if stems[stem] > 1:
            stem += "-" + hashlib.sha256(repr(alike).encode()).hexdigest()[:6]
        if figure := together_figure(alike, own):
            yield f"{stem}-together", figure


def together_figure(alike: Family, own: Sequence[tuple[Member, Sequence[ScalingRow]]]) -> Figure | None:
    """Throughput, and efficiency where a study has it on more ranks than its base case's; None without a rate."""
    plots = [plot for what in ("throughput", "efficiency") if (plot := together_plot(alike, own, what))]
    if not plots or not plots[0].name.startswith("throughput"):
        return None
    value, _ = efficiency_of(own)
    values = [throughput_of, value][: len(plots)]
    drawn = [curve for one in values for member, rows in own for curve in named_curves(member, rows, one)]
    counts = [
        row.throughput.n for _, rows in own for row in rows if row.cell.control == "train" and row.throughput
    ]
    text = [f"Throughput: median over n = {span(counts)} launches, bars: its order-statistic interval."]
    if len(plots) > 1:
        text.append(f"Efficiency: geometric mean over blocks, bars: {100 * LEVEL:.0f} % t interval.")
        text += bases_text(own, value)
    rates = [curve for member, rows in own for curve in named_curves(member, rows, throughput_of)]
    if missing := [f"{member.label}: {what}" for member, rows in own for what in missing_from(rows, rates)]:
        text.append(f"No point: {', '.join(missing)}.")
    kept = {id(row) for curve in drawn for row in curve.rows}
    return Figure(
        name="together",
        title=plots[0].title,
        warning=next(filter(None, (warning(rows) for _, rows in own if rows)), ""),
        subtitle=alike.constants,
        small_print=(
            " ".join([*text, UNPAIRED]),
            *(f"{member.label}: {member.study.provenance.short_line()}." for member, rows in own if rows),
        ),
        panels=tuple(replace(plot, title="") for plot in plots),
        rows=[
            {"label": member.label, "of_study": member.name, **line}
            for member, rows in own
            for line in scaling_lines(row for row in rows if id(row) in kept)
        ],
    )
