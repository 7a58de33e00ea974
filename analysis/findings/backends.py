"""Backend comparison on the same ranks: what each backend adds to the computation, and which adds the least.

The computation is a step over backend `none` on as many ranks: the same training on the same shared machine, without
communication. The extra time of a step over another backend is its exposed communication. A difference between two
backends is given as a share of the computation. Whether one is faster is never decided here: the verdict is that of
the declared contrast (`contrasts`). docs/metrics.md explains the metrics. The arithmetic comes first, then the table
and the sentences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dlscale.analysis.declare import (
    Column,
    Sentence,
    TableOf,
    Tags,
    cell_name,
    shown_interval,
    tags_of,
    training_columns,
)
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings.contrast_declaration import Side
from dlscale.analysis.findings.contrasts import Contrast, Contrasts, study_contrasts
from dlscale.analysis.findings.contrasts import Verdict as ContrastVerdict
from dlscale.analysis.findings.overlap import IN_LINE
from dlscale.analysis.launches import Block, CellLaunches
from dlscale.analysis.records import setting_columns, settings_text
from dlscale.analysis.statistics import (
    LEVEL,
    Interval,
    block_difference,
    block_ratio,
    median_interval,
)
from dlscale.analysis.text import backend_name, interval_columns, points, rate, training_title
from dlscale.analysis.variants import CURVE
from dlscale.benchmarks.records.record import Cell


def to_backend_rows(comparison: BackendComparison) -> list[dict[str, Any]]:
    """One flat row per backend, compared with the fastest other one on as many ranks.

    `exposed_communication`, `difference` and `communication` are shares of the computation, which is a step of
    backend `none`; a negative difference is faster than `peer`. `communication` is the exposed communication of the
    slower of the two, and `note` says where it is small. `verdict` is that of the declared contrast with `reference`,
    or "reference", and `reason` is its reason.
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
        "peer": contender.peer and contender.peer.method,
        "peer_options": contender.peer and settings_text(contender.peer.options),
        **interval_columns("difference", contender.difference),
        "communication": contender.communication,
        "verdict": contender.verdict,
        "reason": contender.reason or None,
        "reference": contender.reference and contender.reference.method,
        "reference_options": contender.reference and settings_text(contender.reference.options),
        "note": contender.note or None,
    }


RESOLVABLE = 0.3  # exposed communication over computation; below, differences mostly have other causes

Verdict = ContrastVerdict | Literal["reference"]


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
    note: str  # why there is no difference, or why it says little of the exchange; else empty
    reference: Cell | None  # of the declared contrast; None for the reference itself
    verdict: Verdict  # of the declared contrast
    reason: str  # of "cannot be shown"; else empty


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendComparison:
    """The two or more backends that exchange gradients in one family on one number of ranks."""

    family: Family
    num_ranks: int
    num_nodes: int
    evidence: str
    computation: Interval | None  # seconds per step over `none` on as many ranks; None if not measured
    contenders: tuple[Contender, ...]
    contrasts: tuple[Contrast, ...]  # those that were declared of these backends on these ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    launches: CellLaunches  # good ones of one kind of evidence; may be none
    seconds: dict[Block, float]  # block -> per step
    exposed: Interval | None


# Family, cell and kind of evidence -> the contrast of that contender; None for a reference.
Claims = Mapping[tuple[Family, str, str], Contrast | None]


