"""Backend comparison on the same ranks: what each backend adds to the computation, and which adds less.

The computation is a step over backend `none` on as many ranks: the same training on the same shared machine, without
communication. The extra time of a step over another backend is its exposed communication. A difference between two
backends is given as a share of the computation. docs/metrics.md explains the metrics. The arithmetic comes first, then
the table and the sentences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.families import Family
from dlscale.analysis.launches import Block, CellLaunches
from dlscale.analysis.records import options_text, setting_columns
from dlscale.analysis.render.tables import (
    Column,
    TableOf,
    cell_name,
    render_table,
    shown_interval,
    tags_of,
    training_columns,
)
from dlscale.analysis.render.text import backend_name, interval_columns, points, rate
from dlscale.analysis.statistics import (
    LEVEL,
    MIN_BLOCKS,
    Interval,
    block_difference,
    block_ratio,
    median_interval,
)
from dlscale.benchmarks.records.record import Cell


def to_backend_rows(comparison: BackendComparison) -> list[dict[str, Any]]:
    """One flat row per backend, compared with the fastest other one on as many ranks.

    `exposed_communication`, `difference` and `communication` are shares of the computation, which is a step of
    backend `none`; a negative difference is faster than `peer`. `communication` is the exposed communication of the
    slower of the two, which decides whether a difference is resolvable.
    """
    return [_backend_row(comparison, contender) for contender in comparison.contenders]


def _backend_row(comparison: BackendComparison, contender: Contender) -> dict[str, Any]:
    return {
        **setting_columns(comparison.family, contender.cell),
        "evidence": comparison.evidence,
        "exchange": contender.exchange or None,
        **interval_columns("seconds_per_step", contender.seconds_per_step),
        **interval_columns("computation_seconds_per_step", comparison.computation),
        **interval_columns("exposed_communication", contender.exposed),
        "peer": contender.peer and contender.peer.backend,
        "peer_options": contender.peer and options_text(contender.peer),
        **interval_columns("difference", contender.difference),
        "communication": contender.communication,
        "verdict": contender.verdict,
        "reason": contender.reason or None,
    }


RESOLVABLE = 0.3  # exposed communication over computation; below, differences mostly have other causes
BAND = 0.02  # of the computation: a smaller difference is no reason to change backends

Verdict = Literal["alike", "faster", "slower", "not slower", "open", "not resolvable", "insufficient data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A backend on a number of ranks, compared with the fastest other one there."""

    cell: Cell
    exchange: str  # "in line", "overlapped" or "mixed"; empty if no launch reported it
    seconds_per_step: Interval | None  # None if no launch gave a number
    exposed: Interval | None  # communication as a share of the computation; None without a common block
    peer: Cell | None  # the other backend with the least exposed communication
    difference: Interval | None  # (this - peer) / computation; negative where this is faster
    communication: float | None  # exposed communication of the slower of the two
    verdict: Verdict
    reason: str  # of "insufficient data"; else empty


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendComparison:
    """The two or more backends that exchange gradients in one family on one number of ranks."""

    family: Family
    num_ranks: int
    num_nodes: int
    evidence: str
    computation: Interval | None  # seconds per step over `none` on as many ranks; None if not measured
    contenders: tuple[Contender, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    launches: CellLaunches  # good ones of one kind of evidence; may be none
    seconds: dict[Block, float]  # block -> per step
    exposed: Interval | None


def compare_backends(measured: Iterable[CellLaunches]) -> tuple[BackendComparison, ...]:
    """A comparison for every family, number of ranks above 1 and kind of evidence with two or more backends.

    A backend whose launches all failed is a contender without numbers.
    """
    groups: dict[tuple[Family, int, int, str], list[CellLaunches]] = {}
    for launches in measured:
        cell = launches.cell
        if cell.control == "train" and cell.num_ranks > 1:
            for kind in launches.kinds:
                key = (launches.family, cell.num_ranks, cell.num_nodes, kind)
                groups.setdefault(key, []).append(launches.only(kind))
    comparisons = []
    for (family, num_ranks, num_nodes, kind), members in sorted(groups.items(), key=lambda item: item[0]):
        exchanging = [member for member in members if member.cell.backend != "none"]
        if len(exchanging) < 2:
            continue
        alone = _computation(members)
        comparisons.append(
            BackendComparison(
                family=family,
                num_ranks=num_ranks,
                num_nodes=num_nodes,
                evidence=kind,
                computation=median_interval(list(alone.values())) if alone else None,
                contenders=_contenders(sorted(exchanging, key=_comparison_order), alone),
            )
        )
    return tuple(comparisons)


def judge(difference: Interval, communication: float, *, apart: bool) -> Verdict:
    """The verdict on a difference, given as a share of the computation; negative is faster.

    "alike" is certainly within BAND on both sides, "not slower" on the slower side only. "faster" and "slower"
    also need `apart`: the difference is significant after correction for all pairs.
    """
    low, high = difference.low, difference.high
    if low is None or high is None:
        return "insufficient data"
    if communication < RESOLVABLE:
        return "not resolvable"
    if low > -BAND and high < BAND:
        return "alike"
    if apart and high < 0:
        return "faster"
    if apart and low > 0:
        return "slower"
    return "not slower" if high < BAND else "open"


def _computation(members: Iterable[CellLaunches]) -> dict[Block, float]:
    """Seconds per step of backend `none`, by block; empty if not measured."""
    alone = [member for member in members if member.cell.backend == "none" and member.cases]
    return min(alone, key=_comparison_order).by_block("world") if alone else {}


def _contenders(members: Sequence[CellLaunches], alone: dict[Block, float]) -> tuple[Contender, ...]:
    entries = []
    for launches in members:
        seconds = launches.by_block("world")
        paired = seconds.keys() & alone.keys()
        exposed = block_ratio(seconds, alone).excess() if paired else None
        entries.append(_Entry(launches=launches, seconds=seconds, exposed=exposed))
    return tuple(_contender(entry, entries, alone) for entry in entries)


def _contender(entry: _Entry, entries: Sequence[_Entry], alone: dict[Block, float]) -> Contender:
    rivals = [rival for rival in entries if rival is not entry and rival.exposed]
    peer = min(rivals, key=_cost, default=None)
    difference = communication = None
    verdict: Verdict = "insufficient data"
    reason = _why_nothing(entry, peer, alone)
    if peer and not reason:
        difference = block_difference(entry.seconds, peer.seconds, alone)
        communication = max(_cost(entry), _cost(peer))
        verdict = judge(difference, communication, apart=_apart(entry, peer, entries, alone))
        if verdict == "insufficient data":
            reason = f"{difference.n} of the {MIN_BLOCKS} blocks that an interval needs"
    launches = entry.launches
    return Contender(
        cell=launches.cell,
        exchange=launches.exchange,
        seconds_per_step=median_interval(list(entry.seconds.values())) if entry.seconds else None,
        exposed=entry.exposed,
        peer=peer.launches.cell if peer else None,
        difference=difference,
        communication=communication,
        verdict=verdict,
        reason=reason,
    )


def _apart(entry: _Entry, peer: _Entry, entries: Sequence[_Entry], alone: dict[Block, float]) -> bool:
    """Whether 0 is outside an interval corrected for all pairs of backends (Bonferroni).

    The peer was selected from all backends: with four equal backends, in one study of five some pair's uncorrected
    95 % interval excludes 0.
    """
    num_pairs = math.comb(sum(candidate.exposed is not None for candidate in entries), 2)
    level = 1 - (1 - LEVEL) / num_pairs
    strict = block_difference(entry.seconds, peer.seconds, alone, level=level)
    return strict.low is not None and strict.high is not None and (strict.low > 0 or strict.high < 0)


def _cost(entry: _Entry) -> float:
    return entry.exposed.center if entry.exposed else math.inf


def _why_nothing(entry: _Entry, peer: _Entry | None, alone: dict[Block, float]) -> str:
    """The reason why there is no difference; empty if there is one."""
    if not alone:
        return "none on as many ranks was not measured"
    if not entry.seconds:
        return "every launch failed"
    if entry.exposed is None:
        return "no block in common with none on as many ranks"
    if peer is None:
        return "no other backend gave a number"
    if not entry.seconds.keys() & peer.seconds.keys() & alone.keys():
        return f"no block in common with {peer.launches.cell.backend}"
    return ""


def _comparison_order(launches: CellLaunches) -> tuple[object, ...]:
    cell = launches.cell
    return cell.backend, options_text(cell), cell.num_servers


Compared = tuple[BackendComparison, Contender]


def _counted(pair: Compared) -> int:
    """The number of blocks or launches behind the difference, else behind the communication or the step."""
    contender = pair[1]
    interval = contender.difference or contender.exposed or contender.seconds_per_step
    return interval.n if interval else 0


BACKENDS = TableOf[Compared](
    name="backends",
    caption="Backend comparison",
    columns=(
        *training_columns(lambda pair: pair[0].family),
        Column("backend", lambda pair: cell_name(pair[1].cell, pair[0].evidence), numeric=False),
        Column("ranks", lambda pair: pair[1].cell.num_ranks, detail=True),
        Column("exchange", lambda pair: pair[1].exchange or "-", numeric=False),
        Column(
            "step", lambda pair: pair[1].seconds_per_step and pair[1].seconds_per_step.times(1000), unit="ms"
        ),
        Column("communication", lambda pair: shown_interval(pair[1].exposed, points), unit="%"),
        Column(
            "difference",
            lambda pair: shown_interval(pair[1].difference, lambda share: points(share, sign="+")),
            unit="%",
        ),
        Column("compared with", lambda pair: _name(pair[1].peer), numeric=False),
        Column("n", _counted),
        Column("verdict", lambda pair: pair[1].verdict, numeric=False, detail=True),
    ),
    data=lambda pair: _backend_row(*pair),
    legend=(
        "Backends: communication is by how much a step takes longer than over none on as many ranks, the "
        "computation, and its share of that. Waiting for the slowest rank is in it; where the exchange overlaps, it is "
        "what is left exposed. Difference: to the fastest other backend, as a share of the computation. Both with "
        f"{100 * LEVEL:.0f} % t intervals over n blocks of launches."
    ),
    tags=lambda pair: tags_of(pair[1].cell),
)


def pairs(comparisons: Iterable[BackendComparison]) -> Iterator[Compared]:
    """The rows of the table."""
    return ((comparison, contender) for comparison in comparisons for contender in comparison.contenders)


def render_comparison(comparison: BackendComparison) -> Iterator[RenderableType]:
    """A title, the table, and a sentence for each pair of backends that was compared."""
    ranks = f"{comparison.num_ranks} ranks"
    kind = "" if comparison.evidence == "measured" else f" ({comparison.evidence})"
    if comparison.computation is None:
        yield escape(
            f"Backends on {ranks}{kind}: none on {ranks} was not measured, so communication cannot be told from "
            "computation."
        )
        return
    yield escape(
        f"Backends on {ranks}{kind}: without communication a step takes "
        f"{rate(comparison.computation.times(1000))} ms"
    )
    yield from render_table(BACKENDS.of(pairs([comparison])), caption=False, legend=False)
    for sentence in backend_sentences(comparison.contenders):
        yield escape(sentence)


def backend_sentences(contenders: Iterable[Contender]) -> list[str]:
    """A sentence for each pair that was compared, the fastest backend first, and for each backend without numbers."""

    def cost(contender: Contender) -> float:
        return contender.exposed.center if contender.exposed else math.inf

    covered: list[set[str]] = []
    sentences = []
    for contender in sorted(contenders, key=cost):
        peer = contender.peer if contender.difference else None
        pair = {contender.cell.id, peer.id} if peer else {contender.cell.id}
        if pair not in covered:
            covered.append(pair)
            sentences.append(backend_sentence(contender))
    return sentences


def backend_sentence(contender: Contender) -> str:
    """The verdict in plain words."""
    name, peer = backend_name(contender.cell), _name(contender.peer)
    if contender.difference is None:
        return f"{name}: insufficient data, {contender.reason}."
    low, high = contender.difference.low, contender.difference.high
    if low is None or high is None:
        return f"{name} and {peer}: insufficient data, {contender.reason}."
    if contender.verdict == "not resolvable":
        return (
            f"{name} and {peer} are not resolvable: communication is only {points(contender.communication or 0.0)} % "
            f"of the computation ({100 * RESOLVABLE:.0f} % or more are needed)."
        )
    if contender.verdict in ("faster", "slower"):
        ends = sorted((abs(low), abs(high)))
        return (
            f"{name} is {contender.verdict} than {peer} by {points(abs(contender.difference.center))} % "
            f"of the computation [{points(ends[0])}, {points(ends[1])}]."
        )
    which = f"{name} is between {_side(low)} and {_side(high)}"
    if contender.verdict == "alike":
        return f"{name} and {peer} are within {100 * BAND:.0f} % of the computation: {which}."
    if contender.verdict == "not slower":
        return f"{name} is not {100 * BAND:.0f} % of the computation slower than {peer}: {which}."
    return f"No significant difference between {name} and {peer} (n = {contender.difference.n}): {which}."


def _name(cell: Cell | None) -> str:
    return "-" if cell is None else backend_name(cell)


def _side(share: float) -> str:
    size = points(abs(share))
    if size == "0.0":
        return "equally fast"
    return f"{size} % {'slower' if share > 0 else 'faster'}"
