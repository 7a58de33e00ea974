"""A communication hook for torch's DistributedDataParallel: its buckets travel through the ring.

The process group that DistributedDataParallel asks for stays idle after it has spread the first weights.
"""

# No postponed annotations here: DistributedDataParallel reads the types of a hook's arguments.
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import GradBucket  # type: ignore[attr-defined]

from dlscale.collectives.fronts._torch_memory import allreduce, array_of
from dlscale.collectives.fronts.teams import Teams, want_threads

if TYPE_CHECKING:
    from dlscale.collectives.ring.engine import Ring


# Numbers of buckets per hook: enough for any model, and the ring has enough for many hooks.
_NUM_BUCKETS = 1 << 20


class DdpHook:
    """What to give to `register_comm_hook`; built by `ring.torch_hook`.

    With communication threads the buckets are exchanged while backpropagation goes on, else in line. What the
    exchange raises comes out of `backward()`.
    """

    def __init__(self, rings: "Sequence[Ring]", *, threads: bool | None) -> None:
        self.__name__ = self.__qualname__ = "ring"  # DistributedDataParallel logs both
        self._teams = Teams(
            rings, threads=want_threads(rings[0], threads, num_threads=torch.get_num_threads())
        )
        self._first_bucket = rings[0].reserve_buckets(_NUM_BUCKETS)

    def __call__(self, _state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Begin to average a bucket over ranks; collective."""
        tensor = bucket.buffer()
        array_of(tensor)  # what cannot be exchanged ends here, not in a thread
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        number = self._first_bucket + bucket.index()
        exchange = self._teams.submit(
            bucket.index(), lambda collective: allreduce(collective, tensor, "average", bucket=number)
        )
        if not self._teams.num_threads:
            done.set_result(tensor)
            return done

        def complete(exchange: "Future[Any]") -> None:
            error = exchange.exception()
            if isinstance(error, Exception):
                done.set_exception(error)  # type: ignore[arg-type]
            else:
                done.set_result(tensor)

        exchange.add_done_callback(complete)
        # Only a future whose callback raised hands its error over to C++; see its text in the tests.
        return done.then(lambda future: future.value())

    def settings(self) -> dict[str, str | int | float | bool]:
        """For a record: whether the exchange overlaps with backpropagation, its threads, and the ring's own."""
        return {
            "overlap": self._teams.num_threads > 0,
            "teams": self._teams.num_threads,
            **self._teams.collective(0).settings(),
        }

    def close(self) -> None:
        """End the threads when all is done; the rings stay open."""
        self._teams.close()
