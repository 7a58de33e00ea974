"""Runs one launch and turns whatever happens into records: the parent of mpiexec, and of other processes.

A dead rank 0 cannot write why it died, so the ranks never write records. The supervisor starts mpiexec in a separate
session, watches spools and ranks, ends them all when nothing moves any more, and reads spools, exit status and the
launcher's output at the end.
"""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import IO

import psutil

from dlscale.base.files import (
    APPENDED,
    make_folder,
    open_regular,
    read_end,
    read_regular,
    refuse_links,
    write_atomically,
)
from dlscale.base.strings import redact
from dlscale.benchmarks.launch import causes, signals
from dlscale.benchmarks.rank.process import end_with_parent
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.assemble import assemble
from dlscale.benchmarks.records.record import Failure, LaunchMetadata, Record
from dlscale.benchmarks.records.spool import SPEC_FILE, RankEnd, RankError, RankSpool, boot_id, read_spools
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.rules import STALL_SECONDS

GRACE_SECONDS = 3.0
POLL_SECONDS = 0.05  # often enough to notice, seldom enough not to disturb ranks that use every core
LOG_FILE = "output.log"
METADATA_FILE = "metadata.json"
LOG_TAIL_LINES = 30
UNNOTICED_SECONDS = 10.0  # after which a launch with ranks that have ended is ended
STATE_SECONDS = 1.0  # a stop that other ranks give up on takes longer
STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


@contextmanager
def running(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    output: IO[bytes],
    complaints: IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Such a process, in a session of its own; it is ended with all that it started when the block is left.

    The kernel ends it with this process, too. Signals are deferred meanwhile: `wait` looks at them. Without a file of
    their own complaints go to the output. Raises OSError if it cannot be started.
    """
    with signals.deferred():
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=complaints or subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        try:
            yield process
        finally:
            end(process)


def wait(process: subprocess.Popen[bytes], limit_seconds: float = math.inf) -> bool:
    """Whether the process ended within the limit. Raises KeyboardInterrupt once a signal has arrived."""
    last = time.monotonic() + limit_seconds
    if process.poll() is not None:
        return True
    descriptor = os.pidfd_open(process.pid)
    try:
        while process.poll() is None and (left := last - time.monotonic()) > 0:
            signals.check()
            select.select([descriptor], [], [], min(POLL_SECONDS, left))
    finally:
        os.close(descriptor)
    return process.returncode is not None


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process of `running` and all that it started on this machine: politely, then by SIGKILL.

    What is stopped is continued, so that it can end politely. A launcher's helpers are in groups of their own, and have
    another parent once it has gone: they are looked for before.
    """
    if process.poll() is None:
        members = []
        with suppress(psutil.NoSuchProcess):
            leader = psutil.Process(process.pid)
            members = [leader, *leader.children(recursive=True)]
        os.killpg(process.pid, signal.SIGTERM)
        os.killpg(process.pid, signal.SIGCONT)
        for number, grace in ((signal.SIGCONT, GRACE_SECONDS), (signal.SIGKILL, 0.0)):
            for member in members:
                with suppress(psutil.Error):
                    member.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=grace)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what it left there
    process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLaunch:
    """A launch, ready to be started, or what is left of one that was."""

    spec: LaunchSpec
    metadata: LaunchMetadata
    spool: Path
    command: Sequence[str] = ()
    environment: Mapping[str, str]  # of the launcher

    def spools(self) -> list[RankSpool]:
        """What its processes have written so far."""
        return read_spools(self.spool, self.spec.cases[0].cell.num_processes)


def supervise(prepared: PreparedLaunch, store: Store) -> list[Record]:
    """Run a launch to its end, write its records, and return them. A failure is a record, not an exception.

    KeyboardInterrupt ends the launch, keeps what it had finished, and is raised again.
    """
    make_folder(prepared.spool)
    write_atomically(prepared.spool / SPEC_FILE, prepared.spec.model_dump_json())
    write_atomically(prepared.spool / METADATA_FILE, prepared.metadata.model_dump_json())
    with signals.deferred():
        try:
            failure = _run(prepared)
        except BaseException:
            stopped = "dlscale was stopped while this case ran"
            collect(prepared, store, Failure(kind="interrupted", rank=None, message=stopped))
            raise
        return collect(prepared, store, failure)


def _run(prepared: PreparedLaunch) -> Failure | None:
    """Start the launch and see it to its end; None if it ended well or by a failed gate, which is in its spools."""
    log_file, ended = prepared.spool / LOG_FILE, False
    with ExitStack() as stack:
        log = stack.enter_context(os.fdopen(open_regular(log_file, APPENDED), "ab"))
        try:
            process = stack.enter_context(
                running(prepared.command, environment=prepared.environment, output=log)
            )
        except OSError as error:
            message = f"{redact(prepared.command[0])} cannot be started: {error.strerror}"
            return Failure(kind="unavailable", rank=None, message=message)
        ranks = LocalRanks(stack, stack.enter_context(select.epoll()))
        heartbeat, since, silence = 0.0, time.monotonic(), 0.0
        while not ended and silence <= STALL_SECONDS:
            # Ranks end together: a launcher that goes on for long has lost its way.
            ended = wait(process, POLL_SECONDS) or time.time() > ranks.last_end + UNNOTICED_SECONDS
            ranks.look(prepared)
            last = max((path.stat().st_mtime for path in prepared.spool.glob("rank-*.jsonl")), default=0.0)
            if last != heartbeat:  # file times may jump, the monotonic clock does not
                heartbeat, since = last, time.monotonic()
            silence = time.monotonic() - since
        spools = prepared.spools()
        if ended and not process.returncode and all(spool.first(RankEnd) for spool in spools):
            return None
        return causes.why_it_ended(
            read_end(log_file),
            spools,
            status=process.returncode or 0,
            silence=0.0 if ended else silence,
            ends=ranks.ends,
            stopped=ranks.stopped,
        )


