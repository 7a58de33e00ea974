"""Gradients of torch in flat buckets in backward order, exchanged over any `Collective`, with overlap.

Vocabulary: a *bucket* is a flat array on the host that some parameters' gradients are copied into as soon as they are
there. Where they are computed on the host, it lies in memory of the collective's own, and the optimizer reads the means
from it: one copy in and none out. Where they are computed on a GPU, the means are copied back (`_torch_staging`).
Backpropagation produces gradients from the last layer to the first, hence buckets are filled in reverse order of
the parameters; a bucket is *ready* when its last gradient is there. Ready buckets are exchanged strictly in order,
the same on all ranks, or the ranks would wait for each other for ever.

Pipelined, every bucket exists twice. While one set is exchanged, the next step fills the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from dlscale.collectives.backend import BUCKET_SIZES, Collective
from dlscale.collectives.training._torch import Setting, clear_gradients
from dlscale.collectives.training._torch_staging import Staging
from dlscale.collectives.training.communication import Teams, Training

# DistributedDataParallel's sizes: a small first bucket starts the exchange early.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


class Bucket:
    """Some parameters' gradients in one flat array; `number` decides which team exchanges it."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        number: int,
        teams: Teams[Collective],
        *,
        staging: Staging,
    ) -> None:
        self.parameters = tuple(parameters)
        self._number, self._teams, self._staging = number, teams, staging
        count = self._length(sum(p.numel() for p in parameters))
        flat = staging.memory(count, parameters[0].dtype, teams.collective(number))
        self.array = flat.numpy()
        self.views: list[torch.Tensor] = []
        offset = 0
        for parameter in parameters:
            # Same strides as the parameter, so that copying into the view is a plain pass over memory.
            self.views.append(flat.as_strided(parameter.size(), parameter.stride(), offset))
            offset += parameter.numel()
        self._missing: set[int] = set()
        self._under_way: Future[Any] | None = None

    def _length(self, count: int) -> int:
        """Elements of the array for so many of gradients."""
        return count

    def _exchange(self, collective: Collective) -> None:
        """Let the array hold means over ranks; collective."""
        collective.allreduce(self.array, "average")

    def clear(self) -> None:
        """A step begins: no gradient is there."""
        self._missing = set(range(len(self.parameters)))

    def take(self, index: int) -> None:
        """Copy in the gradient of parameter `index`, and let go of it."""
        parameter = self.parameters[index]
        self._staging.fetch(parameter.grad, self.views[index])  # type: ignore[arg-type]
        parameter.grad = None
        self._missing.discard(index)

    def is_ready(self) -> bool:
        """Whether all gradients are there."""
        return not self._missing

    def send(self) -> None:
        """Begin the exchange; a parameter that the step did not use counts as 0."""
        arrival, missing = self._staging.arrival(), tuple(self._missing)

        def exchange(collective: Collective) -> None:
            arrival()
            for index in missing:
                self.views[index].zero_()
            self._exchange(collective)

        self._under_way = self._teams.submit(self._number, exchange)

    def wait(self) -> None:
        """Return when the exchange that was begun is done; raises what went wrong."""
        under_way, self._under_way = self._under_way, None
        if under_way:
            under_way.result()

    def flat(self, tensors: Sequence[torch.Tensor]) -> NDArray[Any]:
        """Tensors like the parameters, in an array like the bucket's."""
        whole = torch.empty(self.array.size, dtype=tensors[0].dtype)
        for tensor, view in zip(tensors, self.views, strict=True):
            whole.as_strided(view.size(), view.stride(), view.storage_offset()).copy_(tensor)
        flat: NDArray[Any] = whole.numpy()
        return flat

    def give(self) -> None:
        """Let the parameters' gradients be the means; the exchange must be done."""
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = self._staging.on_device(view)


class BucketExchange:
    """Averages an objective's gradients bucket by bucket, by threads where there are some (`Exchange`)."""

    def __init__(
        self,
        objective: Any,
        teams: Teams[Collective],
        training: Training,
        *,
        numbers: Any,
        staging: Staging,
        kind: type[Bucket] = Bucket,
    ) -> None:
        self.loss: nn.Module = objective.loss
        self._teams, self._training, self._staging = teams, training, staging
        groups = _partition(objective.parameters)
        own = [next(numbers) for _ in groups]
        self._sets = [
            [
                kind(parameters, number, teams, staging=staging)
                for parameters, number in zip(groups, own, strict=True)
            ]
            for _ in range(1 + training.delay)
        ]
        self._step = -1  # the first is 0
        self._next = 0  # bucket, the first that was not yet sent off
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                self._on_gradient(bucket, index)
            )
            for bucket, parameters in enumerate(groups)
            for index, parameter in enumerate(parameters)
        ]

    def drain(self) -> bool:
        """Whether gradients of the step before are still to be applied; then every gradient holds their mean."""
        if not self._training.drains(self._step + 1):
            return False
        self._give(self._filling())
        return True

    def begin(self) -> None:
        self._step += 1
        self._next = 0
        for bucket in self._filling():
            bucket.clear()
            clear_gradients(bucket.parameters)

    def flush(self) -> None:
        while self._next < len(self._filling()):
            self._send_next()

    def finish(self) -> bool:
        """Let every gradient be a mean over ranks: of this step, or pipelined of the step before, if there is one."""
        delayed = self._training.is_delayed(self._step)
        if delayed and self._step == 0:
            return False
        self._give(self._other() if delayed else self._filling())
        return True

    def synchronize(self) -> None:
        for buckets in self._sets:
            for bucket in buckets:
                bucket.wait()

    def settings(self) -> dict[str, Setting]:
        """Bucket sizes, how they are exchanged, and the collective's own decisions."""
        return {
            BUCKET_SIZES: ",".join(str(bucket.array.nbytes) for bucket in self._sets[0]),
            "overlap": self._teams.num_threads > 0,
            "teams": self._teams.num_threads,
            **self._staging.settings(),
            **self._training.settings(),
            **self._teams.collective(0).settings(),
        }

    def buckets(self) -> list[Bucket]:
        return self._sets[0]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _filling(self) -> list[Bucket]:
        return self._sets[self._step % len(self._sets)]

    def _other(self) -> list[Bucket]:
        return self._sets[(self._step + 1) % len(self._sets)]

    def _give(self, buckets: Sequence[Bucket]) -> None:
        for bucket in buckets:
            bucket.wait()
            bucket.give()

    def _on_gradient(self, bucket: int, index: int) -> Callable[[torch.Tensor], None]:
        def note(_: torch.Tensor) -> None:
            filling = self._filling()
            filling[bucket].take(index)
            while self._next < len(filling) and filling[self._next].is_ready():
                self._send_next()

        return note

    def _send_next(self) -> None:
        self._filling()[self._next].send()
        self._next += 1


def _partition(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Parameters in backward order, cut where a bucket reaches its size or the dtype changes."""
    buckets: list[list[nn.Parameter]] = []
    num_bytes = 0
    for parameter in reversed(parameters):
        limit = FIRST_BUCKET_BYTES if len(buckets) <= 1 else BUCKET_BYTES
        if not buckets or num_bytes >= limit or buckets[-1][0].dtype != parameter.dtype:
            buckets.append([])
            num_bytes = 0
        buckets[-1].append(parameter)
        num_bytes += parameter.numel() * parameter.element_size()
    return buckets
