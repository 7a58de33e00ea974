"""Backend comparison on the same ranks: what each backend adds to the computation, and which adds the least.

The computation is a step over backend `none` on as many ranks: the same training on the same shared machine, without
communication. The extra time of a step over another backend is its communication. A difference between two
backends is given as a share of the computation. Whether one is faster is never decided here: the verdict is that of
the declared contrast (`contrasts`). docs/metrics.md explains the metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from dlscale.analysis.declare import Column, Sentence, Shown, Table, TableOf, Tags, shown_interval, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding, or_else, training_columns
from dlscale.analysis.findings import communication
from dlscale.analysis.findings.contrast_declaration import level_of
from dlscale.analysis.findings.contrasts import Contrast, Contrasts, study_contrasts
from dlscale.analysis.findings.overlap import IN_LINE
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.launches import Block, CellLaunches
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Figure
from dlscale.analysis.records import setting_columns, settings_text
from dlscale.analysis.statistics import Interval, block_difference, block_ratio, median_interval
from dlscale.analysis.text import RATIO_LIMITS, backend_name, interval_columns, points, rate, training_title
from dlscale.analysis.variants import CURVE
from dlscale.benchmarks.records.cell import Cell

RESOLVABLE = 0.3  # communication over computation; below, differences mostly have other causes


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A backend on a number of ranks, compared with the fastest other one there.

    `contrast` is the declared one of this backend; None for its reference, and where none was declared.
    """

    cell: Cell
    family: Family
    evidence: str
    exchange: str  # "in line", "overlapped" or "mixed"; empty if no launch reported it
    seconds_per_step: Interval | None  # None if no launch gave a number
    computation: Interval | None  # seconds per step over `none` on as many ranks; None if not measured
    exposed: Interval | None  # communication as a share of the computation; None without a common block
    peer: Cell | None  # the other backend with the least communication
    difference: Interval | None  # (this - peer) / computation; negative where this is faster
    communication: float | None  # communication of the slower of the two
    note: str  # why there is no difference, or why it says little of the exchange; else empty
    contrast: Contrast | None
    why_none: str  # why there is no contrast; empty for the reference
    alone: Interval | None = None  # seconds per step of communication only; None if not measured

    @property
    def verdict(self) -> str:
        if self.contrast:
            return self.contrast.verdict
        return "cannot be shown" if self.why_none else "reference"

    @property
    def reason(self) -> str:
        """Why nothing can be shown; else empty."""
        return self.contrast.reason if self.contrast else self.why_none

    @property
    def reference(self) -> Cell | None:
        return self.contrast.reference.cell if self.contrast else None


Ranks = tuple[Family, int, int, str]  # what is compared: family, ranks, nodes, kind of evidence


def compare_backends(measured: Iterable[CellLaunches], declared: Contrasts | None) -> tuple[Contender, ...]:
    """The backends of every family, number of ranks above 1 and kind of evidence with two or more that exchange.

    A backend whose launches all failed has no numbers. The verdicts are those of the contrasts that were `declared`
    of these launches.
    """
    groups: dict[Ranks, list[CellLaunches]] = {}
    for launches in measured:
        cell = launches.cell
        if cell.control == "train" and cell.num_ranks > 1:
            for kind in launches.of_kind:
                key = (launches.family, cell.num_ranks, cell.num_nodes, kind)
                groups.setdefault(key, []).append(launches.of_kind[kind])
    contrasts, missing = _by_contender(declared)
    return tuple(
        contender
        for (_, _, _, kind), members in sorted(groups.items(), key=lambda item: item[0])
        for contender in _contenders(members, kind, contrasts, missing)
    )


ByContender = Mapping[
    tuple[Family, str, str], Contrast | None
]  # by family, cell and evidence; None: a reference


def _by_contender(declared: Contrasts | None) -> tuple[ByContender, str]:
    """The contrast of each contender, and why others have none."""
    tested = declared.found if declared and declared.factor in ("backend", CURVE) else ()
    found: dict[tuple[Family, str, str], Contrast | None] = {}
    reason = "its reference was not measured on as many ranks"
    for contrast in tested:
        contender, reference = contrast.contender, contrast.reference
        if contender.family != reference.family:
            reason = "its declared comparison is with another batch, precision or such"
            continue
        # The first value of an axis is a reference and may be a contender, of the first backend.
        found.setdefault((reference.family, reference.cell.id, reference.evidence), None)
        found[contender.family, contender.cell.id, contender.evidence] = contrast
    return found, f"not compared: {reason}"


