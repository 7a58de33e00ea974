"""Gradients of torch in flat buckets in backward order, exchanged over any `Collective`, with overlap.

A *bucket* is a flat array on the host that some parameters' gradients are copied into as soon as they are there.
Buckets are filled in reverse order of the parameters, and exchanged strictly in order, each when its last gradient is
there (`communication`). Pipelined, every bucket exists twice: while one set is exchanged, the next step fills the
other. Where gradients are computed on the host, a bucket lies in the collective's own memory, and the optimizer reads
the means from it: one copy in and none out. Where they are computed on a GPU, `GpuStaging` copies them there and back.

DistributedDataParallel has buckets of its own, in its own memory; `DdpHook` exchanges them by the same threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from dlscale.collectives.backend import BUCKET_SIZES, Collective, Setting
from dlscale.collectives.training._torch import NoExchange, TorchTrainer, clear_gradients
from dlscale.collectives.training.communication import (
    CommunicationThreads,
    Training,
    cut_into_buckets,
    want_threads,
)
from dlscale.models.workload import Weights


class Staging:
    """Parameters on the host: a gradient's only copy is into the memory that is exchanged.

    Gradients are *fetched* from the device into host memory of the same shape and strides, exchanged there, and means
    or new weights are *delivered* to the device.
    """

    def memory(self, count: int, dtype: torch.dtype, collective: Collective) -> torch.Tensor:
        """`count` elements on the host, flat, where `collective` reduces fastest; collective."""
        return torch.from_numpy(collective.empty(count, str(dtype).removeprefix("torch.")))

    def fetch(self, tensor: torch.Tensor, host: torch.Tensor) -> None:
        """Begin to copy a tensor of the device to the host."""
        host.copy_(tensor)

    def on_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor itself where it is on the host, else a copy that has begun."""
        return tensor

    def arrival(self) -> Callable[[], object]:
        """What returns once all that was fetched until now is there; for any thread, and more than once."""
        return lambda: None

    def on_device(self, host: torch.Tensor) -> torch.Tensor:
        """The tensor itself where computations are on the host, else a copy for them."""
        return host

    def deliver(self, host: torch.Tensor, tensor: torch.Tensor) -> None:
        """Copy what `on_host` made of `tensor` back into it."""

    def num_threads(self) -> int:
        """Threads of this rank that compute on the host's cores."""
        return torch.get_num_threads()

    def settings(self) -> dict[str, Setting]:
        """For the record: copies of every gradient on its way."""
        return {"staging_copies": 1}


