"""Runs one launch and turns whatever happens into records: the parent of mpiexec.

A dead rank 0 cannot write why it died, so the ranks never write records. The supervisor starts mpiexec in a
process group of its own, watches the spools, ends the group when nothing moves any more, and at the end
reads spools, exit status and the launcher's output.
"""

from __future__ import annotations

import itertools
import os
import select
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree

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
from dlscale.benchmarks.launch import causes
from dlscale.benchmarks.launch.causes import EndWatch
from dlscale.benchmarks.launch.interrupts import caught
from dlscale.benchmarks.launch.processes import descendants, process_descriptor, running
from dlscale.benchmarks.rank.checkpoints import last_checkpoint_step
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.assemble import SavedTraining, assemble
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.records.record import Failure, LaunchMetadata, Record
from dlscale.benchmarks.records.spool import SPEC_FILE, RankError, RankSpool, read_spools
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.rules import STALL_SECONDS


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


LOG_FILE = "output.log"
METADATA_FILE = "metadata.json"
LOG_TAIL_LINES = 30
POLL_SECONDS = 0.05  # often enough to notice, seldom enough not to disturb ranks that use every core
LAUNCHER_SECONDS = 10.0  # after which it must have seen that its ranks have ended, or that one died


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLaunch:
    """A launch, ready to be started."""

    spec: LaunchSpec
    command: Sequence[str]
    spool: Path
    metadata: LaunchMetadata
    environment: Mapping[str, str]  # of the launcher


def supervise(prepared: PreparedLaunch, store: Store) -> list[Record]:
    """Run a launch to its end, write its records, and return them. A failure is a record, not an exception.

    KeyboardInterrupt ends the launch, keeps what it had finished, and is raised again.
    """
    make_folder(prepared.spool)
    # Not forced to the disk: a machine that goes down loses the launch, too.
    write_atomically(prepared.spool / SPEC_FILE, prepared.spec.model_dump_json(), durable=False)
    write_atomically(prepared.spool / METADATA_FILE, prepared.metadata.model_dump_json(), durable=False)
    interrupted: BaseException | None = None
    try:
        failure = _run(prepared)
    except BaseException as error:
        caught()
        interrupted = error
        failure = Failure(kind="interrupted", rank=None, message="dlscale was stopped while this case ran")
    records = collect(prepared.spool, store, prepared.metadata, prepared.spec, failure)
    if interrupted:
        raise interrupted
    return records


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


def refuse(prepared: PreparedLaunch, store: Store, reason: str) -> list[Record]:
    """The records of a launch that cannot be started here. One that says the same already is not written again."""
    spools = [RankSpool(rank) for rank in range(prepared.spec.cases[0].cell.num_processes)]
    failure = Failure(kind="unavailable", rank=None, message=redact(reason))
    records = []
    for index, case in enumerate(prepared.spec.cases):
        latest = store.latest(case)
        if latest is None or latest.failure != failure:
            attempt = store.next_attempt(case)
            latest = assemble(
                case,
                index,
                spools,
                attempt=attempt,
                metadata=prepared.metadata,
                failure=failure,
                saved=_saved_training(case, prepared.spec, store),
            )
            store.add(latest)
        records.append(latest)
    return records


def collect(
    spool_folder: Path,
    store: Store,
    metadata: LaunchMetadata,
    spec: LaunchSpec,
    failure: Failure | None,
) -> list[Record]:
    """Write the records of a launch that has ended, and clear its spool.

    A case that this launch has a record of already is left out: dlscale was killed between two of its records. Where
    the lines of a case are damaged, its record is a failure that names them, and the spool is set aside.
    """
    spools = read_spools(spool_folder, spec.cases[0].cell.num_processes)
    damaged = [damage for spool in spools for damage in spool.damage]
    set_aside = bool(damaged)
    kept = _unused(store.damaged_folder / spool_folder.name)
    if failure:
        failure = failure.model_copy(update={"log_tail": _log_tail(spool_folder, spools)})

    def write(case: Case, index: int, spools: Sequence[RankSpool], failure: Failure | None) -> Record:
        attempt = store.next_attempt(case)
        record = assemble(
            case,
            index,
            spools,
            attempt=attempt,
            metadata=metadata,
            failure=failure,
            saved=_saved_training(case, spec, store),
        )
        store.add(record)
        return record

    def try_to_write(case: Case, index: int) -> Record:
        nonlocal set_aside
        problems = [damage.problem for damage in damaged if damage.may_be_of(index)]
        if not problems:
            try:
                return write(case, index, spools, failure)
            except (ValueError, ArithmeticError) as error:  # numbers that no launch has
                problems, set_aside = [str(error)], True
        return write(
            case, index, [RankSpool(spool.rank) for spool in spools], _damaged(problems, kept, failure)
        )

    records = []
    for index, case in enumerate(spec.cases):
        if _has_record(store, case, metadata):
            continue
        record = try_to_write(case, index)
        records.append(record)
        saved = spec.checkpoints_of(case)
        # What failed a gate would fail it again; after any other end of a training the next attempt resumes.
        if saved and (record.failure is None or record.failure.kind == "gate"):
            rmtree(saved, ignore_errors=True)
    if set_aside:
        _set_aside(spool_folder, kept)
    else:
        rmtree(spool_folder)
    return records


