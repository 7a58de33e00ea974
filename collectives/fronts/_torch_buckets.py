"""Gradient exchange for torch over any `Collective`: flat buckets in backward order, with overlap.

Vocabulary: a *bucket* is a flat array into which the gradients of some parameters are views, so nothing is
copied before or after the exchange. Backpropagation produces gradients from the last layer to the first,
hence buckets are filled in reverse order of the parameters; a bucket is *ready* when its last gradient is
there. Ready buckets are exchanged strictly in order, the same on all ranks, or the ranks would wait for each
other for ever.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from dlscale.collectives.backend import Collective
from dlscale.collectives.fronts._torch import Setting, TorchTrainer

# DistributedDataParallel's sizes: a small first bucket starts the exchange early.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


def over(replica: Any, collective: Collective) -> TorchTrainer:
    """The replica with its gradients exchanged over `collective`.

    With a core to spare a thread exchanges ready buckets while backpropagation goes on; without one it would
    only take time from the computation, and buckets are exchanged in line. MPI must allow calls from
    that thread (mpi4py asks for MPI_THREAD_MULTIPLE).
    """
    overlap = torch.get_num_threads() < len(os.sched_getaffinity(0))
    # One thread for all objectives: a communicator carries one operation at a time.
    sender = _Sender(collective) if overlap else None
    return TorchTrainer(replica, lambda objective: BucketExchange(objective, collective, sender=sender))


class Bucket:
    """Some parameters' gradients as views into one flat array."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = tuple(parameters)
        self.flat = torch.zeros(sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
        self.array: np.ndarray[Any, Any] = self.flat.numpy()
        self.num_missing = 0
        self.views: list[torch.Tensor] = []
        offset = 0
        for parameter in parameters:
            # Same strides as the parameter, so that accumulating into the view is a plain pass over memory.
            view = self.flat[offset : offset + parameter.numel()].as_strided(
                parameter.size(), parameter.stride(), offset
            )
            self.views.append(view)
            offset += parameter.numel()

    def average(self, collective: Collective) -> None:
        """The mean over ranks takes the place of this rank's gradients; collective."""
        collective.allreduce(self.array)
        if collective.size > 1:
            np.divide(self.array, collective.size, out=self.array)

    def clear(self) -> None:
        """Zero the gradients; a parameter that a step does not use then counts as 0."""
        self.flat.zero_()
        self.num_missing = len(self.parameters)
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view


class BucketExchange:
    """Averages an objective's gradients bucket by bucket, by a thread where there is one (`Exchange`)."""

    def __init__(self, objective: Any, collective: Collective, *, sender: _Sender | None) -> None:
        self.loss: nn.Module = objective.loss
        self._collective = collective
        self._sender = sender
        self._buckets = [Bucket(parameters) for parameters in _partition(objective.parameters)]
        self._next = 0  # the first bucket that was not yet sent off
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                self._on_gradient(bucket)
            )
            for bucket in self._buckets
            for parameter in bucket.parameters
        ]

    def begin(self) -> None:
        """Clear the gradients."""
        self._next = 0
        for bucket in self._buckets:
            bucket.clear()

    def finish(self) -> None:
        """Exchange what is left, in order, and wait for what is under way."""
        while self._next < len(self._buckets):
            self._send_next()
        if self._sender:
            self._sender.wait()

    def settings(self) -> dict[str, Setting]:
        """Bucket sizes, whether the exchange overlaps with backpropagation, and the collective's own."""
        sizes = ",".join(str(bucket.array.nbytes) for bucket in self._buckets)
        return {"bucket_bytes": sizes, "overlap": self._sender is not None, **self._collective.settings()}

    def close(self) -> None:
        """Remove the hooks and end the thread."""
        for hook in self._hooks:
            hook.remove()
        if self._sender:
            self._sender.close()

    def _on_gradient(self, bucket: Bucket) -> Any:
        def note(_: torch.Tensor) -> None:
            bucket.num_missing -= 1
            while self._next < len(self._buckets) and self._buckets[self._next].num_missing == 0:
                self._send_next()

        return note

    def _send_next(self) -> None:
        bucket = self._buckets[self._next]
        self._next += 1
        if self._sender:
            self._sender.send(bucket)
        else:
            bucket.average(self._collective)


class _Sender:
    """A thread that exchanges buckets in the order in which they were sent to it."""

    def __init__(self, collective: Collective) -> None:
        self._collective = collective
        self._queue: queue.SimpleQueue[Bucket | None] = queue.SimpleQueue()
        self._num_open = 0
        self._done: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="dlscale-exchange", daemon=True)
        self._thread.start()

    def send(self, bucket: Bucket) -> None:
        self._num_open += 1
        self._queue.put(bucket)

    def wait(self) -> None:
        """Return when all buckets are exchanged; raises what the thread raised."""
        while self._num_open:
            self._num_open -= 1
            error = self._done.get()
            if error:
                raise error

    def close(self) -> None:
        """End the thread; a second close does nothing."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (bucket := self._queue.get()) is not None:
            try:
                bucket.average(self._collective)
            except Exception as error:
                self._done.put(error)
            else:
                self._done.put(None)


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
