"""How long a training step computes on a system that nobody has measured."""

from __future__ import annotations

from dataclasses import dataclass

from dlscale.benchmarks.anchors import load_anchors
from dlscale.benchmarks.system import System
from dlscale.models.workload import Preset


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Seconds that a rank computes in a step, and how that is known."""

    seconds: float
    origin: str


def compute_time(
    system: System, workload: str, preset: Preset, *, precision: str, local_batch: int, ranks_per_node: int
) -> Compute | None:
    """A published time per sample at the published size, else FLOPs at the stated peak; None if neither is known.

    At its peak nothing trains: the second one makes steps too short, and so the network look worse than it is.
    """
    if preset.name == "paper":
        for one in load_anchors():
            if (one.system, one.workload, one.quantity) == (
                system.name,
                workload,
                "seconds_per_sample",
            ) and one.value:
                return Compute(
                    seconds=one.value * local_batch * ranks_per_node,
                    origin=f"published: {one.value * 1e3:g} ms per sample ({one.kind}; {one.source})",
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
