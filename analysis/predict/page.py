"""The page of a rehearsal: what is predicted of each training, its jobs, and what is assumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlscale.analysis.declare import Column, Sentence, TableOf
from dlscale.analysis.plots import Block, Point
from dlscale.analysis.predict.plots import efficiency_plot
from dlscale.analysis.predict.render import prediction_table
from dlscale.analysis.records import engine_text
from dlscale.analysis.render.html.content import Page, Section
from dlscale.analysis.render.html.page import looks
from dlscale.analysis.text import EVIDENCE, listed, number, plural, workload_title
from dlscale.benchmarks.records.prediction import PredictionRecord

Job = Mapping[str, Any]  # of rehearsal.json

JOBS = TableOf[Job](
    name="jobs",
    caption="Jobs",
    columns=(
        Column("job", lambda job: str(job["job"]), numeric=False),
        Column("nodes", lambda job: job["num_nodes"]),
        Column("launches", lambda job: job["num_launches"]),
        Column("time", lambda job: number(job["seconds"] / 60), unit="min"),
        Column("billed", lambda job: job["billed_node_hours"], unit="node-hours"),
    ),
    data=dict,
)


def rehearsal_page(
    records: Sequence[PredictionRecord], jobs: Sequence[Job], *, system: str, name: str, command: str
) -> Page:
    """The page of the predictions of a rehearsal on `system`, which `command` made; `name` is its folder's."""
    trainings = _trainings(records)
    names = list(dict.fromkeys(workload_title(one.workload) for one in records))
    doubts = dict.fromkeys(doubt for one in records for doubt in one.doubts)
    sections = [
        Section(name="predicted", title="Efficiency", blocks=tuple(_curves(trainings)), answers=True),
        Section(name="jobs", title="Jobs", blocks=(JOBS.of(jobs),), answers=True),
        Section(name="next", title="What to do next", blocks=_next(system, command), answers=True),
        Section(name="assumed", title="What is assumed", blocks=tuple(_assumptions(records))),
    ]
    sections = [section for section in sections if section.blocks and (section.name != "jobs" or jobs)]
    return Page(
        title=f"How {listed(names) or 'a study'} would scale on {system}",
        facts=(
            ("Rehearsal", name),
            ("Nodes", ", ".join(map(str, sorted({one.num_nodes for one in records})))),
        ),
        evidence=EVIDENCE["simulated"],
        summary=(
            f"Nothing was measured on {system}.",
            *(_headline(own, several=len(trainings) > 1) for own in trainings),
        ),
        strips=(),
        warnings=((f"This rests on {plural(len(doubts), 'assumption')}.", "assumed"),) if doubts else (),
        sections=tuple(sections),
        looks=looks(block for section in sections for block in section.blocks),
        origin=f"{command}; commit {records[0].commit}" if records else command,
    )


def _trainings(records: Iterable[PredictionRecord]) -> list[list[PredictionRecord]]:
    groups: dict[tuple[object, ...], list[PredictionRecord]] = {}
    for one in records:
        groups.setdefault((one.workload, one.preset, one.framework, one.batch), []).append(one)
    return list(groups.values())


def _headline(records: Sequence[PredictionRecord], *, several: bool) -> str:
    """The efficiency of each backend on the most nodes."""
    most = max(one.num_nodes for one in records)
    last = [one for one in records if one.num_nodes == most]
    training = f"{workload_title(last[0].workload)} ({last[0].framework}): " if several else ""
    found = [f"{_efficiency(one)} over {one.carrier}" for one in last]
    return f"{training}Predicted efficiency on {plural(most, 'node')}: {listed(found)}."


def _efficiency(record: PredictionRecord) -> str:
    low, center, high = (
        f"{100 * share:.0f}"
        for share in (record.efficiency.low, record.efficiency.center, record.efficiency.high)
    )
    return f"{center} % [{low}, {high}]"


def _curves(trainings: Sequence[Sequence[PredictionRecord]]) -> Iterator[Block]:
    for index, records in enumerate(trainings):
        table = replace(prediction_table(records), name=f"prediction-{index}")
        says = _headline(records, several=False)
        plot = efficiency_plot(records, name=f"efficiency-{index}", title=table.caption, says=says)
        series = [
            replace(one, points=tuple(_told(point, one.name) for point in one.points)) for one in plot.series
        ]
        yield replace(plot, series=tuple(series), notes=(f"Bands: {records[0].method}.",))
        yield table


def _told(point: Point, name: str) -> Point:
    limits = f" [{100 * (point.low or 0):.1f}, {100 * (point.high or 0):.1f}]"
    return replace(point, lines=(f"{name}, {point.x:g} nodes", f"{100 * point.y:.1f} %{limits}, predicted"))


def _next(system: str, command: str) -> tuple[Block, ...]:
    return (Sentence(text=f"On {system} the same command submits these jobs and measures: {command}."),)


def _assumptions(records: Sequence[PredictionRecord]) -> Iterator[Block]:
    """What every prediction rests on, each once."""
    texts = [text for one in records for text in _basis(one)]
    yield from (Sentence(text=text) for text in dict.fromkeys(texts))


def _basis(record: PredictionRecord) -> Iterator[str]:
    yield f"Profile ({record.profile_evidence}): {record.profile_source}."
    yield f"Network: {record.network_source}."
    yield from (f"Noise: {text}." for text in record.noise)
    if record.noise_not_measured:
        yield f"Not modelled: {'; '.join(record.noise_not_measured)}."
    yield from (f"{doubt[0].upper()}{doubt[1:]}." for doubt in record.doubts)
    yield f"Engine: {engine_text(record)}."
