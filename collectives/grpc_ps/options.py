"""The user's options of parameter servers."""

from __future__ import annotations

from dataclasses import dataclass

from dlscale.base.errors import UsageError

PLACEMENTS = ("size", "round_robin")
KEPT_BY_SERVERS = (
    "grpc_ps has no checkpoints: its servers keep what optimizers do; leave out rules.checkpoint_every"
)


def refuse_compiled(compiled: bool) -> None:
    """Returns unless TensorFlow's networks are compiled. Raises UsageError."""
    if compiled:
        raise UsageError(
            "backend grpc_ps keeps TensorFlow's variables on other hosts, where XLA cannot read them; "
            "leave compiled out"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`asynchronous`: a worker's gradients are applied as they come, and no worker waits for another.

    `backup_workers` (TensorFlow, synchronous): an update takes the gradients of all workers but so many, the first
    to come, and drops the others. `placement` (TensorFlow): variables go to the server with the fewest bytes so far,
    or round robin; torch's weights are cut into pieces of equal size. `chunk_kib` (torch): bytes of a message.
    `port`: of server 0, the others take the next ones; 0 means any that is free. `allow_open_ports` (TensorFlow): use
    TensorFlow's servers, which listen unauthenticated on all interfaces, between machines too.
    """

    asynchronous: bool = False
    backup_workers: int = 0
    placement: str = "size"
    chunk_kib: int = 1024
    port: int = 0
    allow_open_ports: bool = False

    def check(self, framework: str, *, num_workers: int) -> None:
        """Returns if the options make sense together. Raises UsageError."""
        if self.placement not in PLACEMENTS:
            raise UsageError(
                f"option placement of backend grpc_ps is {self.placement!r}; choose from: {', '.join(PLACEMENTS)}"
            )
        if not 0 <= self.backup_workers < num_workers:
            raise UsageError(
                f"backup_workers={self.backup_workers} of {num_workers} workers; at least one worker's gradients "
                f"must count: give 0 to {num_workers - 1}"
            )
        if self.backup_workers and (self.asynchronous or framework != "tensorflow"):
            raise UsageError(
                "backup_workers are for TensorFlow's synchronous servers; leave them out with asynchronous and in torch"
            )
        if not 1 <= self.chunk_kib <= 65536:
            raise UsageError(f"chunk_kib={self.chunk_kib} of backend grpc_ps; give 1 to 65536")
        if not 0 <= self.port <= 65535:
            raise UsageError(
                f"port={self.port} of backend grpc_ps; give 1 to 65535, or 0 for any that is free"
            )
