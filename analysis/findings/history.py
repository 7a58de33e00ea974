"""A history of studies: each cell's metrics over time, where they changed, and what else changed there.

`between_studies.changes` has the test. Rows are of one metric and cell; those that changed come first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from statistics import median
from typing import Any

from dlscale.analysis.between_studies import MIN_BASELINES, POWER, Shift, changes
from dlscale.analysis.declare import Column, Sentence, TableOf, Value, shown_number, tags_of
from dlscale.analysis.families import Family, family_of
from dlscale.analysis.finding import PLACE_COLUMNS
from dlscale.analysis.findings.past_studies import BY_NAME, HistoryMetric, Series, fact_changes, groups_of
from dlscale.analysis.records import attributes
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.text import backend_name, number, plural, points, share_text
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.expectations import PastCell, PastStudy

AS_EXPECTED, UNKNOWN, ABSENT = "as expected", "too few studies", "not in the newest"


@dataclass(frozen=True, kw_only=True)  # no slots: values are computed at first use, and kept
class HistoryRow:
    """One metric of one cell over the studies of a history, `values` by study, None where it has none.

    `found` are its changes in order of time; `shift` is the last of them or, without one, the newest study against
    those before. It is None where there are too few studies.
    """

    metric: HistoryMetric
    past: PastCell
    studies: tuple[PastStudy, ...]
    values: tuple[float | None, ...]
    found: tuple[Shift, ...]
    shift: Shift | None

    @property
    def cell(self) -> Cell:
        return self.past.cell

    @cached_property
    def family(self) -> Family:
        return family_of(self.cell, system=self.studies[0].key.get("system", "unknown"))

    @property
    def evidence(self) -> str:
        return self.past.evidence

    @property
    def changed(self) -> bool:
        return bool(self.found)

    @property
    def worse(self) -> bool:
        """Whether its last change was for the worse, so that the newest study is worse than before."""
        return bool(self.found) and (self.found[-1].size < 0) == self.metric.higher_is_better

    @property
    def verdict(self) -> str:
        """`slower`, `higher`, `as expected`, or why there is none."""
        if not self.found:
            absent = ABSENT if self.newest is None else UNKNOWN
            return AS_EXPECTED if self.shift else absent
        return self.metric.worse if self.worse else self.metric.better

    @cached_property
    def levels(self) -> tuple[float, ...]:
        """The typical value of the stretch that each study is in: a geometric mean."""
        ends = [0, *(shift.place for shift in self.found), len(self.values)]
        stretches = [[value for value in self.values[a:b] if value] for a, b in pairwise(ends)]
        means = [math.exp(sum(map(math.log, own)) / len(own)) if own else math.nan for own in stretches]
        return tuple(mean for mean, (a, b) in zip(means, pairwise(ends), strict=True) for _ in range(a, b))

    @property
    def before(self) -> float | None:
        """The typical value before the last change or, without one, before the newest study."""
        if self.found:
            return self.levels[self.found[-1].place - 1]
        own = [value for value in self.values[:-1] if value]
        return math.exp(sum(map(math.log, own)) / len(own)) if own else None

    @property
    def newest(self) -> float | None:
        return self.values[-1]

    @property
    def change(self) -> Interval | None:
        """The shift as a share of the value before, with its corrected interval."""
        return change_of(self.shift) if self.shift else None

    @property
    def spread(self) -> float | None:
        """The standard deviation between studies, as a share."""
        return math.expm1(self.shift.spread) if self.shift else None

    @property
    def seen(self) -> float | None:
        """The smallest loss of the newest study that is shown with probability POWER, as a share."""
        return None if self.shift is None or self.found else 1 - math.exp(-self.shift.seen)

    @property
    def since(self) -> PastStudy | None:
        """The first study after the last change."""
        return self.studies[self.found[-1].place] if self.found else None

    @property
    def where(self) -> str:
        """`ring on 2 ranks, throughput`."""
        return f"{cell_text(self.cell)}, {self.metric.title}"


def change_of(shift: Shift) -> Interval:
    """A shift as a share of the value before, with its corrected interval."""
    return Interval(
        center=math.expm1(shift.size),
        low=math.expm1(shift.size - shift.half_width),
        high=math.expm1(shift.size + shift.half_width),
        level=LEVEL,
        method="t over studies, Bonferroni",
        n=1,
    )


def cell_text(cell: Cell) -> str:
    """`ring on 2 ranks`."""
    return f"{backend_name(cell)} on {plural(cell.num_ranks, 'rank')}"


def history_rows(studies: Sequence[PastStudy]) -> tuple[HistoryRow, ...]:
    """The rows of a history, whose studies are in order of time: changes for the worse first, then others."""
    groups, names = groups_of(studies)
    tested = changes(groups)
    shifts = {(shift.group, shift.cell): (shift,) for shift in tested.latest}
    found: dict[tuple[int, int], tuple[Shift, ...]] = {}
    for shift in tested.found:
        place = shift.group, shift.cell
        found[place] = (*found.get(place, ()), shift)
    return rows_of(studies, names, shifts | found)


def rows_of(
    studies: Sequence[PastStudy],
    names: Sequence[Sequence[Series]],
    shifts: Mapping[tuple[int, int], tuple[Shift, ...]],
) -> tuple[HistoryRow, ...]:
    """A row per series of each group, with its shifts: changes, or the newest study's if that is none."""
    cells = {cell_id: past for study in studies for cell_id, past in study.cells.items()}
    rows = []
    for group, own in enumerate(names):
        for column, (metric, cell_id) in enumerate(own):
            known = shifts.get((group, column), ())
            numbers = [study.number(metric, cell_id) for study in studies]
            rows.append(
                HistoryRow(
                    metric=BY_NAME[metric],
                    past=cells[cell_id],
                    studies=tuple(studies),
                    values=tuple(one.value if one else None for one in numbers),
                    found=tuple(shift for shift in known if shift.shown),
                    shift=known[-1] if known else None,
                )
            )
    return tuple(sorted(rows, key=lambda row: (not row.worse, not row.changed)))


