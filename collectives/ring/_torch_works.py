"""What torch.distributed's operations over the ring return: work to wait for."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from dlscale.collectives.ring._engine import Message


class Unwaited(set[dist.Work]):
    """Work that somebody may still wait for.

    C++ keeps its own half of work alone: torch 2.4, from C++, would then wait for ever.
    """


class RingWork(dist.Work):
    """An operation of the ring; `wait` raises its error. It is `unwaited` until somebody has it, or its future."""

    def __init__(self, operation: Future[Any], results: Any, unwaited: Unwaited) -> None:
        super().__init__()
        self._operation, self._results, self._unwaited = operation, results, unwaited
        unwaited.add(self)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return True when the operation is done; raises TimeoutError after `timeout`, where 0 means never."""
        try:
            self._operation.result(timeout.total_seconds() or None)
        finally:
            self._unwaited.discard(self)
        return True

    def is_completed(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self._operation.done()

    def is_success(self) -> bool:
        """Whether it has ended successfully."""
        return self._operation.done() and self._operation.exception() is None

    def exception(self) -> Any:
        """Its error; None while it is under way."""
        return self._operation.exception() if self._operation.done() else None

    def result(self) -> Any:
        return self._results

    def synchronize(self) -> None:
        """Like `wait`: on a CPU there is no stream to order work after."""
        self.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the tensors that hold the result."""
        self._unwaited.discard(self)
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


class MessageWork(dist.Work):
    """A message that is sent or received; `wait` raises its error. It goes on whether anybody waits or not."""

    def __init__(self, message: Message, tensors: Any, unwaited: Unwaited) -> None:
        super().__init__()
        self._message, self._tensors, self._unwaited = message, tensors, unwaited
        unwaited.add(self)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return True when the message is done; raises TimeoutError after `timeout`, where 0 means the ring's own."""
        try:
            if not self._message.wait(timeout.total_seconds()):
                raise TimeoutError(f"the message is not done after {timeout.total_seconds():g} s")
        finally:
            self._unwaited.discard(self)
        return True

    def is_completed(self) -> bool:
        """Whether it has ended, successfully or not."""
        return not self._message.under_way

    def is_success(self) -> bool:
        """Whether it has ended successfully."""
        return self._message.done

    def exception(self) -> Any:
        """Its error; None while it is under way."""
        if self._message.under_way:
            return None
        try:
            self._message.wait()
        except RuntimeError as error:
            return error
        return None

    def result(self) -> Any:
        return self._tensors

    def synchronize(self) -> None:
        self.wait()

    def _source_rank(self) -> int:
        return self._message.source

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the tensors; a thread waits for the message."""
        done: Future[Any] = Future()

        def wait() -> None:
            try:
                done.set_result(self.wait())
            except RuntimeError as error:
                done.set_exception(error)

        threading.Thread(target=wait, name="dlscale-message", daemon=True).start()
        return RingWork(done, self._tensors, self._unwaited).get_future()