def _contenders(
    members: Sequence[CellLaunches], kind: str, contrasts: ByContender, missing: str
) -> Iterator[Contender]:
    ordered = sorted(members, key=_comparison_order)
    alone = next((one.world for one in ordered if one.cell.backend == "none" and one.cases), {})
    exchanging = [one for one in ordered if one.cell.backend != "none"]
    seconds = {one.id: one.world for one in exchanging}
    exposed = {
        name: block_ratio(own, alone).excess() for name, own in seconds.items() if own.keys() & alone.keys()
    }
    for launches in exchanging if len(exchanging) > 1 else ():
        own = launches.id
        rivals = [one for one in exchanging if one is not launches and one.id in exposed]
        peer = min(rivals, key=lambda contender: exposed[contender.id].center, default=None)
        difference = communication = None
        note = _why_nothing(own, peer, seconds, alone)
        if peer and not note:
            difference = block_difference(seconds[own], seconds[peer.id], alone)
            communication = max(exposed[own].center, exposed[peer.id].center)
            if communication < RESOLVABLE:
                note = (
                    f"communication is only {points(communication)} % of the computation: below "
                    f"{100 * RESOLVABLE:.0f} % a difference mostly has other causes than the exchange"
                )
        key = (launches.family, own, kind)
        yield Contender(
            cell=launches.cell,
            family=launches.family,
            evidence=kind,
            exchange=launches.exchange,
            seconds_per_step=median_interval(list(seconds[own].values())) if seconds[own] else None,
            computation=median_interval(list(alone.values())) if alone else None,
            exposed=exposed.get(own),
            peer=peer.cell if peer else None,
            difference=difference,
            communication=communication,
            note=note,
            contrast=contrasts.get(key),
            why_none="" if key in contrasts else missing,
        )


def _why_nothing(
    own: str,
    peer: CellLaunches | None,
    seconds: Mapping[str, Mapping[Block, float]],
    alone: Mapping[Block, float],
) -> str:
    """The reason why there is no difference; empty if there is one."""
    if not alone:
        return "none on as many ranks was not measured"
    if not seconds[own]:
        return "every launch failed"
    if not seconds[own].keys() & alone.keys():
        return "no block in common with none on as many ranks"
    if peer is None:
        return "no other backend gave a number"
    if not seconds[own].keys() & seconds[peer.id].keys() & alone.keys():
        return f"no block in common with {peer.cell.method}"
    return ""


def _comparison_order(launches: CellLaunches) -> tuple[object, ...]:
    cell = launches.cell
    return cell.method, settings_text(cell.options), cell.num_servers


def backend_row(contender: Contender) -> dict[str, Any]:
    """The row of a backend, compared with the fastest other one on as many ranks.

    `exposed_communication`, `difference` and `communication` are shares of the computation, which is a step of
    backend `none`; a negative difference is faster than `peer`. `communication` is that of the slower of the two,
    and `note` says where it is small. `verdict` is that of the declared contrast with `reference`, or "reference", and
    `reason` is its reason.
    """
    peer, reference = contender.peer, contender.reference
    return {
        **setting_columns(contender.family, contender.cell),
        "evidence": contender.evidence,
        "exchange": contender.exchange or None,
        **interval_columns("seconds_per_step", contender.seconds_per_step),
        **interval_columns("computation_seconds_per_step", contender.computation),
        **interval_columns("exposed_communication", contender.exposed),
        "peer": peer and peer.method,
        "peer_options": peer and settings_text(peer.options),
        **interval_columns("difference", contender.difference),
        "communication": contender.communication,
        "verdict": contender.verdict,
        "reason": contender.reason or None,
        "reference": reference and reference.method,
        "reference_options": reference and settings_text(reference.options),
        "note": contender.note or None,
    }


def _count(contender: Contender) -> int:
    """The number of blocks or launches behind the communication, else behind the step."""
    interval = contender.exposed or contender.seconds_per_step
    return interval.n if interval else 0


def _against_reference(contender: Contender) -> Shown:
    if contender.verdict == "reference":
        return "reference"
    ratio = contender.contrast.ratio if contender.contrast else None
    return shown_interval(ratio and ratio.excess(), lambda change: points(change, sign="+"))


def _verdict_text(contender: Contender) -> str:
    """`slower (versus ring)`, or `reference`."""
    reference = contender.reference
    return (
        f"{contender.verdict} (versus {level_of(reference, 'backend')})" if reference else contender.verdict
    )


def _name(contender: Contender) -> str:
    kind = "" if contender.evidence == "measured" else f", {contender.evidence}"
    return level_of(contender.cell, "backend") + kind


