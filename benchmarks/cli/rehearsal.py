"""What is published of a rehearsed study, and network bounds, printed and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from dlscale.analysis.figures.rehearsal import draw_rehearsal, rehearsal_origin
from dlscale.analysis.findings.bounds import NetworkBound, network_bound
from dlscale.analysis.published.catalogue import load_published
from dlscale.analysis.published.values import Statement
from dlscale.benchmarks.launch.campaign import Campaign, describe_campaign
from dlscale.benchmarks.systems.system import System
from dlscale.models.workload import Preset

GRADIENT_BYTES = 4  # float32, in every precision (models.workload.Execution)


def show_bounds(campaign: Campaign) -> None:
    """Print what is published and the bounds of each workload, and draw the bounds into the campaign's folder."""
    study, system = campaign.plan.study, campaign.system
    published = load_published()
    for name in study.workloads:
        preset = study.facts(name).preset(study.preset)
        said = published.said_of(system.name, name, study.scaling_mode)
        for statement in said:
            click.echo(f"published, {name}: {statement.statement} ({statement.kind}; {statement.source})")
        if not said:
            click.echo(f"published, {name}: nothing of {study.scaling_mode} scaling on {system.name}")
        bounds, source = _bounds(campaign, preset, name)
        if not bounds:
            click.echo(
                f"bound, {name} ({preset.name}): unknown; the system's file states no {study.precision} peak or no "
                "bandwidth, and no time per sample is published for this preset"
            )
            continue
        last = bounds[-1]
        click.echo(
            f"bound, {name} ({preset.name}) on {last.num_nodes} nodes: a step computes for "
            f"{1e3 * last.compute_seconds:.3g} ms ({source}) and its gradients take {1e3 * last.wire_seconds:.3g} ms "
            f"on the wire: efficiency at most {100 * last.hidden:.0f} % fully overlapped, "
            f"{100 * last.exposed:.0f} % not overlapped"
        )
        click.echo(f"bounds drawn: {_draw(campaign, preset, name, said, bounds, source)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Seconds that a rank computes in a step, and how that is known."""

    seconds: float
    origin: str


def compute_time(
    system: System, workload: str, preset: Preset, *, precision: str, local_batch: int, ranks_per_node: int
) -> Compute | None:
    """A published time per sample at the published size, else FLOPs at the stated peak; None if neither is known.

    No training reaches the peak: steps by FLOPs are too short, which makes the network look worse than it is.
    """
    published = system.sample_times.get(workload) if preset.name == "paper" else None
    if published:
        return Compute(
            seconds=published.number * local_batch * ranks_per_node,
            origin=f"published: {published.number * 1e3:g} ms per sample "
            f"({published.kind}; {system.sources[published.source]})",
        )
    owner = system.devices or system.node
    share = 1 if system.devices else ranks_per_node
    if precision not in owner.peak:
        return None
    peak = owner.peak[precision]
    return Compute(
        seconds=3 * preset.forward_flops_per_sample * local_batch * share / peak.number,
        origin=f"3 x forward FLOPs at the stated peak of {peak.value} ({system.sources[peak.source]})",
    )


def _bounds(campaign: Campaign, preset: Preset, workload: str) -> tuple[list[NetworkBound], str]:
    """The bounds on full nodes, and the source of the compute time; empty where that is unknown."""
    study, shape = campaign.plan.study, campaign.plan.shape
    per_node = shape.ranks_per_node or 1
    batches = {
        (case.cell.num_nodes, case.cell.num_ranks): case.cell.local_batch
        for launch in campaign.plan.launches
        for case in launch.cases
        if case.cell.workload == workload and case.cell.control == "train"
    }
    sizes = [
        size
        for size in shape.sizes
        if size.num_ranks == size.num_nodes * per_node and (size.num_nodes, size.num_ranks) in batches
    ]
    computes = [
        compute_time(
            campaign.system,
            workload,
            preset,
            precision=study.precision,
            local_batch=batches[size.num_nodes, size.num_ranks],
            ranks_per_node=per_node,
        )
        for size in sizes
    ]
    known = [compute for compute in computes if compute]
    fabric = campaign.system.fabric
    if not known or len(known) < len(sizes) or not fabric or not fabric.bandwidth:
        return [], ""
    bounds = [
        network_bound(
            num_nodes=size.num_nodes,
            num_ranks=size.num_ranks,
            compute_seconds=compute.seconds,
            gradient_bytes=GRADIENT_BYTES * preset.num_parameters,
            bytes_per_second=fabric.bandwidth.number,
        )
        for size, compute in zip(sizes, known, strict=True)
    ]
    return bounds, known[-1].origin


def _draw(
    campaign: Campaign,
    preset: Preset,
    workload: str,
    said: Sequence[Statement],
    bounds: Sequence[NetworkBound],
    source: str,
) -> Path:
    study, system = campaign.plan.study, campaign.system
    megabytes = GRADIENT_BYTES * preset.num_parameters / 1e6
    wire = ""
    if system.fabric and (bandwidth := system.fabric.bandwidth):
        wire = f"{bandwidth.value} per node ({system.sources[bandwidth.source]})"
    where = rehearsal_origin(
        bounds,
        study=campaign.store.folder.name,
        system=system.name,
        commit=campaign.fingerprint.commit,
        command=str(describe_campaign(campaign)["command"]),
    )
    png, *_ = draw_rehearsal(
        bounds,
        campaign.store.figures_folder / f"{workload}-{preset.name}-{study.scaling_mode}-bounds",
        title=f"{workload} {preset.name}, {study.scaling_mode} scaling on {system.name}",
        subtitle=f"{study.precision}, {campaign.plan.shape.ranks_per_node or 1} ranks per node",
        small_print=[
            f"Compute: {source}. Wire: 2 (n - 1) / n x {megabytes:.3g} MB of gradients at {wire}.",
            *(f"Published: {statement.statement} ({statement.source})." for statement in said),
        ],
        provenance=where,
    )
    return png
