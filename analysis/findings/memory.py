"""Memory of each rank: what a training's state takes, what it should take, and the most that host and GPU held.

N trainable weights of 4 bytes, optimizers that keep k numbers of each (2 of Adam, 1 of momentum), P ranks:

    shard          parameters   gradients   optimizer      a rank sends per step
    none           4 N          4 N         4 N k          2 (P - 1)/P of the gradients: an allreduce
    optimizer      4 N          4 N         4 N k / P      likewise: a reduce-scatter and an allgather
    parameters     4 N / P      4 N / P     4 N k / P      3 (P - 1)/P: a reduce-scatter and two allgathers

State is counted between two steps, the largest of any rank and launch; peaks also have activations, what a layer's
weights take while they are gathered, the framework itself and the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median
from typing import Any

from dlscale.analysis.curves import Curve, setting_text
from dlscale.analysis.declare import Column, Sentence, TableOf, Value, family_tags, tags_of
from dlscale.analysis.families import Family, on_most_ranks
from dlscale.analysis.finding import PLACE_COLUMNS, Finding
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.curve_plots import plain_series, proportional, rank_axis
from dlscale.analysis.findings.interference import is_busy
from dlscale.analysis.findings.scaling import OfRow, ScalingRow, rows_of
from dlscale.analysis.findings.small_print import family_figure
from dlscale.analysis.form import Form
from dlscale.analysis.launches import CellLaunches
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Axis, Figure, Plot
from dlscale.analysis.records import sent_bytes, setting_columns
from dlscale.analysis.statistics import Interval, block_ratio
from dlscale.analysis.text import gibibytes, listed, number, plural, ratio_text, size_text, training_title
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import GpuMemory, StateBytes
from dlscale.collectives.sharding import NAMES, NONE, OPTIMIZER, PARAMETERS

WEIGHT_BYTES = 4  # weights, gradients and what optimizers keep are float32
PARTS = ("parameters", "gradients", "optimizer")  # of a training's state
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse(OfRow):
    """The memory of one rank of a training: the largest of any rank in any good launch.

    `state` is None where nobody told, `expected` where it is not known what optimizers keep. `sent` are the bytes that
    a rank sends per step, the median over launches.
    """

    row: ScalingRow
    state: StateBytes | None
    expected: StateBytes | None
    sent: float | None
    versus_none: Interval | None  # seconds per step over those of the same training that is not sharded

    @property
    def total(self) -> int | None:
        """Bytes of state, of what its framework shows."""
        return total_bytes(self.state)

    @property
    def peak(self) -> int | None:
        """The most bytes that were taken while windows ran: of the GPU where it trained on one, else of the host."""
        gpu: GpuMemory | None = self.row.gpu_memory
        return gpu.allocated_bytes if gpu else self.row.window_rss_bytes or self.row.peak_rss_bytes


def total_bytes(state: StateBytes | None) -> int | None:
    """The bytes of all parts that are known; None without a state."""
    return None if state is None else sum(getattr(state, part) or 0 for part in PARTS)


def expected_state(num_weights: int, num_slots: int, *, shard: str, num_ranks: int) -> StateBytes:
    """What a rank keeps of so many weights, in whole bytes, by the table above."""
    whole = WEIGHT_BYTES * num_weights
    weights = whole / num_ranks if shard == PARAMETERS else whole
    slots = num_slots * (whole if shard == NONE else whole / num_ranks)
    return StateBytes(parameters=round(weights), gradients=round(weights), optimizer=round(slots))


def memory_uses(study: Measured) -> list[MemoryUse]:
    """One per training with a record, in the order of the table of all cells."""
    rows = [row for row in scaling.FINDING.of(study) if row.cell.control == "train" and row.evidence]
    return [_use(row, study) for row in rows]


def _use(row: ScalingRow, study: Measured) -> MemoryUse:
    launches = _launches(study, row, row.cell.shard)
    records = launches.records if launches else []
    states = [rank.state_bytes for record in records for rank in record.ranks if rank.state_bytes]
    sent = [each for record in records if (each := sent_bytes(record)) is not None]
    whole = _launches(study, row, NONE) if row.cell.shard != NONE and row.cell.num_ranks > 1 else None
    return MemoryUse(
        row=row,
        state=_largest(states),
        expected=_expected(row.cell),
        sent=median(sent) if sent else None,
        versus_none=block_ratio(launches.world, whole.world)
        if launches and whole and not is_busy(study)
        else None,
    )


def _launches(study: Measured, row: ScalingRow, shard: str) -> CellLaunches | None:
    """The good launches of a row's training, or of the same one with something else sharded."""
    wanted = Cell.model_validate(row.cell.model_dump() | {"shard": shard})
    return study.good_launches_of(row.family, wanted, row.evidence)


