"""Runs one launch and turns whatever happens into records: the parent of mpiexec.

A dead rank 0 cannot write why it died, so the ranks never write records. The supervisor starts mpiexec in a process
group of its own, watches the spools, ends the group when nothing moves any more, and at the end reads spools, exit
status and the launcher's output.
"""

from __future__ import annotations

import itertools
import math
import os
import select
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree

import psutil

from dlscale.base.errors import UsageError
from dlscale.base.files import (
    APPENDED,
    make_folder,
    open_regular,
    read_end,
    read_regular,
    refuse_links,
    write_atomically,
)
from dlscale.base.redaction import redact
from dlscale.benchmarks.launch import causes, signals
from dlscale.benchmarks.launch.causes import End
from dlscale.benchmarks.launch.processes import POLL_SECONDS, family, running, wait
from dlscale.benchmarks.rank.checkpoints import last_checkpoint_step
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.assemble import assemble
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.records.record import Failure, LaunchMetadata, Record
from dlscale.benchmarks.records.spool import (
    SPEC_FILE,
    RankError,
    RankInfo,
    RankSpool,
    parse_event,
    read_spools,
)
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.rules import STALL_SECONDS

LOG_FILE = "output.log"
METADATA_FILE = "metadata.json"
LOG_TAIL_LINES = 30
REVIEW_SECONDS = 10.0  # a launcher must have seen by then that its ranks have ended, or that one died
STATE_SECONDS = 1.0  # a stop that other ranks give up on takes longer
LONGEST_LINE = 1 << 16  # of a spool's first event


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLaunch:
    """A launch, ready to be started, or what is left of one that was."""

    spec: LaunchSpec
    metadata: LaunchMetadata
    spool: Path
    command: Sequence[str] = ()
    environment: Mapping[str, str]  # of the launcher

    @property
    def num_processes(self) -> int:
        return self.spec.cases[0].cell.num_processes

    def spools(self) -> list[RankSpool]:
        """What its processes have written so far."""
        return read_spools(self.spool, self.num_processes)


def supervise(prepared: PreparedLaunch, store: Store) -> list[Record]:
    """Run a launch to its end, write its records, and return them. A failure is a record, not an exception.

    KeyboardInterrupt ends the launch, keeps what it had finished, and is raised again.
    """
    make_folder(prepared.spool)
    # Not forced to the disk: a machine that goes down loses the launch, too.
    write_atomically(prepared.spool / SPEC_FILE, prepared.spec.model_dump_json())
    write_atomically(prepared.spool / METADATA_FILE, prepared.metadata.model_dump_json())
    with signals.deferred():
        try:
            failure = _run(prepared)
        except BaseException:
            failure = Failure(
                kind="interrupted", rank=None, message="dlscale was stopped while this case ran"
            )
            collect(prepared, store, failure)
            raise
        return collect(prepared, store, failure)


def _run(prepared: PreparedLaunch) -> Failure | None:
    """Start the launch and see it to its end, which it has when this returns."""
    with ExitStack() as stack:
        log = stack.enter_context(os.fdopen(open_regular(prepared.spool / LOG_FILE, APPENDED), "ab"))
        try:
            process = stack.enter_context(
                running(prepared.command, environment=prepared.environment, output=log)
            )
        except OSError as error:
            message = f"{redact(prepared.command[0])} cannot be started: {error.strerror}"
            return Failure(kind="unavailable", rank=None, message=message)
        return _watch(process, prepared)


def _watch(process: subprocess.Popen[bytes], prepared: PreparedLaunch) -> Failure | None:
    """Wait for the launch; None if it ended well or by a failed gate, which is in its spools."""
    heartbeat, settled = Watchdog(), Watchdog()
    reviewed = time.monotonic()
    with EndWatch(prepared.spool) as watch:
        while not wait(process, POLL_SECONDS):
            ends = watch.look()
            silence = heartbeat.seconds(last_heartbeat(prepared.spool))
            is_settled = bool(ends) and settled.seconds(len(ends)) > REVIEW_SECONDS
            is_odd = is_settled or silence > causes.SHORTEST_STALL
            if not is_odd or time.monotonic() < reviewed + REVIEW_SECONDS:
                continue
            reviewed, spools = time.monotonic(), prepared.spools()
            if is_settled and causes.is_over(ends, spools):
                break  # and the launcher, which is stopped or has lost its way, is ended by our caller
            if silence > min(STALL_SECONDS, causes.learnt_stall(spools)):
                return causes.failure_of_a_stall(
                    spools,
                    round(silence),
                    launcher=[member.pid for member in family(process.pid)],
                    output=read_end(prepared.spool / LOG_FILE),
                )
        return causes.failure_of_an_end(
            process.returncode or 0,
            read_end(prepared.spool / LOG_FILE),
            watch.look(),
            prepared.spools(),
            num_ranks=prepared.spec.cases[0].cell.num_ranks,
            stopped=watch.stopped,
        )