BACKENDS = TableOf[Contender](
    name="backends",
    caption="Backend comparison",
    columns=(
        *training_columns(lambda contender: contender.family),
        Column("backend", _name, numeric=False),
        Column("ranks", lambda contender: contender.cell.num_ranks, detail=True),
        Column(
            "exchange",
            lambda contender: contender.exchange.replace(IN_LINE, "not overlapped") or "-",
            numeric=False,
        ),
        Column(
            "step",
            lambda contender: contender.seconds_per_step and contender.seconds_per_step.times(1000),
            unit="ms",
        ),
        Column(
            "communication only",
            lambda contender: contender.alone.times(1000) if contender.alone else "",
            unit="ms",
        ),
        Column("communication", lambda contender: shown_interval(contender.exposed, points), unit="%"),
        Column("versus reference", _against_reference, unit="% throughput"),
        Column("n", _count),
        Column("verdict", _verdict_text, numeric=False, detail=True),
    ),
    data=backend_row,
    legend=(
        "Backends: communication is by how much a step takes longer than over none on as many ranks, the "
        "computation, and its share of that. All waiting is in it; where the exchange overlaps, it is what is left "
        "exposed. Communication only: the exchange without computation. Versus reference: by how much the "
        "throughput is above it. Both with "
        f"{RATIO_LIMITS} over n blocks of launches; verdicts are those of Significant differences (docs/metrics.md)."
    ),
    tags=lambda contender: tags_of(contender.cell),
)


def backend_notes(contenders: Iterable[Contender]) -> list[str]:
    """A sentence for each note, with the pairs of backends that it is about."""
    names: dict[str, dict[frozenset[str], str]] = {}
    for contender in contenders:
        if contender.note:
            both = [contender.cell, *([contender.peer] if contender.difference and contender.peer else [])]
            pair = list(map(backend_name, both))
            names.setdefault(contender.note, {}).setdefault(frozenset(pair), " and ".join(pair))
    return [f"{', '.join(pairs.values())}: {note}." for note, pairs in names.items()]


def _on_most_ranks(contenders: Iterable[Contender]) -> list[list[Contender]]:
    """The contenders of each family and kind of evidence on its most ranks."""
    last = {
        (family, kind): list(group)
        for (family, _, _, kind), group in groupby(
            contenders,
            key=lambda contender: (
                contender.family,
                contender.cell.num_ranks,
                contender.cell.num_nodes,
                contender.evidence,
            ),
        )
    }
    return list(last.values())


def _table(contenders: Sequence[Contender]) -> Table:
    return BACKENDS.of(contender for group in _on_most_ranks(contenders) for contender in group)


def _table_of_fewer_ranks(contenders: Sequence[Contender]) -> Table:
    last = [contender for group in _on_most_ranks(contenders) for contender in group]
    others = [contender for contender in contenders if contender not in last]
    return replace(BACKENDS.of(others), name="backends-on-fewer-ranks")


def _sentences(contenders: Sequence[Contender]) -> Iterator[Sentence]:
    """The computation and the notes, of the most ranks of each family."""
    last = _on_most_ranks(contenders)
    several = len({group[0].family for group in last}) > 1
    for group in last:
        family = group[0].family
        ranks = f"{group[0].cell.num_ranks} ranks"
        where = f"{training_title(family)}, {ranks}" if several else f"On {ranks}"
        texts = backend_notes(group)
        if computation := group[0].computation:
            texts.insert(0, f"without communication a step takes {rate(computation.times(1000))} ms.")
        for text in texts:
            yield Sentence(
                text=f"{where}: {text}", tags=Tags(workload=family.workload, framework=family.framework)
            )


def _compared(study: Measured) -> tuple[Contender, ...]:
    exchanges = or_else((), lambda: communication.FINDING.of(study))
    alone = {(one.family, one.cell.id, one.evidence): one.alone.seconds for one in exchanges}
    return tuple(
        replace(one, alone=alone.get((one.family, one.cell.id, one.evidence)))
        for one in compare_backends(study.launches, study.once(study_contrasts))
    )


def _rows(study: Measured, family: Family, form: Form) -> Figure | None:
    rows = [backend_row(contender) for contender in FINDING.of(study) if contender.family == family]
    if not rows or form != SCREEN:
        return None
    return Figure(
        name="backends", title=training_title(family), subtitle="", small_print=(), panels=(), rows=rows
    )


FINDING = Finding(
    name="backends",
    title="Backend comparison",
    answers=True,
    compute=_compared,
    more=lambda contenders: (_table(contenders),),
    sentences=_sentences,
    data=lambda contenders: {"backends": list(map(backend_row, contenders))},
    figures={"backends": _rows},
)
FEWER = Finding(
    name="backends_on_fewer_ranks",
    title="Backends on fewer ranks",
    compute=lambda study: FINDING.of(study),
    more=lambda contenders: (_table_of_fewer_ranks(contenders),),
)
FINDINGS = (FINDING, FEWER)