def _largest(states: Sequence[StateBytes]) -> StateBytes | None:
    """Each part's most; None where a rank does not tell."""
    if not states:
        return None
    columns = {part: [getattr(state, part) for state in states] for part in PARTS}
    return StateBytes(**{part: None if None in known else max(known) for part, known in columns.items()})


def _expected(cell: Cell) -> StateBytes | None:
    try:
        facts, preset = cell.facts, cell.preset_facts
    except (UsageError, ImportError):  # of another version's records
        return None
    rule = cell.target.optimizer if cell.target else None
    num_slots = rule.num_slots if rule else facts.num_slots
    if num_slots is None:
        return None
    return expected_state(preset.num_parameters, num_slots, shard=cell.shard, num_ranks=cell.num_ranks)


def _memory_row(use: MemoryUse) -> dict[str, Any]:
    """A training's fields and bytes; None if unknown. `slowdown` is its step over the one that is not sharded."""
    gpu = use.row.gpu_memory
    return {
        **setting_columns(use.family, use.cell),
        "evidence": use.evidence,
        **{f"{part}_bytes": getattr(use.state, part, None) for part in PARTS},
        **{f"expected_{part}_bytes": getattr(use.expected, part, None) for part in PARTS},
        "state_bytes": use.total,
        "expected_state_bytes": total_bytes(use.expected),
        "sent_bytes_per_step": use.sent,
        "slowdown": use.versus_none and use.versus_none.center,
        "slowdown_low": use.versus_none and use.versus_none.low,
        "slowdown_high": use.versus_none and use.versus_none.high,
        "peak_rss_bytes": use.row.peak_rss_bytes,
        "window_rss_bytes": use.row.window_rss_bytes,
        "gpu_allocated_bytes": gpu and gpu.allocated_bytes,
        "gpu_reserved_bytes": gpu and gpu.reserved_bytes,
        "gpu_total_bytes": gpu and gpu.total_bytes,
    }


def _in(write: Callable[[int], str], num_bytes: float | None) -> Value:
    return Value(text="" if num_bytes is None else write(int(num_bytes)), order=num_bytes)


def _mebibytes(num_bytes: int) -> str:
    return number(num_bytes / MIB)


def _gpu_memory(use: MemoryUse) -> Value:
    memory = use.row.gpu_memory
    if memory is None:
        return Value(text="")
    parts = (memory.allocated_bytes, memory.reserved_bytes, memory.total_bytes)
    return Value(text=" / ".join(map(gibibytes, filter(None, parts))), order=memory.allocated_bytes)


def _state_column(part: str) -> Column[MemoryUse]:
    return Column(part, lambda use: _in(_mebibytes, getattr(use.state, part, None)), unit="MiB")


MEMORY = TableOf[MemoryUse](
    name="memory",
    caption="Memory per rank",
    columns=(
        *PLACE_COLUMNS,
        *map(_state_column, PARTS),
        Column("expected", lambda use: _in(_mebibytes, total_bytes(use.expected)), unit="MiB"),
        Column("sent per step", lambda use: _in(_mebibytes, use.sent), unit="MiB"),
        Column("peak", lambda use: _in(gibibytes, use.row.peak_rss_bytes), unit="GiB"),
        Column("in windows", lambda use: _in(gibibytes, use.row.window_rss_bytes), unit="GiB", detail=True),
        Column("GPU: taken / reserved / in all", _gpu_memory, unit="GiB", detail=True),
    ),
    data=_memory_row,
    legend=(
        "Parameters, gradients, optimizer: bytes that a rank keeps between steps, the largest rank's, "
        "where the framework tells. Expected: of all three, 4 bytes of each weight, as much of its gradient, "
        f"and 4 for each number that optimizers keep of it; with shard {OPTIMIZER} the latter over the ranks, with "
        f"{PARAMETERS} all of it over the ranks. Sent: (P - 1)/P of what a rank hands to reduce-scatters and "
        "allgathers, an allreduce being both. Peak: the most that a rank's process held; in windows: without its start."
    ),
    tags=lambda use: tags_of(use.cell),
    group=lambda use: (use.family, use.cell.shard),
)