class GpuStaging(Staging):
    """Parameters on a GPU: every gradient is copied to pinned memory, and every mean or weight back.

    Fetches have their own stream, behind what has been computed so far, so that backpropagation goes on meanwhile.
    Deliveries are among the computations, before the update that needs them. A fetch of the next step is therefore
    behind this step's deliveries, and host memory may be written to after a later arrival.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._gpus: Any = torch.get_device_module(device)
        self._stream = self._gpus.Stream(device)

    def memory(self, count: int, dtype: torch.dtype, collective: Collective) -> torch.Tensor:  # noqa: ARG002
        return torch.zeros(count, dtype=dtype, pin_memory=True)  # which collectives' own memory is not

    def fetch(self, tensor: torch.Tensor, host: torch.Tensor) -> None:
        """On the stream of fetches; the tensor's memory is kept until it is copied."""
        self._stream.wait_stream(self._gpus.current_stream(self._device))
        with self._gpus.stream(self._stream):
            host.copy_(tensor, non_blocking=True)
        tensor.record_stream(self._stream)

    def on_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy in memory that torch takes back when both it and the GPU are done with it."""
        host = torch.empty_like(tensor, device="cpu", pin_memory=True)
        self.fetch(tensor, host)
        return host

    def arrival(self) -> Callable[[], object]:
        """By an event, at which a thread waits asleep: the cores are for the exchange.

        Deliveries until now are over then too, also where nothing was fetched since.
        """
        self._stream.wait_stream(self._gpus.current_stream(self._device))
        # Intel's events have no such choice.
        event = self._gpus.Event(**({"blocking": True} if self._device.type == "cuda" else {}))
        event.record(self._stream)
        wait: Callable[[], object] = event.synchronize
        return wait

    def on_device(self, host: torch.Tensor) -> torch.Tensor:
        return host.to(self._device, non_blocking=True, copy=True)

    def deliver(self, host: torch.Tensor, tensor: torch.Tensor) -> None:
        tensor.copy_(host, non_blocking=True)

    def num_threads(self) -> int:
        return 1  # which hands out the GPU's work

    def settings(self) -> dict[str, Setting]:
        return {"staging_copies": 2, "staged_through": "pinned host memory"}


def staging_of(parameters: Sequence[nn.Parameter]) -> Staging:
    """The staging that a replica with these parameters needs, all on one device."""
    device = parameters[0].device
    return Staging() if device.type == "cpu" else GpuStaging(device)


class Bucket:
    """Some parameters' gradients in one flat array; `number` decides which team exchanges it."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        number: int,
        threads: CommunicationThreads[Collective],
        staging: Staging,
    ) -> None:
        self.parameters = tuple(parameters)
        self._number, self._threads, self._staging = number, threads, staging
        length = self._length(sum(p.numel() for p in parameters))
        flat = staging.memory(length, parameters[0].dtype, threads.collective(number))
        self.array = flat.numpy()
        self.views: list[torch.Tensor] = []
        offset = 0
        for parameter in parameters:
            # Same strides as the parameter, so that copying into the view is a plain pass over memory.
            self.views.append(flat.as_strided(parameter.size(), parameter.stride(), offset))
            offset += parameter.numel()
        self.missing: set[int] = set()  # of `parameters`, the indices without a gradient
        self._under_way: Future[Any] | None = None

    def _length(self, count: int) -> int:
        """Elements of the array for so many of gradients."""
        return count

    def _exchange(self, collective: Collective) -> None:
        """Let the array hold means over ranks; collective."""
        collective.allreduce(self.array, "average")

    def clear(self) -> None:
        """A step begins: no gradient is there."""
        self.missing = set(range(len(self.parameters)))
        clear_gradients(self.parameters)

    def take(self, index: int) -> None:
        """Copy in the gradient of parameter `index`, and let go of it."""
        parameter = self.parameters[index]
        self._staging.fetch(parameter.grad, self.views[index])  # type: ignore[arg-type]
        parameter.grad = None
        self.missing.discard(index)

    def send(self) -> None:
        """Begin the exchange; a parameter that the step did not use counts as 0."""
        arrival, missing = self._staging.arrival(), tuple(self.missing)

        def exchange(collective: Collective) -> None:
            arrival()
            for index in missing:
                self.views[index].zero_()
            self._exchange(collective)

        self._under_way = self._threads.submit(self._number, exchange)

    def wait(self) -> None:
        """Return when the exchange that was begun is done; raises what went wrong."""
        under_way, self._under_way = self._under_way, None
        if under_way:
            under_way.result()

    def give(self) -> None:
        """Let the parameters' gradients be the means; the exchange must be done."""
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = self._staging.on_device(view)

    def flat(self, tensors: Sequence[torch.Tensor]) -> NDArray[Any]:
        """Tensors like the parameters, in an array like the bucket's."""
        whole = torch.empty(self.array.size, dtype=tensors[0].dtype)
        for tensor, view in zip(tensors, self.views, strict=True):
            whole.as_strided(view.size(), view.stride(), view.storage_offset()).copy_(tensor)
        flat: NDArray[Any] = whole.numpy()
        return flat


class BucketExchange(NoExchange):
    """Averages an objective's gradients bucket by bucket, by threads where there are some."""

    def __init__(
        self,
        objective: Any,
        threads: CommunicationThreads[Collective],
        training: Training,
        *,
        numbers: Iterator[int],
        staging: Staging,
        kind: type[Bucket],
    ) -> None:
        super().__init__(objective)
        self._threads, self._training, self._staging = threads, training, staging
        parameters = self._parameters
        groups = cut_into_buckets(
            [p.numel() * p.element_size() for p in parameters], [p.dtype for p in parameters]
        )
        own = [next(numbers) for _ in groups]
        self._sets = [
            [
                kind([parameters[index] for index in group], number, threads, staging)
                for group, number in zip(groups, own, strict=True)
            ]
            for _ in range(1 + training.pipelined)
        ]
        self._step = -1  # the first is 0
        self._next = 0  # bucket, the first that was not yet sent off
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._on_gradient(number, index))  # type: ignore[no-untyped-call]
            for number, bucket in enumerate(self._sets[0])
            for index, parameter in enumerate(bucket.parameters)
        ]

    def drain(self) -> bool:
        if not self._training.drains(self._step + 1):
            return False
        self._give(self._filling())
        return True

    def begin(self) -> None:
        self._step += 1
        self._next = 0
        for bucket in self._filling():
            bucket.clear()

    def flush(self) -> None:
        while self._next < len(self._filling()):
            self._send_next()

    def finish(self) -> bool:
        """Let every gradient be a mean over ranks: of this step, or pipelined of the step before, if there is one."""
        delayed = self._training.is_delayed(self._step)
        if delayed and self._step == 0:
            return False
        self._give(self._sets[(self._step + 1) % len(self._sets)] if delayed else self._filling())
        return True

    def synchronize(self) -> None:
        for buckets in self._sets:
            for bucket in buckets:
                bucket.wait()

    def settings(self) -> dict[str, Setting]:
        """Bucket sizes, how they are exchanged, and the collective's own decisions."""
        return {
            BUCKET_SIZES: ",".join(str(bucket.array.nbytes) for bucket in self._sets[0]),
            **self._staging.settings(),
            **self._training.settings(),
            **self._threads.settings(),
        }

    def buckets(self) -> list[Bucket]:
        """The buckets of a step, in order; not pipelined."""
        return self._sets[0]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _filling(self) -> list[Bucket]:
        return self._sets[self._step % len(self._sets)]

    def _give(self, buckets: Sequence[Bucket]) -> None:
        for bucket in buckets:
            bucket.wait()
            bucket.give()

    def _on_gradient(self, bucket: int, index: int) -> Callable[[torch.Tensor], None]:
        def note(_: torch.Tensor) -> None:
            filling = self._filling()
            filling[bucket].take(index)
            while self._next < len(filling) and not filling[self._next].missing:
                self._send_next()

        return note

    def _send_next(self) -> None:
        self._filling()[self._next].send()
        self._next += 1