class Watchdog:
    """Time since a number last changed, on a clock that does not jump when somebody sets the time."""

    def __init__(self) -> None:
        self._number = 0.0
        self._since = time.monotonic()

    def seconds(self, number: float) -> float:
        """Seconds since `number` (as `last_heartbeat`) last changed between two calls."""
        if number != self._number:
            self._number, self._since = number, time.monotonic()
        return time.monotonic() - self._since


def last_heartbeat(folder: Path) -> float:
    """When any rank last wrote, seconds since the epoch; 0 if none has."""
    return max((path.stat().st_mtime for path in folder.glob("rank-*.jsonl")), default=0.0)


class EndWatch:
    """The ends of a launch's processes on this machine, in their order.

    The kernel hands them out in the order in which they came, however late it is asked (epoll). Ranks on other machines
    are not seen, nor those that end within one `look` of their first line.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is the launch's spool, which each of its processes has on its command line."""
        self._folder = folder
        self._epoll = select.epoll()
        self._ranks: dict[int, int] = {}  # by descriptor of the process
        self._pids: dict[int, int] = {}  # by rank, of those on this machine
        self._known: set[Path] = set()
        self._ends: list[End] = []
        self._asked = -math.inf  # when the ranks' states were, on the monotonic clock
        self.stopped: list[int] = []  # shortly before the first of them ended, or now

    def __enter__(self) -> EndWatch:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._ranks:
            os.close(descriptor)
        self._epoll.close()

    def look(self) -> list[End]:
        """Watch the ranks that have written their process id since the last look; all ends so far, in order."""
        for rank, pid in self._started():
            with suppress(ProcessLookupError, psutil.Error):
                descriptor = os.pidfd_open(pid)
                self._ranks[descriptor] = rank
                # Asked after the descriptor is there: the id can no longer go to another process. On another machine
                # one of ours may have the same.
                if str(self._folder) in psutil.Process(pid).cmdline():
                    self._pids[rank] = pid
                    self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
        if self._ranks:
            now = time.monotonic()
            if not self._ends and now > self._asked + STATE_SECONDS:
                self._asked = now
                states = {rank: causes.status_of(pid) for rank, pid in self._pids.items()}
                self.stopped = [rank for rank, state in states.items() if state in causes.STOPPED]
            ended = self._epoll.poll(0, len(self._ranks))
            self._ends += [End(self._ranks[descriptor], time.time()) for descriptor, _ in ended]
        return self._ends

    def _started(self) -> Iterator[tuple[int, int]]:
        for path in self._folder.glob("rank-*.jsonl"):
            if path in self._known:
                continue
            try:
                with os.fdopen(open_regular(path), "rb") as file:
                    line = file.readline(LONGEST_LINE)
            except OSError:
                continue
            if line.endswith(b"\n"):
                self._known.add(path)
                with suppress(ValueError):  # damaged, as whoever reads the whole spool will see
                    _, event = parse_event(line)
                    if isinstance(event, RankInfo):
                        yield int(path.stem.removeprefix("rank-")), event.pid


def refuse(prepared: PreparedLaunch, store: Store, reason: str) -> list[Record]:
    """The records of a launch that cannot be started here. One that says the same already is not written again."""
    spools = [RankSpool(rank) for rank in range(prepared.num_processes)]
    failure = Failure(kind="unavailable", rank=None, message=redact(reason))
    records = []
    for index, case in enumerate(prepared.spec.cases):
        record = store.latest(case)
        if record is None or record.failure != failure:
            record = _write(prepared, store, index, spools=spools, failure=failure)
        records.append(record)
    return records


