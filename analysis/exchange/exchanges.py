"""Each training's exchange: what it takes alone, what is hidden of it, and whether the step is what was predicted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlscale.analysis.exchange.alone import Alone, alone
from dlscale.analysis.exchange.step import Step, computation_of, step
from dlscale.analysis.family import Family
from dlscale.analysis.frame import exchange
from dlscale.analysis.waterfall.overlap import Overlap, overlap
from dlscale.analysis.waterfall.times import Launched, latest_good, launched
from dlscale.analysis.waterfall.waterfall import Waterfall
from dlscale.analysis.words import backend_name
from dlscale.benchmarks.record import Cell, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Of a cell's exchange that was measured alone. Without `step`, `reason` says what is missing."""

    alone: Alone
    cell: Cell  # of the training
    how: str  # "in line", "overlapped", "mixed"; empty if the backend did not say
    step: Step | None
    overlap: Overlap
    reason: str = ""

    @property
    def family(self) -> Family:
        """The training's."""
        return self.alone.family

    @property
    def evidence(self) -> str:
        """Of all that it is made of."""
        return self.alone.evidence


def exchanges(records: Iterable[Record], waterfalls: Iterable[Waterfall]) -> tuple[Exchange, ...]:
    """One for each exchange that was measured alone on more than 1 rank, by family, backend and ranks.

    `waterfalls` are those of the same records.
    """
    good = latest_good(records)
    measured = alone(good)
    if not measured:
        return ()
    trained = launched(good, controls={"train"})
    said = _said(good)
    falls = {(one.family, one.cell.id, one.evidence): one for one in waterfalls}
    found = []
    for one in measured:
        cell = one.cell.model_copy(update={"control": "train"})
        how = said.get((one.family.system, cell.id, one.evidence), "")
        found.append(_exchange(one, cell, how, trained, falls.get((one.family, cell.id, one.evidence))))
    return tuple(sorted(found, key=_order))


def on_most_ranks(found: Iterable[Exchange]) -> list[Exchange]:
    """Of each backend of a family, by kind of evidence, that of the most ranks."""
    largest: dict[tuple[object, ...], Exchange] = {}
    for one in found:
        key = (one.family, backend_name(one.cell), one.evidence)
        if key not in largest or largest[key].cell.num_ranks < one.cell.num_ranks:
            largest[key] = one
    return list(largest.values())


def _exchange(
    one: Alone, cell: Cell, how: str, trained: Sequence[Launched], waterfall: Waterfall | None
) -> Exchange:
    training = next(
        (
            other
            for other in trained
            if (other.cell, other.family, other.evidence) == (cell, one.family, one.evidence)
        ),
        None,
    )
    nothing = Overlap(hidden=None)
    if training is None:
        return Exchange(
            alone=one, cell=cell, how=how, step=None, overlap=nothing, reason="no training gave a number"
        )
    seconds = training.seconds("world")
    hidden = Overlap(hidden=None, reason="where its speed goes is not known")
    if waterfall:
        hidden = overlap(waterfall, one.by_block, seconds, exchange=how)
    none = computation_of(training, trained)
    predicted = step(seconds, none.seconds("world"), one.by_block, how=how) if none else None
    reason = ""
    if not predicted:
        what = f"none on {cell.num_ranks} ranks"
        reason = f"no block in common with {what}" if none else f"{what} was not measured"
    return Exchange(alone=one, cell=cell, how=how, step=predicted, overlap=hidden, reason=reason)


def _said(records: Iterable[Record]) -> dict[tuple[str, str, str], str]:
    """(system, cell, kind of evidence) of each training -> how it exchanges; "mixed" if launches differ."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for record in records:
        if record.case.cell.control == "train":
            key = (record.system, record.case.cell.id, record.evidence)
            found.setdefault(key, set()).add(exchange(record))
    words = {key: said - {""} for key, said in found.items()}
    return {key: next(iter(one)) if len(one) == 1 else "mixed" for key, one in words.items() if one}


def _order(one: Exchange) -> tuple[object, ...]:
    cell = one.cell
    options = tuple(sorted((name, str(value)) for name, value in cell.backend_options.items()))
    return one.family, cell.backend, options, cell.num_ranks, cell.num_nodes, one.evidence
