"""The mean of the workers' gradients of one chunk, with the same bits whatever order they come in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.grpc_ps.messages import RefusedError


class OrderedMean:
    """Adds the workers' gradients in the order of the workers; one that comes early is kept as it came.

    With one worker nothing is copied or computed.
    """

    def __init__(self, *, count: int, num_workers: int) -> None:
        self._num_workers = num_workers
        self._sum = np.empty(count if num_workers > 1 else 0, dtype=np.float32)
        self._waiting: dict[int, NDArray[np.float32]] = {}
        self._first: NDArray[np.float32] | None = None
        self._num_added = 0

    @property
    def is_partial(self) -> bool:
        """Whether some workers' gradients are there and others are missing."""
        return bool(self._num_added or self._waiting)

    def add(self, worker: int, gradient: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """The mean, if this is the last; valid until the next `add`. Raises RefusedError for a worker's second."""
        if worker in self._waiting or worker < self._num_added:
            raise RefusedError(f"worker {worker} sent a gradient twice")
        self._waiting[worker] = gradient
        with np.errstate(over="ignore", invalid="ignore"):  # of training that diverges, which gates tell
            while self._num_added in self._waiting:
                self._take(self._waiting.pop(self._num_added))
        if self._num_added < self._num_workers:
            return None
        self._num_added = 0
        if self._num_workers == 1:
            return gradient
        return np.divide(self._sum, np.float32(self._num_workers), out=self._sum)

    @np.errstate(invalid="ignore", over="ignore")  # what is not finite reaches the weights, and the gates
    def _take(self, gradient: NDArray[np.float32]) -> None:
        if self._num_added == 1 and self._first is not None:
            np.add(self._first, gradient, out=self._sum)
            self._first = None
        elif self._num_added:
            self._sum += gradient
        elif self._num_workers > 1:
            self._first = gradient
        self._num_added += 1