def _saved_training(case: Case, spec: LaunchSpec, store: Store) -> SavedTraining | None:
    """What the disk has of a training with a target, and of its launches so far; None where it is not saved."""
    folder = spec.checkpoints_of(case)
    if folder is None or case.cell.target is None:
        return None
    try:
        latest = store.latest(case)
    except UsageError:  # damaged, which the reports name
        latest = None
    return SavedTraining(step=last_checkpoint_step(folder), launches=latest.launches if latest else [])


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
            collect(folder, store, metadata, spec, failure)
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and not any(folder.glob("rank-*.jsonl")):
                rmtree(folder)  # killed before its ranks were started: nothing was measured
            else:
                _set_aside(folder, _unused(store.damaged_folder / folder.name))
            continue
        num_collected += 1
    return num_collected


def _damaged(problems: Sequence[str], kept: Path, failure: Failure | None) -> Failure:
    """The failure of a case whose part of the spool is damaged; `failure` is why its launch ended early, if it did."""
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    message = f"the spool is damaged and kept as {kept.parent.name}/{kept.name}: {problems[0]}{more}"
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


def _has_record(store: Store, case: Case, metadata: LaunchMetadata) -> bool:
    """Whether the latest attempt at the case is of the launch with this metadata."""
    try:
        latest = store.latest(case)
    except UsageError:  # damaged, which the reports name; another attempt stands beside it
        return False
    return latest is not None and latest.started_at == metadata.started_at


def now() -> str:
    """The time as records write it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _watch(process: subprocess.Popen[bytes], prepared: PreparedLaunch) -> Failure | None:
    """Wait for the launch; None if it ended well or by a failed gate, which is in its spools."""
    limit: float | None = None  # of the present silence, once it is long
    watchdog, settled = Watchdog(), Watchdog()
    cell = prepared.spec.cases[0].cell
    with EndWatch(prepared.spool) as watch, process_descriptor(process.pid) as launcher:
        while process.poll() is None:
            select.select([launcher], [], [], POLL_SECONDS)  # as a sleep, but no longer than the launch
            ends = watch.look()
            if ends and settled.seconds(len(ends)) > LAUNCHER_SECONDS:
                settled = Watchdog()
                if causes.is_over(ends, read_spools(prepared.spool, cell.num_processes)):
                    break  # and the launcher, which is stopped or has lost its way, is ended by our caller
            silence = watchdog.seconds(last_heartbeat(prepared.spool))
            if silence < causes.SHORTEST_STALL:
                limit = None
            elif limit is None:  # once in a silence
                limit = min(STALL_SECONDS, causes.learnt_stall(read_spools(prepared.spool, cell.num_ranks)))
            if silence > (STALL_SECONDS if limit is None else limit):
                return causes.failure_of_a_stall(
                    read_spools(prepared.spool, cell.num_processes),
                    round(silence),
                    launcher=[process.pid, *(child.pid for child in descendants(process.pid))],
                    output=read_end(prepared.spool / LOG_FILE),
                )
        ends = watch.look()
    output = read_end(prepared.spool / LOG_FILE)
    spools = read_spools(prepared.spool, cell.num_processes)
    return causes.failure_of_an_end(
        process.returncode or 0, output, ends, spools, num_ranks=cell.num_ranks, stopped=watch.stopped
    )


def _log_tail(folder: Path, spools: Sequence[RankSpool]) -> str:
    """The end of what the launch printed, or of the first traceback where a rank left one."""
    tracebacks = [error.traceback for spool in spools for error in spool.of(RankError)]
    text = tracebacks[0] if tracebacks else read_end(folder / LOG_FILE)
    return redact("\n".join(text.splitlines()[-LOG_TAIL_LINES:]))
