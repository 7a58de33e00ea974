"""What torch.distributed gets for an operation that is under way."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


class RingWork(dist.Work):
    """An operation of the ring; what it raised is raised where it is waited for."""

    def __init__(self, operation: Future[Any], results: Any) -> None:
        super().__init__()
        self._operation, self._results = operation, results

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return True when the operation is done; raises TimeoutError after `timeout`, where 0 means never."""
        self._operation.result(timeout.total_seconds() or None)
        return True

    def is_completed(self) -> bool:
        """Whether it is done, well or not."""
        return self._operation.done()

    def is_success(self) -> bool:
        """Whether it is done well."""
        return self._operation.done() and self._operation.exception() is None

    def exception(self) -> Any:
        """What it raised; None while it is under way."""
        return self._operation.exception() if self._operation.done() else None

    def result(self) -> Any:
        """The tensors that hold the result."""
        return self._results

    def synchronize(self) -> None:
        """As `wait`: on a CPU there is no stream to order work after."""
        self.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the tensors that hold the result."""
        done: torch.futures.Future[Any] = torch.futures.Future()

        def complete(operation: Future[Any]) -> None:
            error = operation.exception()
            if isinstance(error, Exception):
                done.set_exception(error)
            else:
                done.set_result(self._results)

        self._operation.add_done_callback(complete)
        # A future that fails in C++ too: only one whose callback raised does.
        return done.then(lambda future: future.value())