def compare_backends(
    measured: Iterable[CellLaunches], declared: Contrasts | None
) -> tuple[BackendComparison, ...]:
    """A comparison for every family, number of ranks above 1 and kind of evidence with two or more backends.

    A backend whose launches all failed is a contender without numbers. The verdicts are those of the contrasts that
    were `declared` of these launches.
    """
    groups: dict[tuple[Family, int, int, str], list[CellLaunches]] = {}
    for launches in measured:
        cell = launches.cell
        if cell.control == "train" and cell.num_ranks > 1:
            for kind in launches.kinds:
                key = (launches.family, cell.num_ranks, cell.num_nodes, kind)
                groups.setdefault(key, []).append(launches.only(kind))
    tested = declared.found if declared and declared.factor in ("backend", CURVE) else ()
    claims: dict[tuple[Family, str, str], Contrast | None] = {}
    for contrast in tested:
        if contrast.contender.family == contrast.reference.family:
            # The first value of an axis is a reference and may be a contender, of the first backend.
            claims.setdefault(_key(contrast.reference), None)
            claims[_key(contrast.contender)] = contrast
    across = any(contrast.contender.family != contrast.reference.family for contrast in tested)
    comparisons = []
    for (family, num_ranks, num_nodes, kind), members in sorted(groups.items(), key=lambda item: item[0]):
        exchanging = [member for member in members if member.cell.backend != "none"]
        if len(exchanging) < 2:
            continue
        alone = _computation(members)
        ordered = sorted(exchanging, key=_comparison_order)
        own = [claims.get((family, member.id, kind)) for member in ordered]
        comparisons.append(
            BackendComparison(
                family=family,
                num_ranks=num_ranks,
                num_nodes=num_nodes,
                evidence=kind,
                computation=median_interval(list(alone.values())) if alone else None,
                contenders=_contenders(ordered, alone, claims, kind=kind, across=across),
                contrasts=tuple(contrast for contrast in own if contrast),
            )
        )
    return tuple(comparisons)


def _key(side: Side) -> tuple[Family, str, str]:
    return side.family, side.cell.id, side.evidence


def _computation(members: Iterable[CellLaunches]) -> dict[Block, float]:
    """Seconds per step of backend `none`, by block; empty if not measured."""
    alone = [member for member in members if member.cell.backend == "none" and member.cases]
    return min(alone, key=_comparison_order).by_block("world") if alone else {}


def _contenders(
    members: Sequence[CellLaunches],
    alone: dict[Block, float],
    claims: Claims,
    *,
    kind: str,
    across: bool,
) -> tuple[Contender, ...]:
    entries = []
    for launches in members:
        seconds = launches.by_block("world")
        paired = seconds.keys() & alone.keys()
        exposed = block_ratio(seconds, alone).excess() if paired else None
        entries.append(_Entry(launches=launches, seconds=seconds, exposed=exposed))
    return tuple(_contender(entry, entries, alone, claims, kind=kind, across=across) for entry in entries)


def _contender(
    entry: _Entry,
    entries: Sequence[_Entry],
    alone: dict[Block, float],
    claims: Claims,
    *,
    kind: str,
    across: bool,
) -> Contender:
    rivals = [rival for rival in entries if rival is not entry and rival.exposed]
    peer = min(rivals, key=_cost, default=None)
    difference = communication = None
    note = _why_nothing(entry, peer, alone)
    if peer and not note:
        difference = block_difference(entry.seconds, peer.seconds, alone)
        communication = max(_cost(entry), _cost(peer))
        if communication < RESOLVABLE:
            note = (
                f"communication is only {points(communication)} % of the computation: below "
                f"{100 * RESOLVABLE:.0f} % a difference mostly has other causes than the exchange"
            )
    launches = entry.launches
    key = (launches.family, launches.id, kind)
    claim = claims.get(key)
    verdict: Verdict = "reference" if key in claims else "cannot be shown"
    reason = "its reference was not measured on as many ranks"
    if across:
        reason = "its declared comparison is with another batch, precision or such"
    reason = "" if key in claims else f"not compared: {reason}"
    return Contender(
        cell=launches.cell,
        exchange=launches.exchange,
        seconds_per_step=median_interval(list(entry.seconds.values())) if entry.seconds else None,
        exposed=entry.exposed,
        peer=peer.launches.cell if peer else None,
        difference=difference,
        communication=communication,
        note=note,
        reference=claim.reference.cell if claim else None,
        verdict=claim.verdict if claim else verdict,
        reason=claim.reason if claim else reason,
    )


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
        return f"no block in common with {peer.launches.cell.method}"
    return ""