def value_text(metric: HistoryMetric, value: float | None) -> Value:
    """A value of a metric; efficiencies in percent."""
    return shown_number(value, lambda one: f"{points(one)} %" if not metric.unit else number(one))


def _since(row: HistoryRow) -> str:
    return date_of(row.since, row.studies) if row.since else ""


def date_of(study: PastStudy, among: Sequence[PastStudy]) -> str:
    """The day of a study, with the time where another of them began on that day."""
    alike = sum(one.begun[:10] == study.begun[:10] for one in among)
    return study.begun[: 16 if alike > 1 else 10].replace("T", " ")


def signed(share: float) -> str:
    """`+4.1`: a share in percent."""
    return points(share, sign="+")


def _limits(row: HistoryRow) -> str:
    if row.change is None or row.change.low is None or row.change.high is None:
        return ""
    return f"{signed(row.change.low)} to {signed(row.change.high)}"


HISTORY = TableOf[HistoryRow](
    name="history",
    caption="Cells over time",
    columns=(
        *PLACE_COLUMNS,
        Column("metric", lambda row: row.metric.title, numeric=False),
        Column("unit", lambda row: row.metric.unit or "%", numeric=False, detail=True),
        Column("before", lambda row: value_text(row.metric, row.before)),
        Column("newest", lambda row: value_text(row.metric, row.newest)),
        Column(
            "change", lambda row: shown_number(row.change.center if row.change else None, signed), unit="%"
        ),
        Column("limits", _limits, unit="%", detail=True),
        Column("spread", lambda row: shown_number(row.spread, points), unit="%", detail=True),
        Column("seen from", lambda row: shown_number(row.seen, points), unit="%"),
        Column("verdict", lambda row: row.verdict, numeric=False),
        Column("since", _since, numeric=False),
    ),
    data=lambda row: history_data(row),
    legend=(
        "Change: the cell's last change or, without one, the newest study against those before; limits: at "
        f"{100 * LEVEL:.0f} % over all cells and dates together. Spread: standard deviation between studies. Seen "
        f"from: a change of the newest study that would be shown in {100 * POWER:.0f} % of cases."
    ),
    tags=lambda row: tags_of(row.cell),
    strong=lambda row: row.changed,
)


