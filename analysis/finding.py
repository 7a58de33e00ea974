"""A finding: one answer about a study, computed once and shown by every renderer.

A file in `findings` declares one or several, with arithmetic, table, sentences and plots; nothing else knows them by
name. Renderers loop over `collect`, which no finding can take down: one that raises says so in its own section. Columns
that the tables of several findings begin with are here, too.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from dlscale.analysis.declare import Column, Sentence, Table, TableOf, Value, shown_number
from dlscale.analysis.families import Family
from dlscale.analysis.form import Form
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Block, Figure
from dlscale.analysis.records import tokens_per_second
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import cell_name, number, workload_title
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record

T = TypeVar("T")
D = TypeVar("D")


def _nothing(_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True, kw_only=True)  # a generic class with slots cannot be subscripted in Python 3.11
class Finding(Generic[T]):
    """What is computed of a study, and how it is shown.

    `name` is the key of `--json` and the section of the page, unless the finding is shown `under` another one. A
    section has sentences, plots and tables, in this order: that of `table`, and those that `more` makes. `data` are the
    rows of `--json`, by default those of the table. `screen` is what one screen shows of it. `figures` are by the names
    of their files, and make the figure of a family; None where there is nothing to draw. `files` are
    figures of no family or of several, with the names of their files. The page begins with findings that are `answers`;
    all others are folded below them.
    """

    name: str
    title: str
    compute: Callable[[Measured], Sequence[T]]
    table: TableOf[T] | None = None
    more: Callable[[Sequence[T]], Iterable[Table]] = _nothing
    lead: str = ""
    sentences: Callable[[Sequence[T]], Iterable[Sentence]] = _nothing
    plots: Callable[[Sequence[T]], Iterable[Block]] = _nothing
    screen: Callable[[Measured], Iterable[Block]] = _nothing
    data: Callable[[Sequence[T]], Mapping[str, Any]] | None = None
    figures: Mapping[str, Callable[[Measured, Family, Form], Figure | None]] = field(default_factory=dict)
    files: Callable[[Measured, Form], Iterable[tuple[str, Figure]]] = lambda *_: ()
    under: str = ""
    answers: bool = False

    def of(self, measured: Measured) -> Sequence[T]:
        """The items of a study; other findings ask for them here, too."""
        return measured.once(self.compute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a finding says about a study, made once; a finding that raised an error has that as its only sentence.

    `blocks` are for the page and for full texts, `screen` is for one screen, `data` for programs.
    """

    finding: Finding[Any]
    blocks: tuple[Block, ...] = ()
    screen: tuple[Block, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


def load(names: Iterable[str], package: str) -> tuple[Finding[Any], ...]:
    """The findings that the modules of these names declare as `FINDINGS`, in order."""
    modules = (importlib.import_module(f"{package}.{name}") for name in names)
    return tuple(finding for module in modules for finding in module.FINDINGS)


def collect(findings: Iterable[Finding[Any]], measured: Measured) -> list[Found]:
    """What each finding says about a study. None takes the others down: one that raises an error says that instead."""
    return [_found(finding, measured) for finding in findings]


def or_else(default: D, make: Callable[[], T]) -> T | D:
    """What `make` gives; `default` where it rests on a finding that raised an error, which has told so by itself."""
    try:
        return make()
    except Exception:
        return default


def _found(finding: Finding[Any], measured: Measured) -> Found:
    try:
        return _said(finding, measured)
    except Exception as error:
        text = _why(finding, measured, error)
        return Found(finding=finding, blocks=(Sentence(text=text, strong=True),), error=text)


def _said(finding: Finding[T], measured: Measured) -> Found:
    items = finding.of(measured)
    tables = (finding.table.of(items), *finding.more(items)) if finding.table else tuple(finding.more(items))
    shown = (*finding.sentences(items), *finding.plots(items))
    return Found(
        finding=finding,
        blocks=(*shown, *(table for table in tables if table.rows)),
        screen=tuple(finding.screen(measured)),
        data=_data(finding, items),
    )


def _data(finding: Finding[T], items: Sequence[T]) -> Mapping[str, Any]:
    if finding.data:
        return finding.data(items)
    table = finding.table
    return {finding.name: [dict(table.data(item)) for item in items]} if table else {}


def _why(finding: Finding[Any], measured: Measured, error: Exception) -> str:
    """The error in one sentence, with the record that raises one by itself, if there is such a record."""
    what = " ".join(f"{type(error).__name__}: {error}".split())
    records = _culprit(finding, measured)
    if len(records) != 1:
        return f"{finding.title} could not be computed: {what}."
    name = f"{records[0].case.id}.{records[0].attempt}.json"
    return f"{finding.title} could not be computed, because of the record {name}: {what}."


def _culprit(finding: Finding[Any], measured: Measured) -> Sequence[Record]:
    """The fewest of the records that raise an error without the others, halving them as long as one half does.

    None where the finding raises even without a record.
    """
    if _raises(finding, measured, ()):
        return ()
    records: Sequence[Record] = measured.records
    while len(records) > 1:
        middle = len(records) // 2
        halves = (half for half in (records[:middle], records[middle:]) if _raises(finding, measured, half))
        half = next(halves, None)
        if half is None:
            return records
        records = half
    return records


def _raises(finding: Finding[Any], measured: Measured, records: Sequence[Record]) -> bool:
    try:
        _said(finding, replace(measured, records=tuple(records)))
    except Exception:
        return True
    return False


def training_columns(family: Callable[[T], Family]) -> tuple[Column[T], Column[T]]:
    """Columns that say what was trained, and how."""

    def name(item: T) -> str:
        trained = family(item)
        return f"{workload_title(trained.workload)} {trained.preset}, {trained.framework}"

    def mode(item: T) -> str:
        return f"{family(item).scaling_mode}, {family(item).constants}"

    return (
        Column("training", name, numeric=False, common=True),
        Column("mode", mode, numeric=False, detail=True, common=True),
    )


def tokens_column(
    cell: Callable[[T], Cell], samples_per_second: Callable[[T], Interval | None], *, detail: bool = False
) -> Column[T]:
    """The rate in tokens, beside that in samples, whose interval is the same; empty where samples are no sequences."""

    def show(item: T) -> Value:
        tokens = tokens_per_second(cell(item), samples_per_second(item))
        return shown_number(tokens.center, number) if tokens else Value(text="")

    return Column("tokens/s", show, detail=detail)


def place_columns(place: Callable[[T], Any]) -> tuple[Column[T], ...]:
    """Columns that say what was trained, over what and on how many ranks: the item's family, evidence and cell."""
    return (
        *training_columns(lambda item: place(item).family),
        Column("backend", lambda item: cell_name(place(item).cell, place(item).evidence), numeric=False),
        Column("ranks", lambda item: place(item).cell.num_ranks),
    )


PLACE_COLUMNS: tuple[Column[Any], ...] = place_columns(
    lambda item: item
)  # of items that have these themselves
