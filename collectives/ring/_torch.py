"""A communication hook for torch's DistributedDataParallel: its buckets travel through the ring.

The process group that DistributedDataParallel asks for stays idle after it has broadcast the first weights. Tensors are
handed to the ring as arrays that share their memory: nothing is copied.
"""

# No postponed annotations here: DistributedDataParallel reads the types of a hook's arguments.

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import torch
from numpy.typing import NDArray
from torch.distributed import GradBucket  # type: ignore[attr-defined]

from dlscale.collectives.ring.engine import Ring
from dlscale.collectives.training.communication import Teams, want_threads


def array_of(tensor: torch.Tensor) -> NDArray[Any]:
    """The memory of `tensor` as an array; bfloat16, which NumPy does not have, as uint16.

    Raises TypeError or ValueError for a tensor that is sparse, not on the CPU or not contiguous.
    """
    if tensor.layout != torch.strided:
        raise TypeError(f"the tensor is {tensor.layout}; give tensor.to_dense()")
    if tensor.device.type != "cpu":
        raise ValueError(
            f"the tensor is on {tensor.device}, but the ring works on host memory; give tensor.cpu()"
        )
    if not tensor.is_contiguous():
        raise ValueError(
            f"the tensor with shape {tuple(tensor.shape)} and strides {tensor.stride()} is not contiguous; give "
            "tensor.contiguous() and copy the result back"
        )
    tensor = tensor.detach()
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _average(ring: Ring, tensor: torch.Tensor) -> None:
    ring.allreduce(array_of(tensor), "average", bfloat16=tensor.dtype == torch.bfloat16)


class DdpHook:
    """The argument of `register_comm_hook`; built by `ring.torch_hook`.

    With communication threads the buckets are exchanged during backpropagation, else not overlapped. What the
    exchange raises comes out of `backward()`.
    """

    def __init__(self, rings: "Sequence[Ring]", *, threads: bool | None) -> None:
        self.__name__ = self.__qualname__ = "ring"  # DistributedDataParallel logs both
        self._teams = Teams(
            rings, threads=want_threads(rings[0], threads, num_threads=torch.get_num_threads())
        )

    def __call__(self, _state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Begin to average a bucket over ranks; collective."""
        tensor = bucket.buffer()
        array_of(tensor)  # what cannot be exchanged ends here, not in a thread
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        exchange = self._teams.submit(bucket.index(), lambda collective: _average(collective, tensor))
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
