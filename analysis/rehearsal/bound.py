"""The best that a system's network allows (M33).

A ring, and any other allreduce that sends each byte no more often than it must, moves 2 (n - 1) / n times the gradients
through every node's link, n nodes. Two bounds follow from the time for that and the time that a step computes:

    everything hidden   min(1, compute / wire)       all of the exchange runs beside the computation
    nothing hidden      compute / (compute + wire)   none of it does

A measured curve may lie below both, for latency, jitter and late ranks are in neither, and never above the first one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The limits of one size; efficiencies as fractions of 1."""

    num_nodes: int
    num_ranks: int
    compute_seconds: float  # of a step, on one rank
    wire_seconds: float

    @property
    def hidden(self) -> float:
        """With all of the exchange beside the computation."""
        return min(1.0, self.compute_seconds / self.wire_seconds) if self.wire_seconds else 1.0

    @property
    def exposed(self) -> float:
        """With all of it after the computation."""
        return self.compute_seconds / (self.compute_seconds + self.wire_seconds)


def bound(
    *, num_nodes: int, num_ranks: int, compute_seconds: float, gradient_bytes: int, bytes_per_second: float
) -> Bound:
    """The bound of one size; `bytes_per_second` is what one node can send, per direction."""
    wire = 2 * (num_nodes - 1) / num_nodes * gradient_bytes / bytes_per_second
    return Bound(num_nodes=num_nodes, num_ranks=num_ranks, compute_seconds=compute_seconds, wire_seconds=wire)