@dataclass(slots=True)
class LocalRanks:
    """The processes of a launch's ranks on this machine: which have ended, in their order, and which are stopped.

    The kernel hands out ends in the order in which they came, however late it is asked (epoll).
    """

    stack: ExitStack  # which closes all that is opened here
    epoll: select.epoll
    ranks: dict[int, int] = field(default_factory=dict)  # by descriptor of the process
    pids: dict[int, int] = field(default_factory=dict)  # by rank, of all machines
    asked: float = 0.0  # when their states were, on the monotonic clock
    ends: dict[int, float] = field(default_factory=dict)  # when each was noticed, in seconds since the epoch
    last_end: float = math.inf
    stopped: list[int] = field(default_factory=list)  # before the first of them ended, or now

    def look(self, prepared: PreparedLaunch) -> None:
        """Note what has happened since the last look, to ranks that have written their process id."""
        known = len(self.pids) == prepared.spec.cases[0].cell.num_processes
        infos = {} if known else {spool.rank: spool.info for spool in prepared.spools()}
        for rank, info in infos.items():
            if info and rank not in self.pids:
                self.pids[rank] = info.pid
                with suppress(ProcessLookupError):
                    if info.boot_id == boot_id():  # on this machine
                        descriptor = os.pidfd_open(info.pid)
                        self.stack.callback(os.close, descriptor)
                        self.ranks[descriptor] = rank
                        self.epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
        for descriptor, _ in self.epoll.poll(0, max(1, len(self.ranks))):
            self.ends[self.ranks[descriptor]] = self.last_end = time.time()
        if not self.ends and time.monotonic() > self.asked + STATE_SECONDS:
            self.asked, self.stopped = time.monotonic(), []
            for rank in self.ranks.values():
                with suppress(psutil.Error):
                    if psutil.Process(self.pids[rank]).status() in STOPPED:
                        self.stopped.append(rank)


def collect(
    prepared: PreparedLaunch, store: Store, failure: Failure | None, *, recorded: Collection[str] = ()
) -> list[Record]:
    """Write the records of a launch that has ended, but for the `recorded` cases, and clear its spool.

    Where lines of a case are damaged, its record is a failure that names the first.
    """
    spools, spec, metadata = prepared.spools(), prepared.spec, prepared.metadata
    if failure:
        tracebacks = [error.traceback for spool in spools for error in spool.of(RankError)]
        text = tracebacks[0] if tracebacks else read_end(prepared.spool / LOG_FILE)
        tail = redact("\n".join(text.splitlines()[-LOG_TAIL_LINES:]))
        failure = failure.model_copy(update={"log_tail": tail})
    records = []
    for index, case in enumerate(spec.cases):
        if case.id in recorded:
            continue
        kept = spec.checkpoints and spec.checkpoints_of(case)
        saved = store.checkpoints_folder / case.id if kept else None
        attempt = partial(
            assemble,
            case,
            index,
            attempt=store.next_attempt(case),
            metadata=metadata,
        )
        damage = [text for spool in spools for place, text in spool.damage if place in (None, index)]
        try:
            if damage:
                raise ValueError(damage[0])
            record = attempt(spools, failure=failure)
            store.add(record)
        except (ValueError, ArithmeticError) as error:  # or numbers that no launch has
            before = failure or Failure(kind="error", rank=None, message="")
            message = "; ".join(filter(None, [before.message, f"its spool is damaged: {error}"]))
            bad = before.model_copy(update={"message": message})
            record = attempt([RankSpool(spool.rank) for spool in spools], failure=bad)
            store.add(record)
        records.append(record)
        # What failed a gate would fail it again; after any other end of a training the next attempt resumes.
        if saved and (record.failure is None or record.failure.kind == "gate"):
            rmtree(saved, ignore_errors=True)
    rmtree(prepared.spool)
    return records


def collect_leftovers(spool_folder: Path, store: Store, *, planned: Iterable[str]) -> None:
    """Make records of the launches of `planned` cases that a killed dlscale left behind there.

    Cases that such a launch had finished keep their results. A launch that does not say what it was has none: its cases
    are run again. Raises UsageError for a link in the place of a launch's folder, and for an invalid record.
    """
    folders = [spool_folder / name for name in sorted(planned)]
    refuse_links([spool_folder, *folders])
    for folder in filter(Path.is_dir, folders):
        try:
            spec = LaunchSpec.model_validate_json(read_regular(folder / SPEC_FILE))
            metadata = LaunchMetadata.model_validate_json(read_regular(folder / METADATA_FILE))
            if [case.id for case in spec.cases[:1]] != [folder.name]:
                raise ValueError("another launch's")
        except (OSError, ValueError):
            rmtree(folder)
            continue
        killed = Failure(kind="interrupted", rank=None, message="dlscale was killed while this case ran")
        left = PreparedLaunch(spec=spec, metadata=metadata, spool=folder, environment={})
        # dlscale may have been killed between two of the launch's records.
        own = [record for record in store.load() if record.started_at == metadata.started_at]
        collect(left, store, killed, recorded={record.case.id for record in own})
