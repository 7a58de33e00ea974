"""The section's text and table from its curves. Missing measurements are always stated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from dlscale.analysis.declare import Column, Sentence, Table, TableOf
from dlscale.analysis.findings.predicted_points import PREDICTED_POINTS, lead_sentences
from dlscale.analysis.findings.scaling import scaling_row
from dlscale.analysis.findings.small_print import span
from dlscale.analysis.proposal.document import Block, Heading, Items, Picture
from dlscale.analysis.proposal.sizes import Curve, NodeHoursRequest, Size, node_hours_request
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.text import (
    RATIO_LIMITS,
    interval_columns,
    listed,
    number,
    percent,
    plural,
    rate,
    with_limits,
    workload_title,
)
from dlscale.benchmarks.records.record import Record

FIGURE_INCHES = 3.5  # wide: a column of a page
CAPTIONS = {
    "throughput": "Throughput over ranks; the line is ideal scaling of {} without communication.",
    "efficiency": "Scaling efficiency over ranks, vs {0} without communication and vs {0} of the same backend, with "
    "the threshold.",
    "step-time": "Time per step and speed-up over ranks.",
}


def document(
    curves: Sequence[tuple[Curve, str, Sequence[str]]], where: Provenance, *, samples: int | None, runs: int
) -> list[Block]:
    """The section of (curve, its files' stem, names of its figures)."""
    blocks: list[Block] = [Heading(1, "Scalability"), Sentence(text=_origin(where))]
    for curve, stem, figures in curves:
        sentences = [
            what_was_measured(curve),
            machine_sentence(curve.records),
            evidence_sentence(curve),
            result_sentence(curve),
            threshold_sentence(curve),
        ]
        if samples is not None:
            request = node_hours_request(curve, samples=samples, runs=runs)
            sentences.append(request_sentence(request, curve))
        blocks += [Heading(2, curve_title(curve)), *_sentences(sentences), curve_table(curve, stem)]
        if curve.predicted:
            blocks += _sentences(predicted_sentences(curve))
            blocks.append(replace(PREDICTED_POINTS.of(curve.predicted), name=f"{stem}-predicted"))
        blocks += [_picture(curve, stem, name) for name in figures]
        if items := tuple(caveats(curve)):
            blocks += [Heading(3, "What these numbers do not say"), Items(items)]
    return blocks


def _sentences(texts: Iterable[str]) -> list[Sentence]:
    return [Sentence(text=text) for text in texts if text]


def _origin(where: Provenance) -> str:
    return (
        f"The numbers of this section come from the study {', '.join(where.studies)} of dlscale (commit "
        f"{', '.join(commit[:12] for commit in where.commits)}; SHA-256 of the data {where.data_hash[:12]}). Values in "
        "brackets are the limits of intervals."
    )


def _picture(curve: Curve, stem: str, name: str) -> Picture:
    kind = "" if curve.evidence == "measured" else f" {curve.evidence.capitalize()}."
    if curve.predicted and name != "step-time":
        kind += " Bands and small markers are simulated."
    caption = f"{CAPTIONS[name].format(base_ranks_text(curve))} {curve_title(curve)}.{kind}"
    return Picture(caption=caption, stem=f"{stem}-{name}", width=FIGURE_INCHES)


def curve_table(curve: Curve, stem: str) -> Table:
    """A table with a row per size."""
    base = f"relative to {base_case(curve)}" if curve.base else "without a base case"
    keeps = f"keeps {100 * curve.threshold:g} %"
    return TableOf[Size](
        name=stem,
        caption=(
            f"{curve_title(curve)}. Speed-up and efficiency {base}; per doubling: factor on the throughput for each "
            f"doubling of the ranks since the row above, ideally 2; node-hours: of whole nodes; {keeps}: whether the "
            "efficiency does, by its interval; n: successful / planned launches."
        ),
        columns=(
            Column("ranks", lambda size: size.num_ranks),
            Column("nodes", lambda size: size.num_nodes),
            Column("samples/s", lambda size: rate(size.row.throughput)),
            Column("speed-up", lambda size: factor_text(size.speed_up)),
            Column("per doubling", lambda size: factor_text(size.per_doubling)),
            Column("efficiency", lambda size: percent(size.efficiency, unit=""), unit="%"),
            Column("node-hours per million samples", lambda size: rate(size.node_hours)),
            Column(keeps, lambda size: size.verdict, numeric=False),
            Column("n", lambda size: f"{size.row.num_launches}/{size.row.num_planned}"),
        ),
        data=lambda size: table_line(curve, size),
    ).of(curve.sizes)


def table_line(curve: Curve, size: Size) -> dict[str, Any]:
    """A size as data, with the limits, methods and n of every number."""
    return {
        **scaling_row(size.row),
        "notes": "; ".join(size.row.notes),
        "base_case": curve.base or None,
        "base_ranks": curve.base_ranks,
        **interval_columns("speed_up", size.speed_up),
        **interval_columns("speed_up_per_doubling", size.per_doubling),
        **interval_columns("efficiency", size.efficiency),
        **interval_columns("node_hours_per_million_samples", size.node_hours),
        "efficiency_threshold": curve.threshold,
        "keeps_threshold": size.verdict,
    }


BASES = {"none": "without communication", "backend": "of the same backend"}
PUBLISHED = "paper"  # the preset of the published size


def base_ranks_text(curve: Curve) -> str:
    """`1 rank`: what the curve's base case ran on."""
    return plural(curve.base_ranks, "rank")


def base_case(curve: Curve) -> str:
    """`1 rank without communication`."""
    return f"{base_ranks_text(curve)} {BASES[curve.base]}"


def size_text(size: Size) -> str:
    """`8 ranks (4 nodes)`."""
    return f"{plural(size.num_ranks, 'rank')} ({plural(size.num_nodes, 'node')})"


def curve_title(curve: Curve) -> str:
    """The title of a curve: what was trained, over which backend."""
    family = curve.family
    return f"{trained_text(curve)} over {curve.name}, {family.scaling_mode} scaling"


def trained_text(curve: Curve) -> str:
    """`HEP-CNN (preset small) in PyTorch`."""
    family = curve.family
    return f"{workload_title(family.workload)} (preset {family.preset}) in {FRAMEWORKS[family.framework][0]}"


def what_was_measured(curve: Curve) -> str:
    """A description of the experiment, sufficient to repeat it."""
    ranks = ", ".join(str(size.num_ranks) for size in curve.sizes)
    launches = [size.row.num_launches for size in curve.sizes]
    times = f"{span(launches)} time{'s' * (max(launches) != 1)}"
    system = curve.family.system
    return (
        f"We timed the training of {trained_text(curve)} over backend {curve.name} on {system} "
        f"({curve.family.constants}). "
        f"{'Numbers' if len(curve.sizes) > 1 else 'The number'} of ranks: {ranks}. Each was launched {times}, "
        "in blocks within which the sizes follow each other in random order, so that slow changes of the machine "
        "cancel in ratios of sizes. Throughput is what all ranks do in the slowest rank's time, after the warm-up; "
        "its interval is of order statistics and is given from 6 launches on."
    )


FRAMEWORKS = {
    "torch": ("PyTorch", ("torch",)),
    "tensorflow": ("TensorFlow", ("tensorflow", "tensorflow-cpu")),
}  # with their packages as versions name them


def machine_sentence(records: Sequence[Record]) -> str:
    """`Nodes: Intel Xeon, 2 usable cores, 24 GiB of memory; ...; software: PyTorch 2.13.0, ...`; empty without records.

    Where records differ all values stand in it; what they do not say is called not known.
    """
    parts = {"Nodes": _node, "network between nodes": _network, "software": _software}
    texts = [
        f"{name}: {listed(list(dict.fromkeys(map(describe, records))))}" for name, describe in parts.items()
    ]
    return f"{'; '.join(texts)}." if records else ""


def _node(record: Record) -> str:
    node = record.fingerprint.node
    cores, memory = node.get("num_cores"), node.get("memory_gib")
    parts = [
        str(node.get("cpu_model", "CPU not known")),
        plural(cores, "usable core") if isinstance(cores, int) else "cores not known",
        f"{memory} GiB of memory" if memory is not None else "memory not known",
    ]
    own = next((facts.devices for facts in record.nodes if facts.devices), None)
    gpus = node.get(f"gpus_{record.case.cell.framework}") or own
    if gpus or record.case.cell.device == "gpu":
        parts.append(f"GPUs {gpus or 'not known'}")
    return ", ".join(parts)


def _network(record: Record) -> str:
    if record.case.cell.num_nodes == 1:
        return "none used"
    fabric = record.configuration.fabric if record.configuration else {}
    bandwidth = fabric.get("bandwidth")
    rate = f" with {number(bandwidth / 1e9)} GB/s per node" if isinstance(bandwidth, int | float) else ""
    return f"{fabric['name']}{rate}" if "name" in fabric else "not stated in the system's file"


def _software(record: Record) -> str:
    versions, framework = record.fingerprint.versions, record.case.cell.framework
    title, packages = FRAMEWORKS[framework]
    built = next((versions[name] for name in packages if name in versions), "of unknown version")
    parts = [f"{title} {built}", versions.get("mpi", "MPI not known")]
    if record.case.cell.backend in versions:  # Horovod's own
        parts.append(f"{record.case.cell.backend} {versions[record.case.cell.backend]}")
    return ", ".join([*parts, f"Python {versions.get('python', 'not known')}"])


def evidence_sentence(curve: Curve) -> str:
    """A caveat to read before the numbers; empty if they were measured on several nodes."""
    if curve.evidence == "emulated":
        return (
            "These numbers are emulated: nodes that share one machine, or a network that was shaped, took the place of "
            "the machine's own. They show how the program behaves, and are no measurements of a machine."
        )
    if curve.evidence != "measured":
        return f"These numbers are {curve.evidence}, not measured."
    if all(size.num_nodes == 1 for size in curve.sizes):
        return "All ranks ran on one node: what a network between nodes costs is not in these numbers."
    return ""


def result_sentence(curve: Curve) -> str:
    """Throughput, speed-up and efficiency on the most ranks."""
    largest = curve.largest
    text = f"On {size_text(largest)} the training runs at {rate(largest.row.throughput)} samples/s"
    if largest.efficiency is None or largest.speed_up is None:
        return f"{text}. There is no efficiency: its base case, {base_ranks_text(curve)}, was not measured."
    if largest.num_ranks == curve.base_ranks:
        return f"{text}. Nothing was measured on more ranks, so nothing can be said about scaling."
    scaled = "scaled speed-up" if curve.family.scaling_mode == "weak" else "speed-up"
    flaw = "" if largest.efficiency.low is not None else " (insufficient data for an interval)"
    text += (
        f": a {scaled} of {factor_text(largest.speed_up)} and a scaling efficiency of "
        f"{percent(largest.efficiency)}{flaw}, "
        f"relative to {base_case(curve)}, which alone does {rate(curve.base_rate)} samples/s."
    )
    before = [size for size in curve.sizes if size.row.throughput and size.num_ranks < largest.num_ranks]
    if largest.per_doubling and before:
        text += (
            f" From {before[-1].num_ranks} to {largest.num_ranks} ranks each doubling multiplied the throughput by "
            f"{factor_text(largest.per_doubling)}, ideally by 2."
        )
    return f"{text} Intervals of ratios are {RATIO_LIMITS}, over blocks."


def predicted_sentences(curve: Curve) -> list[str]:
    """What is predicted beyond the measured sizes, and how far that can be trusted."""
    return [
        "The sizes of the next table were predicted by a model: they are simulated, and no measurements. No "
        "node-hours are derived from them.",
        *lead_sentences(curve.predicted),
    ]


def threshold_sentence(curve: Curve) -> str:
    """The sizes whose efficiency is certainly, possibly and certainly not at or above the threshold."""
    mark = f"{100 * curve.threshold:g} %"
    surely, possibly = curve.keeping("surely"), curve.keeping("possibly")
    unknown = [size for size in curve.sizes if size.verdict == "unknown"]
    base = base_ranks_text(curve)
    if all(size.verdict == "unknown" for size in curve.scaled):
        return f"Insufficient data for a threshold of {mark}: no size above {base} has an efficiency with an interval."
    sentences = []
    fewest_lost = min(
        (size for size in curve.sizes if size.verdict == "not"), key=lambda size: size.num_ranks, default=None
    )
    gap = bool(surely and fewest_lost and surely.num_ranks > fewest_lost.num_ranks)
    if surely and surely in curve.scaled:
        sentences.append(
            f"Efficiency stays at or above {mark} {'on' if gap else 'up to'} {size_text(surely)}, "
            f"at {100 * LEVEL:.0f} % confidence: {percent(surely.efficiency)}."
        )
    else:
        sentences.append(
            f"No size above {base} has an efficiency of {mark} or more at {100 * LEVEL:.0f} % confidence."
        )
    if possibly and (surely is None or possibly.num_ranks > surely.num_ranks):
        sentences.append(
            f"On {size_text(possibly)} the interval {percent(possibly.efficiency)} contains {mark}: more launches "
            "would decide."
        )
    if fewest_lost:
        sentences.append(
            f"Efficiency is below {mark} on {size_text(fewest_lost)}: {percent(fewest_lost.efficiency)}."
        )
    if gap:
        sentences.append("A larger size reaches the threshold and a smaller one does not: find out why.")
    if unknown:
        sentences.append(f"Insufficient data on {', '.join(size_text(size) for size in unknown)}.")
    return " ".join(sentences)


def request_sentence(request: NodeHoursRequest | None, curve: Curve) -> str:
    """The node-hours of the requested trainings."""
    if curve.evidence != "measured":
        return f"No node-hours are derived from {curve.evidence} numbers: a request needs those of the machine itself."
    if request is None:
        return (
            f"No node-hours are derived: no size has an efficiency of {100 * curve.threshold:g} % or more at "
            f"{100 * LEVEL:.0f} % confidence."
        )
    what = f"One training on {_large(request.samples)} samples on {size_text(request.size)}"
    several = "" if request.runs == 1 else f"; {request.runs} trainings take {rate(request.total)} node-hours"
    return (
        f"{what} takes {rate(request.hours)} hours from its first step to its last, {rate(request.node_hours)} "
        f"node-hours{several}. "
        "Whole nodes are counted. Starts, evaluation, saved states, failed and repeated jobs come on top."
    )


def caveats(curve: Curve) -> Iterator[str]:
    """Limitations of the numbers, a sentence each."""
    sizes = curve.sizes
    if curve.family.preset != PUBLISHED:
        yield f"Trained: preset {curve.family.preset}, not the published network."
    if curve.family.data == "synthetic":
        yield "Input was synthetic: what reading data costs is not in these numbers."
    if curve.family.scaling_mode == "weak":
        yield "The batch grows with the ranks; whether a training then needs more samples was not measured."
    if missing := [size for size in sizes if size.row.num_launches < size.row.num_planned]:
        counts = (
            f"{size.row.num_launches} of {size.row.num_planned} on {size_text(size)}" for size in missing
        )
        yield f"Not every launch gave a number: {', '.join(counts)}."
    if curve.others:
        yield f"Also measured, and in the study's report: {', '.join(curve.others)}."
    yield from dict.fromkeys(
        f"On {size_text(size)}: {note}." for size in sizes for note in size.row.notes if size.row.throughput
    )


def factor_text(interval: Interval | None) -> str:
    """`7.36 [7.30, 7.42]`: two decimals, to distinguish 1.98 from 2; fewer from 10 on."""
    if interval is None:
        return "-"
    decimals = 2 if interval.center < 10 else 1 if interval.center < 100 else 0
    return with_limits(interval, f"{{:.{decimals}f}}".format)


def _large(value: int) -> str:
    """A number with a space between groups of three digits."""
    return f"{value:,}".replace(",", " ") if value >= 10_000 else number(value)