class BucketTrainer(TorchTrainer):
    """A replica whose gradients travel in buckets (`compression.CompressedTrainer`)."""

    exchanges: tuple[BucketExchange, ...]

    def buckets(self) -> list[NDArray[Any]]:
        """The buckets of all objectives, in order; not pipelined."""
        return [bucket.array for exchange in self.exchanges for bucket in exchange.buckets()]

    def flat(self, arrays: Weights) -> list[NDArray[Any]]:
        """Arrays in the order and shapes of the weights, each where its parameter's gradient lies in a bucket."""
        parameters = [p for objective in self._replica.objectives for p in objective.parameters]
        of_parameter = dict(zip(parameters, self._replica.tensors(arrays), strict=True))
        return [
            bucket.flat([of_parameter[parameter] for parameter in bucket.parameters])
            for exchange in self.exchanges
            for bucket in exchange.buckets()
        ]


def over(replica: Any, collectives: Sequence[Collective], training: Training) -> BucketTrainer:
    """The replica with its gradients exchanged over `collectives`, one per team; collective."""
    exchanges, threads = exchanges_over(replica, collectives, training)
    return BucketTrainer(replica, exchanges, close=threads.close)


def exchanges_over(
    replica: Any, collectives: Sequence[Collective], training: Training, *, kind: type[Bucket] = Bucket
) -> tuple[list[BucketExchange], CommunicationThreads[Collective]]:
    """An exchange per objective, and the threads of them all; collective.

    The objectives' buckets go round the teams one after the other.
    """
    staging = staging_of([p for objective in replica.objectives for p in objective.parameters])
    overlaps = want_threads(collectives[0], training.threads, num_threads=staging.num_threads())
    threads = CommunicationThreads(collectives, threads=overlaps)
    numbers = count()
    exchanges = [
        BucketExchange(objective, threads, training, numbers=numbers, staging=staging, kind=kind)
        for objective in replica.objectives
    ]
    return exchanges, threads


class DdpHook:
    """The argument of DistributedDataParallel's `register_comm_hook`; built by `ring.torch_hook`.

    DistributedDataParallel's process group stays idle after it has broadcast the first weights. With communication
    threads the buckets are exchanged during backpropagation. What the exchange raises comes out of `backward()`.
    """

    def __init__(self, rings: Sequence[Any], *, threads: bool | None) -> None:
        self.__name__ = self.__qualname__ = "ring"  # DistributedDataParallel logs both
        overlaps = want_threads(rings[0], threads, num_threads=torch.get_num_threads())
        self._threads = CommunicationThreads(rings, threads=overlaps)

    # DistributedDataParallel reads the annotations, and takes postponed ones for wrong types.
    def __call__(self, _state, bucket):  # type: ignore[no-untyped-def]
        """Begin to average a bucket over ranks; collective. Returns a future of its tensor."""
        tensor = bucket.buffer()
        if tensor.device.type != "cpu":
            raise ValueError(
                f"gradients are on {tensor.device}, but the ring works on host memory; compute on the CPU"
            )
        halves = tensor.dtype == torch.bfloat16  # which NumPy does not have
        array = tensor.detach().view(torch.uint16 if halves else tensor.dtype).numpy()
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()

        def complete(exchange: Future[Any]) -> None:
            error = exchange.exception()
            if isinstance(error, Exception):
                done.set_exception(error)  # type: ignore[arg-type]
            else:
                done.set_result(tensor)

        exchange = self._threads.submit(
            bucket.index(), lambda ring: ring.allreduce(array, "average", bfloat16=halves)
        )
        exchange.add_done_callback(complete)
        # Only a future whose callback raised hands its error over to C++.
        return done.then(lambda future: future.value())

    def settings(self) -> dict[str, Setting]:
        """For a record: whether exchanges overlap, by how many threads, and the ring's own decisions."""
        return self._threads.settings()

    def close(self) -> None:
        """End the threads when all is done; the rings stay open."""
        self._threads.close()
