"""A rehearsal's published anchors and network bounds, printed and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from dlscale.analysis.figures.rehearsal import draw_rehearsal, rehearsal_origin
from dlscale.analysis.findings.bounds import NetworkBound, network_bound
from dlscale.benchmarks.launch.campaign import Campaign, describe_campaign
from dlscale.benchmarks.systems.anchors import Anchor, compute_time, load_anchors
from dlscale.models.workload import Preset

GRADIENT_BYTES = 4  # float32, in every precision (models.workload.Execution)


def show_bounds(campaign: Campaign) -> None:
    """Print the anchors and bounds of each workload, and draw the bounds into the campaign's folder."""
    study, system = campaign.plan.study, campaign.system
    anchors = [anchor for anchor in load_anchors() if anchor.system == system.name]
    for name in study.workloads:
        preset = study.facts(name).preset(study.preset)
        key = (name, study.scaling_mode)
        own = [anchor for anchor in anchors if (anchor.workload, anchor.scaling_mode) == key]
        for anchor in own:
            click.echo(f"published, {name}: {anchor.statement} ({anchor.kind}; {anchor.source})")
        if not own:
            click.echo(f"published, {name}: no numbers for {study.scaling_mode} scaling on {system.name}")
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
        click.echo(f"bounds drawn: {_draw(campaign, preset, name, own, bounds, source)}")


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
    anchors: Sequence[Anchor],
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
            *(
                f"Published: {anchor.statement} ({anchor.source})."
                for anchor in anchors
                if anchor.quantity == "statement"
            ),
        ],
        provenance=where,
    )
    return png
