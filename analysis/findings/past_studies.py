"""A study as its history keeps it: a number of each metric and cell, what it was measured with, and when.

Studies belong to one history if they agree in what must be the same (`PastStudy.key`): the system, the kind of node,
the kind of evidence, the seed and the rules of measuring. Software, kernel, driver and the measured code may change;
they are `facts`, and the history says where they did. A cell is the same in two studies if it has the same id.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.between_studies import Group
from dlscale.analysis.findings import solution_table
from dlscale.analysis.findings.communication_only import communication_only
from dlscale.analysis.findings.record_fields import RecordValues, field_at, record_values
from dlscale.analysis.launches import latest_good
from dlscale.analysis.measured import Measured
from dlscale.analysis.metrics import metrics_of
from dlscale.analysis.statistics import Interval, half_width
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.expectations import PastCell, PastNumber, PastStudy

Series = tuple[str, str]  # the name of a metric, the id of a cell
MeasuredNumber = tuple[PastCell, PastNumber]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryMetric:
    """A metric of a history; `of` makes the numbers of a study. `worse` and `better` say how a cell changed."""

    name: str
    title: str
    of: Callable[[Measured], Iterator[MeasuredNumber]]
    unit: str = "s"  # empty: a share
    higher_is_better: bool = False
    worse: str = "slower"
    better: str = "faster"


def past_study(study: Measured, *, place: str) -> PastStudy:
    """What a history keeps of a study. Raises UsageError if it has no good record, or its records disagree."""
    good = [record for record in latest_good(study.records) if record.case.cell.control != "canary"]
    if not good:
        raise UsageError(f"no good record ({len(study.records)} failed)")
    cells: dict[str, PastCell] = {}
    numbers: dict[str, dict[str, PastNumber]] = {}
    for metric in METRICS:
        for past, number in metric.of(study):
            cells[past.cell.id] = past
            numbers.setdefault(metric.name, {})[past.cell.id] = number
    # All records of a study share these; those of a large launch say most.
    values = record_values(max(good, key=lambda record: record.case.cell.num_ranks))
    return PastStudy(
        name=study.name,
        place=place,
        begun=min(record.started_at for record in good),
        data_hash=study.provenance.data_hash,
        key=dict(_chosen(values, _must_agree)),
        facts=dict(_chosen(values, _may_change)),
        cells=cells,
        numbers=numbers,
    )


def key_differences(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """What must agree and does not, `cpu_model EPYC, here Xeon`, in the order of the fields."""
    return [
        f"{text_of(name)} {shown(a.get(name))}, here {shown(b.get(name))}"
        for name in {**a, **b}
        if a.get(name) != b.get(name)
    ]


def code_difference(a: PastStudy, b: PastStudy) -> list[str]:
    """That the measured code is another, which a history allows and an acceptance does not."""
    same = a.facts.get(SOURCE) == b.facts.get(SOURCE)
    return (
        [] if same else ["the measured code of dlscale is another; measure with the release that recorded it"]
    )


def fact_changes(before: PastStudy, after: PastStudy) -> list[tuple[str, str]]:
    """What was recorded otherwise than in the study before, as (name, what): `torch`, `2.12.0 -> 2.13.0`."""
    names = [
        name for name in {**before.facts, **after.facts} if before.facts.get(name) != after.facts.get(name)
    ]
    return [
        (text_of(name), f"{shown(before.facts.get(name))} -> {shown(after.facts.get(name))}")
        for name in names
    ]


def text_of(path: str) -> str:
    """A field in words: `torch`, `kernel`."""
    field = field_at(path)
    return field.title.removeprefix("version of ").removeprefix("machine: ") if field else path


def shown(text: str | None) -> str:
    """A field's value, digests and lists shortened."""
    if text is None:
        return "-"
    return text[:12] if len(text) >= DIGEST and text.isalnum() else text[:LONGEST]


DIGEST, LONGEST = (
    16,
    40,
)  # characters from which a text without blanks is a digest, and at which others are cut
COMMIT, SOURCE = "fingerprint.commit", "fingerprint.source_digest"
CODE = (SOURCE, COMMIT)


def _must_agree(path: str) -> bool:
    """Whether studies of one history agree in it: what blocks a comparison beside cells and code, and the node."""
    if path in CODE or path.startswith("case."):
        return False
    field = field_at(path)
    of_node = path.startswith("fingerprint.node.") and path != "fingerprint.node.kernel"
    return path in ("system", "nodes[].devices") or of_node or bool(field and field.kind == "blocking")


