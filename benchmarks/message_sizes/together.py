"""Launches that run at the same time and take turns: what happened becomes a record of each.

On a virtual machine that moves its CPUs every few seconds, launches that follow each other are measured on different
machines. So all of a group are started one by one, and then each has its turn again and again, for a fraction of a
second, the order reversed after every pass, while the ranks of all others sleep (`driver/lockstep.py`). A launch
that is alone has no turns.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dlscale.base.files import APPENDED, open_regular, read_end
from dlscale.base.parsing import parse_json_object
from dlscale.base.redaction import redact
from dlscale.base.variables import passed_on
from dlscale.benchmarks.launch.causes import last_words, who_died
from dlscale.benchmarks.launch.interrupts import undisturbed
from dlscale.benchmarks.launch.processes import end_group, process_descriptor, running
from dlscale.benchmarks.launch.supervisor import now
from dlscale.benchmarks.message_sizes.cluster import Cluster
from dlscale.benchmarks.message_sizes.launch import IMB, LaunchOrder, command_of, imb_times
from dlscale.benchmarks.message_sizes.peers import Place
from dlscale.benchmarks.records.message_sizes import CellFailure, Choice, MessageSizeLaunch, Samples

GRACE_SECONDS = 5  # the ranks end themselves before
TAIL_LINES = 20
FOLDER_PREFIX = "dlscale-collectives-"
MEMORY = Path("/dev/shm")  # noqa: S108 - mkstemp makes the names


def run_together(
    orders: Sequence[LaunchOrder],
    place_of: Callable[[str], Place],
    *,
    position: int,
    cpus: Sequence[int],
    cluster: Cluster | None = None,
    starting: Callable[[LaunchOrder], None] = lambda _: None,
) -> list[MessageSizeLaunch]:
    """Their records, the first of which is the run's `position`-th launch. `starting` is called before each start.

    A failure is in its launch's record, not an exception; nothing that was started is left running.
    """
    stack = ExitStack()
    try:
        launches = [
            _Launch(
                order, place_of(order.peer.name), stack, num_together=len(orders), cpus=cpus, cluster=cluster
            )
            for order in orders
        ]
        for launch in launches:
            starting(launch.order)
            launch.start()
        in_turn = list(launches)
        while any(launch.is_waiting for launch in in_turn):
            for launch in in_turn:
                launch.take_turn()
            in_turn.reverse()  # nobody always follows the same one
        return [
            launch.record(position=position + index, together=position if len(orders) > 1 else None)
            for index, launch in enumerate(launches)
        ]
    finally:
        with undisturbed():
            stack.close()


class _Launch:
    """One launch of a group. What it needs and starts is cleared away as the group's stack is closed."""

    def __init__(
        self,
        order: LaunchOrder,
        place: Place,
        stack: ExitStack,
        *,
        num_together: int,
        cpus: Sequence[int],
        cluster: Cluster | None,
    ) -> None:
        self.order = order
        self.is_waiting = False  # for its turn
        self._stack, self._cluster = stack, cluster
        shared = cluster.folder if cluster else None
        self._folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, dir=shared))
        )
        self._flags = _flags_file()
        stack.callback(self._remove_memory)
        self._command = command_of(
            order, place, self._folder, self._flags, cpus=cpus, num_together=num_together, cluster=cluster
        )
        self._turn = self._waiting = -1
        if num_together > 1:
            self._turn = self._fifo("turn", os.O_RDWR)
            self._waiting = self._fifo("waiting", os.O_RDONLY | os.O_NONBLOCK)
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: str | None = None
        self._started = ""
        self._seconds = 0.0  # of its own

    def start(self) -> None:
        """Start it, and wait until it has ended or waits for its turn."""
        self._started = now()
        with os.fdopen(open_regular(self._log, APPENDED), "ab") as log:
            try:
                self._process = self._stack.enter_context(
                    running(self._command, environment=self._environment(), output=log)
                )
            except OSError as error:
                self._failure = f"{redact(self._command[0])} cannot be started: {error.strerror}"
                return
        self._run()

    def _environment(self) -> dict[str, str]:
        """A library is measured with its settings alone; in a job its launcher hears of the scheduler."""
        return passed_on({"scheduler"} if self._cluster and self._cluster.system.has_jobs else ())

    def take_turn(self) -> None:
        """Its turn, if it waits for one: until it waits for the next, or has ended."""
        if self.is_waiting:
            os.write(self._turn, b"x" * self.order.num_ranks)
            self._run()

    def _run(self) -> None:
        """It has the machine until it waits, has ended, or has had more than its time."""
        process = self._process
        assert process is not None  # noqa: S101 - it was started
        begin = time.monotonic()
        end = begin + self.order.limit_seconds + GRACE_SECONDS - self._seconds
        self.is_waiting = self._waits(process, end)
        if not self.is_waiting:
            try:
                process.wait(timeout=max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._failure = f"not finished after {self.order.limit_seconds:.0f} s, and ended"
            end_group(process)
        self._seconds += time.monotonic() - begin

    def _waits(self, process: subprocess.Popen[bytes], end: float) -> bool:
        """Whether it waits for its turn, as soon as it does; False if it ends before, or its time does."""
        if self._waiting < 0:
            return False
        watch = select.poll()
        watch.register(self._waiting, select.POLLIN)
        with process_descriptor(process.pid) as launcher:
            watch.register(launcher, select.POLLIN)
            events = dict(watch.poll(max(0.0, 1000 * (end - time.monotonic()))))
        return bool(events.get(self._waiting, 0) & select.POLLIN) and bool(os.read(self._waiting, 1))

    @property
    def _log(self) -> Path:
        return self._folder / "output.log"

    def _fifo(self, name: str, flags: int) -> int:
        path = self._folder / name
        os.mkfifo(path, 0o600)
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        self._stack.callback(os.close, descriptor)
        return descriptor

    def _remove_memory(self) -> None:
        # The ranks do it too, once all have mapped it; those of several nodes have a file on each.
        for path in self._flags.parent.glob(f"{self._flags.name}*"):
            path.unlink(missing_ok=True)

    def record(self, *, position: int, together: int | None) -> MessageSizeLaunch:
        order = self.order
        log = read_end(self._log)
        failure = self._failure
        if failure is None and self._process and self._process.returncode != 0:
            failure = _why(log, self._process.returncode)
        lines = list(_whole_lines(self._folder / "samples.jsonl"))
        references = imb_times(log) if order.program == IMB else []
        if failure is None and not references and not _of_kind(lines, "end"):
            failure = "it ended without an error and without its results"
        header = next(iter(_of_kind(lines, "launch")), {})
        command = shlex.join(self._command).replace(str(self._folder), "<spool>")
        return MessageSizeLaunch(
            purpose=order.purpose,
            block=order.block,
            position=position,
            together=together,
            backend=order.peer.name,
            setting=order.setting.name,
            variables={key: redact(value) for key, value in order.setting.variables.items()},
            thread_level=order.setting.thread_level,
            num_ranks=order.num_ranks,
            num_nodes=order.num_ranks // self._cluster.ranks_per_node if self._cluster else 1,
            program=order.program,
            operations=list(order.operations),
            command=redact(command.replace(str(self._flags), "<flags>")),
            started=self._started,
            seconds=self._seconds,
            library=header.get("library"),
            thread_level_provided=header.get("thread_level"),
            barrier=header.get("barrier"),
            samples=[Samples.model_validate(line) for line in _of_kind(lines, "block")],
            choices=[Choice.model_validate(line) for line in _of_kind(lines, "choice")],
            references=references,
            failures=[CellFailure.model_validate(line) for line in _of_kind(lines, "failure")],
            failure=failure,
            log_tail=redact("\n".join(log.splitlines()[-TAIL_LINES:])) if failure else "",
        )


def _flags_file() -> Path:
    """Empty and private, in memory where that is possible: a page on its way to a disk is slow to write to."""
    folder = MEMORY if os.access(MEMORY, os.W_OK) else None
    descriptor, name = tempfile.mkstemp(prefix="dlscale-flags-", dir=folder)
    os.close(descriptor)
    return Path(name)


def _why(text: str, status: int) -> str:
    """The first line in which a program says what is wrong, or how it died."""
    for pattern in (r"^collectives benchmark: .*", r"^\w*(?:Error|Exception): .*", r"^Abort\(.*"):
        if match := re.search(pattern, text, re.MULTILINE):
            return redact(match[0].strip())
    if death := who_died(text):
        return f"a rank died: {death.how}"
    return "; ".join(filter(None, [f"mpiexec ended with exit status {status}", last_words(text, ())]))


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ():
        try:
            yield parse_json_object(line)
        except ValueError:
            return  # written when its process was killed: nothing whole comes after it


def _of_kind(lines: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in line.items() if key != "kind"} for line in lines if line["kind"] == kind
    ]