def sharded_families(uses: Iterable[MemoryUse]) -> list[tuple[Family, list[MemoryUse]]]:
    """The trainings of each family that has a sharded one, with the same backends' other trainings."""
    found = []
    for family, group in groupby(uses, key=lambda use: use.family):
        own = list(group)
        backends = {use.cell.backend for use in own if use.cell.shard != NONE}
        if backends:
            found.append((family, [use for use in own if use.cell.backend in backends]))
    return found


def by_shard(uses: Iterable[MemoryUse]) -> list[tuple[str, list[MemoryUse]]]:
    """On the most ranks, the trainings of each shard, whatever backend they have."""
    uses = on_most_ranks(uses)
    groups = [(shard, [use for use in uses if use.cell.shard == shard]) for shard in NAMES]
    return [(shard, own) for shard, own in groups if own]


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _state_of(uses: Iterable[MemoryUse]) -> int | None:
    return _most(use.total for use in uses)


def _sentences(uses: Sequence[MemoryUse]) -> Iterator[Sentence]:
    """What sharding saved on the most ranks of each family, and in two sentences when it pays."""
    for family, own in sharded_families(uses):
        for text in (*_saved(own), *_when_it_pays(own)):
            yield Sentence(text=text, tags=family_tags(family))


def _saved(uses: Sequence[MemoryUse]) -> Iterator[str]:
    groups = dict(by_shard(uses))
    whole = _state_of(groups.get(NONE, ()))
    kept = {shard: total for shard, own in groups.items() if shard != NONE and (total := _state_of(own))}
    if not whole or not kept:
        return
    first = on_most_ranks(uses)[0]
    parts = [
        f"{size_text(total)} with shard {shard} ({100 * (1 - total / whole):.0f} % less)"
        for shard, total in kept.items()
    ]
    yield (
        f"{training_title(first.family)}, {plural(first.cell.num_ranks, 'rank')}: a rank keeps {size_text(whole)} of "
        f"state where nothing is sharded, {listed(parts)}."
    )


def _when_it_pays(uses: Sequence[MemoryUse]) -> Iterator[str]:
    """Two sentences, on time and on memory; only what intervals of paired steps show."""
    groups = dict(by_shard(uses))
    whole, last = groups.get(NONE, []), [use for shard in groups if shard != NONE for use in groups[shard]]
    need = _state_of(whole)
    if not whole or not need or not any(use.total for use in last):
        return
    timed = [use for use in last if use.versus_none and use.versus_none.low is not None]
    slower = [use for use in timed if use.versus_none and (use.versus_none.low or 0.0) > 1]
    faster = [use for use in timed if use.versus_none and (use.versus_none.high or 1.0) < 1]
    unclear = [use for use in timed if use not in slower and use not in faster]
    words = [
        *([f"takes longer for {_ratios(slower)}"] if slower else []),
        *([f"takes less time for {_ratios(faster)}"] if faster else []),
        *([f"shows no difference for {_ratios(unclear)}"] if unclear else []),
    ]
    if not timed:
        yield "Whether sharding pays in time is not known: too few paired launches, or a busy machine."
    else:
        yield f"A sharded step, relative to one that is not, {'; it '.join(words)}."
    least = min((use for use in last if use.total), key=lambda use: use.total or 0)
    peak = _most(use.peak for use in whole)
    share = f" ({100 * need / peak:.1f} % of the most that a rank held)" if peak else ""
    where = (
        f"on ranks with room for {size_text(least.total or 0)} of state but not for {size_text(need)}{share}"
    )
    if timed and len(slower) == len(timed):
        yield f"So sharding pays here only {where}."
    elif faster:
        yield f"So sharding pays here in time as it does in memory, which matters {where}."
    else:
        yield f"So sharding is needed {where}; elsewhere nothing measured here speaks for it."


def _ratios(uses: Iterable[MemoryUse]) -> str:
    return listed([f"{use.cell.method} ({ratio_text(use.versus_none)})" for use in uses])