def _comparison_order(launches: CellLaunches) -> tuple[object, ...]:
    cell = launches.cell
    return cell.method, settings_text(cell.options), cell.num_servers


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
        Column(
            "exchange", lambda pair: pair[1].exchange.replace(IN_LINE, "not overlapped") or "-", numeric=False
        ),
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
        Column("verdict", lambda pair: _verdict_text(pair[1]), numeric=False, detail=True),
    ),
    data=lambda pair: _backend_row(*pair),
    legend=(
        "Backends: communication is by how much a step takes longer than over none on as many ranks, the "
        "computation, and its share of that. Waiting for the slowest rank is in it; where the exchange overlaps, it is "
        "what is left exposed. Difference: to the fastest other backend, as a share of the computation. Both with "
        f"{100 * LEVEL:.0f} % t intervals over n blocks of launches. Descriptive; for "
        "significance see Significant differences (docs/contrasts.md)."
    ),
    tags=lambda pair: tags_of(pair[1].cell),
)


def pairs(comparisons: Iterable[BackendComparison]) -> Iterator[Compared]:
    """The rows of the table."""
    return ((comparison, contender) for comparison in comparisons for contender in comparison.contenders)


def backend_notes(contenders: Iterable[Contender]) -> list[str]:
    """A sentence for each note, with the pairs of backends that it is about."""
    names: dict[str, dict[frozenset[str], str]] = {}
    for contender in contenders:
        if contender.note:
            mine = (
                [contender.cell, contender.peer]
                if contender.difference and contender.peer
                else [contender.cell]
            )
            pair = " and ".join(backend_name(cell) for cell in mine)
            names.setdefault(contender.note, {}).setdefault(frozenset(map(backend_name, mine)), pair)
    return [f"{', '.join(pairs.values())}: {note}." for note, pairs in names.items()]


def _verdict_text(contender: Contender) -> str:
    """`slower (versus ring)`, or `reference`."""
    reference = contender.reference
    return f"{contender.verdict} (versus {backend_name(reference)})" if reference else contender.verdict


def _name(cell: Cell | None) -> str:
    return "-" if cell is None else backend_name(cell)


def _notes(comparisons: Iterable[BackendComparison]) -> list[Sentence]:
    """The notes on backends, from the comparisons on the most ranks of each family."""
    last: dict[tuple[object, str], BackendComparison] = {}
    for comparison in comparisons:
        key = (comparison.family, comparison.evidence)
        if key not in last or comparison.num_ranks >= last[key].num_ranks:
            last[key] = comparison
    several = len({comparison.family for comparison in last.values()}) > 1
    return [
        Sentence(
            text=f"{training_title(comparison.family)}, {comparison.num_ranks} ranks: {note}"
            if several
            else f"On {comparison.num_ranks} ranks: {note}",
            tags=Tags(workload=comparison.family.workload, framework=comparison.family.framework),
        )
        for comparison in last.values()
        for note in (*_computation_text(comparison), *backend_notes(comparison.contenders))
    ]


def _computation_text(comparison: BackendComparison) -> Iterator[str]:
    if comparison.computation:
        yield f"without communication a step takes {rate(comparison.computation.times(1000))} ms."


def _data(comparisons: Iterable[BackendComparison]) -> dict[str, Any]:
    return {"backends": [row for comparison in comparisons for row in to_backend_rows(comparison)]}


FINDING = Finding(
    name="backends",
    title="Backend comparison",
    compute=lambda study: compare_backends(study.launches, study.once(study_contrasts)),
    sentences=_notes,
    more=lambda comparisons: (BACKENDS.of(pairs(comparisons)),),
    data=_data,
)
FINDINGS = (FINDING,)