def history_data(row: HistoryRow) -> dict[str, Any]:
    """A row for programs; shares, not percent. `values` are by study, in the order of `studies`."""
    cell, change = row.cell, row.change
    return {
        **attributes(cell, "workload preset framework"),
        "backend": backend_name(cell),
        "scaling_mode": cell.scaling_mode,
        "num_ranks": cell.num_ranks,
        "cell": cell.id,
        "evidence": row.evidence,
        "metric": row.metric.name,
        "unit": row.metric.unit,
        "before": row.before,
        "newest": row.newest,
        "change": change and change.center,
        "change_low": change and change.low,
        "change_high": change and change.high,
        "p": row.shift and row.shift.p,
        **attributes(row, "spread seen verdict worse"),
        "since": row.since.begun if row.since else None,
        "since_study": row.since.place if row.since else None,
        "num_studies": sum(value is not None for value in row.values),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """A study of a history and what was recorded otherwise in the one before."""

    study: PastStudy
    changed: tuple[tuple[str, str], ...]  # (name, `before -> after`)

    @property
    def text(self) -> str:
        """`torch 2.12.0 -> 2.13.0; kernel 6.1 -> 6.2`; empty if nothing changed."""
        return "; ".join(f"{name} {change}" for name, change in self.changed)


def neighbours(studies: Sequence[PastStudy]) -> tuple[Neighbours, ...]:
    """Each study with what changed since the one before."""
    return tuple(
        Neighbours(study=study, changed=tuple(fact_changes(before, study)) if before else ())
        for before, study in zip([None, *studies], studies, strict=False)
    )


STUDIES = TableOf[Neighbours](
    name="studies",
    caption="Studies",
    columns=(
        Column("begun", lambda one: one.study.begun[:16].replace("T", " "), numeric=False),
        Column("study", lambda one: one.study.place, numeric=False),
        Column("data", lambda one: one.study.data_hash[:12], numeric=False),
        Column("changed since the one before", lambda one: one.text, numeric=False),
    ),
    data=lambda one: {
        "study": one.study.place,
        "begun": one.study.begun,
        "data_hash": one.study.data_hash,
        "changed": dict(one.changed),
    },
)


def sentences(rows: Sequence[HistoryRow]) -> Iterator[Sentence]:
    """What changed, when, and what else changed there; then how small a change would be seen."""
    if not rows:
        yield Sentence(text="No cell is in two of these studies.", strong=True)
        return
    studies = rows[0].studies
    cells = len({row.cell.id for row in rows})
    span = f"{studies[0].begun[:10]} to {studies[-1].begun[:10]}"
    changed = [row for row in rows if row.changed]
    head = f"{plural(len(studies), 'study').replace('studys', 'studies')} of {plural(cells, 'cell')}, {span}"
    if len(studies) <= MIN_BASELINES:
        yield Sentence(
            text=f"{head}: {MIN_BASELINES + 1} are needed to tell a change from their spread.", strong=True
        )
        return
    if not changed:
        yield Sentence(text=f"{head}: no cell changed.", strong=True)
    else:
        worse = sum(row.worse for row in rows)
        yield Sentence(
            text=f"{head}: {plural(len(changed), 'number')} changed, {worse} for the worse.", strong=True
        )
    marked = neighbours(studies)
    finds = sorted(((shift, row) for row in changed for shift in row.found), key=lambda find: find[0].place)
    for place, group in groupby(finds, key=lambda find: find[0].place):
        told = [f"{row.where} {share_text(change_of(shift), sign='+')}" for shift, row in group]
        with_it = f"changed there: {marked[place].text or 'nothing that is recorded'}"
        more = f" and {len(told) - MOST} more" if len(told) > MOST else ""
        yield Sentence(
            text=f"Since {date_of(studies[place], studies)}: {'; '.join(told[:MOST])}{more}; {with_it}."
        )
    yield from power(rows)


MOST = 6  # numbers in a sentence


def power(rows: Iterable[HistoryRow], *, num_baselines: int = 0) -> Iterator[Sentence]:
    """How small a change of the newest study would have been seen, by metric."""
    among = f"With {plural(num_baselines, 'baseline')} a" if num_baselines else "A"
    for metric in BY_NAME.values():
        seen = [row.seen for row in rows if row.metric is metric and row.seen is not None]
        if seen:
            text = (
                f"{among} change of {metric.title} by {points(median(seen))} % or more would be seen in the newest "
                f"study in four of five cases ({points(min(seen))} to {points(max(seen))} %, by cell)."
            )
            yield Sentence(text=text, quiet=True)


def on_screen(rows: Sequence[HistoryRow]) -> list[HistoryRow]:
    """What one screen shows: all rows, or of many those that changed and those of throughput."""
    if len(rows) <= SCREEN_ROWS:
        return list(rows)
    return [row for row in rows if row.changed or row.metric.name == "throughput"]


SCREEN_ROWS = 16