def state_column(uses: Iterable[MemoryUse]) -> Column[ScalingRow] | None:
    """The bytes of state of a row, for tables of trainings; None where nothing is sharded."""
    uses = list(uses)
    if all(use.cell.shard == NONE for use in uses):
        return None
    totals = {(use.cell.id, use.evidence): use.total for use in uses}
    return Column("state", lambda row: _in(_mebibytes, totals.get((row.cell.id, row.evidence))), unit="MiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPoint:
    """The state of a rank with something sharded, on so many ranks: the largest over backends."""

    use: MemoryUse
    mebibytes: Interval

    @property
    def cell(self) -> Cell:
        return self.use.cell


def shard_curves(uses: Iterable[MemoryUse]) -> list[Curve]:
    """A curve per shard and kind of evidence, of bytes of state over ranks."""
    points: dict[tuple[str, str, int], MemoryUse] = {}
    for use in uses:
        key = (use.cell.shard, str(use.evidence), use.cell.num_ranks)
        if use.total and (key not in points or use.total > (points[key].total or 0)):
            points[key] = use
    found = []
    ordered = sorted(points, key=lambda key: (NAMES.index(key[0]), key[1], key[2]))
    for (shard, evidence), keys in groupby(ordered, key=lambda key: key[:2]):
        rows = tuple(_point(points[key]) for key in keys)
        found.append(Curve(name=setting_text("shard", shard), backend="", evidence=evidence, rows=rows))
    return found


def _point(use: MemoryUse) -> ShardPoint:
    center = (use.total or 0) / MIB
    size = Interval(
        center=center, low=None, high=None, level=0.0, method="largest rank", n=use.row.num_launches
    )
    return ShardPoint(use=use, mebibytes=size)


def _plot(name: str, family: Family, curves: Sequence[Curve]) -> Plot:
    every = [row for curve in curves for row in curve.rows]
    x, sizes = rank_axis(every), [row.mebibytes.center for row in every]
    whole = max((row.mebibytes.center for row in every if row.cell.num_ranks == 1), default=max(sizes))
    low = min(*sizes, whole / max(row.cell.num_ranks for row in every))
    last = [f"{curve.name} {number(curve.rows[-1].mebibytes.center)} MiB" for curve in curves]
    return Plot(
        name=name,
        title=f"State of a rank: {training_title(family)}",
        says=f"Bytes of state of a rank on the most ranks: {listed(last)}.",
        x=x,
        y=Axis(title="state of a rank [MiB]", kind="log", low=low / 1.5, high=1.5 * max(sizes)),
        series=plain_series(curves, lambda row: row.mebibytes),
        guides=(proportional(whole, x, power=-1),),
        notes=(f"{family.constants}; line: the state of 1 rank over the ranks.",),
        table=MEMORY.name,
        tags=family_tags(family),
    )


def _plots(uses: Sequence[MemoryUse]) -> Iterator[Plot]:
    """A plot per family that shards, with points on several numbers of ranks."""
    for index, (family, own) in enumerate(sharded_families(uses)):
        curves = shard_curves(own)
        if len({row.cell.num_ranks for curve in curves for row in curve.rows}) > 1:
            yield _plot(f"memory-{index}", family, curves)


def _figure(study: Measured, family: Family, form: Form) -> Figure | None:
    own = [use for group, uses in sharded_families(FINDING.of(study)) if group == family for use in uses]
    curves = shard_curves(form.chosen(own))
    shown = [row.cell for curve in curves for row in curve.rows]
    if len({cell.num_ranks for cell in shown}) < 2:
        return None
    return family_figure(
        family,
        rows_of(scaling.FINDING.of(study), family),
        shown,
        study.provenance,
        name="memory",
        brief="Bytes of a rank's parameters, gradients and optimizer state; line: those of 1 rank over the ranks.",
        words=(
            "What a rank keeps between steps, the largest rank's over backends and launches: parameters, gradients "
            "and what optimizers keep, as far as the framework shows it.",
        ),
        panels=(replace(_plot("memory", family, curves), title=""),),
        lines=[_memory_row(use) for use in own],
        wide=False,
    )


FINDING = Finding(
    name="memory",
    title="Memory",
    compute=memory_uses,
    table=MEMORY,
    sentences=_sentences,
    plots=_plots,
    figures={"memory": _figure},
)
FINDINGS = (FINDING,)