def collect(prepared: PreparedLaunch, store: Store, failure: Failure | None) -> list[Record]:
    """Write the records of a launch that has ended, and clear its spool.

    A case that this launch has a record of already is left out: dlscale was killed between two of its records. Where
    the lines of a case are damaged, its record is a failure that names them, and the spool is set aside.
    """
    spools = prepared.spools()
    empty = [RankSpool(spool.rank) for spool in spools]
    damaged = [damage for spool in spools for damage in spool.damage]
    set_aside = bool(damaged)
    kept = _unused(store.damaged_folder / prepared.spool.name)
    if failure:
        failure = failure.model_copy(update={"log_tail": _log_tail(prepared.spool, spools)})
    records = []
    for index, case in enumerate(prepared.spec.cases):
        latest = _latest(store, case)
        if latest is not None and latest.started_at == prepared.metadata.started_at:
            continue
        problems = [problem for place, problem in damaged if place in (None, index)]
        try:
            if problems:
                raise ValueError(problems[0] + f", and {len(problems) - 1} more" * (len(problems) > 1))
            record = _write(prepared, store, index, spools=spools, failure=failure)
        except (ValueError, ArithmeticError) as error:  # or numbers that no launch has
            set_aside = True
            damage = _damage_failure(str(error), kept, failure)
            record = _write(prepared, store, index, spools=empty, failure=damage)
        records.append(record)
        saved = prepared.spec.checkpoints_of(case)
        # What failed a gate would fail it again; after any other end of a training the next attempt resumes.
        if saved and (record.failure is None or record.failure.kind == "gate"):
            rmtree(saved, ignore_errors=True)
    if set_aside:
        _set_aside(prepared.spool, kept)
    else:
        rmtree(prepared.spool)
    return records


def collect_leftovers(spool_folder: Path, store: Store, *, planned: Iterable[str]) -> int:
    """Make records of the launches of `planned` cases that a killed dlscale left behind there; returns their number.

    Cases that such a launch had finished keep their results. A launch of which nobody can say what it was is set
    aside without a record: its cases are run again. Raises UsageError for a link in the place of a launch's folder.
    """
    num_collected = 0
    folders = [spool_folder / name for name in sorted(planned)]
    refuse_links([spool_folder, *folders])
    for folder in filter(Path.is_dir, folders):
        try:
            spec = LaunchSpec.model_validate_json(read_regular(folder / SPEC_FILE))
            metadata = LaunchMetadata.model_validate_json(read_regular(folder / METADATA_FILE))
            if not spec.cases or spec.cases[0].id != folder.name:
                raise ValueError("the cases are not those of the folder's name")
            if spec.checkpoints:
                spec = spec.model_copy(update={"checkpoints": str(store.checkpoints_folder)})
            failure = Failure(kind="interrupted", rank=None, message="dlscale was killed while this case ran")
            left = PreparedLaunch(spec=spec, metadata=metadata, spool=folder, environment={})
            collect(left, store, failure)
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and not any(folder.glob("rank-*.jsonl")):
                rmtree(folder)  # killed before its ranks were started: nothing was measured
            else:
                _set_aside(folder, _unused(store.damaged_folder / folder.name))
            continue
        num_collected += 1
    return num_collected


def now() -> str:
    """The time as records write it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(
    prepared: PreparedLaunch,
    store: Store,
    index: int,
    *,
    spools: Sequence[RankSpool],
    failure: Failure | None,
) -> Record:
    """The record of the launch's case number `index`, written. Raises ValueError as `assemble` and `Store.add`."""
    case = prepared.spec.cases[index]
    folder = prepared.spec.checkpoints_of(case) if case.cell.target else None
    latest = _latest(store, case) if folder else None
    record = assemble(
        case,
        index,
        spools,
        attempt=store.next_attempt(case),
        metadata=prepared.metadata,
        failure=failure,
        saved_step=last_checkpoint_step(folder) if folder else None,
        earlier=latest.launches if latest else (),
    )
    store.add(record)
    return record


def _latest(store: Store, case: Case) -> Record | None:
    """The latest attempt at a case; None also where it is damaged, which the reports name."""
    with suppress(UsageError):
        return store.latest(case)
    return None


def _damage_failure(problem: str, kept: Path, failure: Failure | None) -> Failure:
    """The failure of a case whose part of the spool is damaged; `failure` is why its launch ended early, if it did."""
    message = f"the spool is damaged and kept as {kept.parent.name}/{kept.name}: {problem}"
    if failure is None:
        return Failure(kind="error", rank=None, message=message)
    return failure.model_copy(update={"message": f"{failure.message}; {message}"})


def _unused(path: Path) -> Path:
    """`path`, with a number behind it if there is something of that name."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(place for place in itertools.chain([path], numbered) if not os.path.lexists(place))


def _set_aside(folder: Path, kept: Path) -> None:
    make_folder(kept.parent)
    try:
        folder.rename(kept)
    except OSError as error:
        raise UsageError(f"{folder} is damaged and cannot be moved to {kept}: {error.strerror}") from None


def _log_tail(folder: Path, spools: Sequence[RankSpool]) -> str:
    """The end of what the launch printed, or of the first traceback where a rank left one."""
    tracebacks = [error.traceback for spool in spools for error in spool.of(RankError)]
    text = tracebacks[0] if tracebacks else read_end(folder / LOG_FILE)
    return redact("\n".join(text.splitlines()[-LOG_TAIL_LINES:]))