def _may_change(path: str) -> bool:
    """Whether a change of it marks the history: versions, kernel, driver, the machine's settings, the code."""
    if path == "fingerprint.code_digest" or _must_agree(path):
        return False  # the source says it, or it cannot change
    marked = ("fingerprint.", "nodes[].", "environment_variables.")
    field = field_at(path)
    return path in CODE or bool(field and field.kind == "warn" and path.startswith(marked))


def _chosen(values: RecordValues, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    chosen = ((field_at(path), path) for path in values if wanted(path))
    for _, path in sorted((field.position if field else 0, path) for field, path in chosen):
        value = values[path]
        yield path, " | ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def groups_of(studies: Sequence[PastStudy]) -> tuple[list[Group], list[list[Series]]]:
    """The numbers of these studies as logarithms, a group per metric, and the series of each group's columns.

    A cell that is in one study alone has no history.
    """
    groups, names = [], []
    for metric in METRICS:
        counts = Counter(cell_id for study in studies for cell_id in study.numbers.get(metric.name, ()))
        ids = [cell_id for cell_id, count in counts.items() if count > 1]
        if not ids:
            continue
        own = [[study.number(metric.name, cell_id) for cell_id in ids] for study in studies]
        within = np.array([[one.within if one else math.nan for one in row] for row in own])
        groups.append(
            Group(
                values=np.array([[math.log(one.value) if one else math.nan for one in row] for row in own]),
                launches=np.array([[one.launches if one else 1 for one in row] for row in own], float),
                within=np.nanmean(within, axis=0),
            )
        )
        names.append([(metric.name, cell_id) for cell_id in ids])
    return groups, names


def _past(cell: Cell, evidence: str) -> PastCell:
    return PastCell.model_validate({"cell": cell, "evidence": evidence})


def _number(interval: Interval | None, logs: Iterable[float]) -> PastNumber | None:
    """A number with the variance of the launches' logarithms; None where it is not known."""
    values = list(logs)
    if interval is None or not 0 < interval.center < math.inf:
        return None
    within = float(np.var(values, ddof=1)) if len(values) > 1 else 0.0
    return PastNumber(value=interval.center, launches=max(interval.n, 1), within=within)


def _throughputs(study: Measured) -> Iterator[MeasuredNumber]:
    for one in study.once(metrics_of):
        launches = one.launches
        number = _number(one.throughput, map(math.log, launches.samples_per_second.values()))
        if launches.cell.control == "train" and number:
            yield _past(launches.cell, one.evidence), number


def _efficiencies(study: Measured) -> Iterator[MeasuredNumber]:
    """Against `none`, of all cells but the base case, whose efficiency is 1 by definition."""
    for one in study.once(metrics_of):
        ratio, launches = one.against_none.ratio, one.launches
        if ratio is None or one.against_none.median is None or ratio.center <= 0:
            continue
        within = 0.0
        if ratio.low and ratio.high:
            within = (math.log(ratio.high / ratio.low) / 2 / half_width(ratio.n)) ** 2
        yield (
            _past(launches.cell, one.evidence),
            PastNumber(value=ratio.center, launches=max(ratio.n, 1), within=within),
        )


def _exchanges(study: Measured) -> Iterator[MeasuredNumber]:
    for one in communication_only(study.exchanges):
        if number := _number(one.seconds, map(math.log, one.by_block.values())):
            yield _past(one.cell, one.evidence), number


def _solutions(study: Measured) -> Iterator[MeasuredNumber]:
    """Of cells whose trainings all reached their target: of others the median is not that of all."""
    for row in solution_table.FINDING.of(study):
        seconds = [training.seconds for training in row.trainings if training.reached and training.seconds]
        number = _number(row.seconds, map(math.log, seconds))
        if number and len(seconds) == len(row.trainings):
            yield _past(row.cell, row.evidence), number


EFFICIENCY = "efficiency"
METRICS = (
    HistoryMetric(
        name="throughput", title="throughput", of=_throughputs, unit="samples/s", higher_is_better=True
    ),
    HistoryMetric(
        name=EFFICIENCY,
        title="efficiency",
        of=_efficiencies,
        unit="",
        higher_is_better=True,
        worse="lower",
        better="higher",
    ),
    HistoryMetric(name="exchange", title="exchange", of=_exchanges),
    HistoryMetric(name="solution", title="time to solution", of=_solutions, worse="later", better="sooner"),
)
BY_NAME: Mapping[str, HistoryMetric] = {metric.name: metric for metric in METRICS}
