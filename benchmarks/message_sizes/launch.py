"""One launch: from what is to be measured to the exact command line, and from whatever happened to a record."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from dlscale.base.redaction import redact
from dlscale.benchmarks.launch import launchers
from dlscale.benchmarks.launch.causes import who_died
from dlscale.benchmarks.launch.environment import RECORDED_PREFIXES
from dlscale.benchmarks.launch.supervisor import end_group, now
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting, Place, peer_variables
from dlscale.benchmarks.records.message_sizes import (
    CellFailure,
    MessageSizeLaunch,
    Mode,
    Purpose,
    ReferenceTime,
    Samples,
)

DRIVER = Path(__file__).with_name("torch_driver.py")
ROUNDS = 4
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """One launch."""

    purpose: Purpose
    block: int
    peer: Peer
    setting: PeerSetting
    num_ranks: int
    sizes: Sequence[int]
    modes: Sequence[Mode]
    operations: Sequence[str]
    seconds: float  # of timed calls, about
    program: Literal["dlscale", "IMB-MPI1"] = "dlscale"
    num_calls: int = 400  # at most, of an operation, size and mode
    volume_bytes: int = 0  # if given: as many calls as move so much, and MPI's own barrier before each
    reference: Path | None = None  # the program, if it is not ours

    @property
    def name(self) -> str:
        """For people."""
        ranks = f"{self.num_ranks} rank{'s' * (self.num_ranks > 1)}"
        what = "" if self.program == "dlscale" else f", {self.program}"
        return f"{self.peer.title}, {self.setting.name}{what}, {ranks}"

    @property
    def limit_seconds(self) -> int:
        """After so long it hangs."""
        return int(60 + 12 * self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFiles:
    """A launch's own files, in a private folder."""

    output: Path
    flags: Path
    store: Path
    lengths: Path

    @classmethod
    def within(cls, folder: Path, flags: Path) -> LaunchFiles:
        """Their places; the flags of the start line lie elsewhere."""
        return cls(
            output=folder / "samples.jsonl",
            flags=flags,
            store=folder / "store",
            lengths=folder / "lengths",
        )


def command_of(
    order: LaunchOrder, place: Place, files: LaunchFiles, *, cpus: Sequence[int], cold_bytes: int
) -> list[str]:
    """The whole command line."""
    if order.program == "IMB-MPI1":
        program = _imb(order, files, cpus)
    elif order.peer.kind == "mpi":
        program = [str(place.program), *_measurement(order, files, cpus, cold_bytes), *_native(order)]
    else:
        program = [str(place.python), str(DRIVER), "--backend", order.peer.name, "--store", str(files.store)]
        program += _measurement(order, files, cpus, cold_bytes)
    return launchers.mpiexec(
        "openmpi" if order.peer.name == "openmpi" else "mpich",
        place.mpiexec,
        num_ranks=order.num_ranks,
        oversubscribed=order.num_ranks > len(cpus),
        variables=variables_of(order, place),
        program=program,
    )


def variables_of(order: LaunchOrder, place: Place) -> dict[str, str]:
    """What a launch sets."""
    own = {"LD_LIBRARY_PATH": str(place.folder / "lib")} if order.program == "IMB-MPI1" else {}
    one_thread = {"OMP_NUM_THREADS": "1"}
    return {**one_thread, **own, **peer_variables(order.peer, place), **order.setting.variables}


def clean_environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A user's variables without those that would change what is measured."""
    return {name: value for name, value in variables.items() if not name.startswith(RECORDED_PREFIXES)}


def _measurement(order: LaunchOrder, files: LaunchFiles, cpus: Sequence[int], cold_bytes: int) -> list[str]:
    """What both our programs understand."""
    return [
        *("--output", str(files.output), "--flags", str(files.flags)),
        *("--sizes", _listed(order.sizes), "--modes", _listed(order.modes), "--cpus", _listed(cpus)),
        *("--cold-bytes", str(cold_bytes), "--seconds", f"{order.seconds:.2f}", "--rounds", str(ROUNDS)),
        *("--max-calls", str(order.num_calls), "--limit", str(order.limit_seconds)),
    ]


def _native(order: LaunchOrder) -> list[str]:
    words = ["--operations", _listed(order.operations), "--thread-level", order.setting.thread_level]
    return words + (
        ["--volume", str(order.volume_bytes), "--barrier", "mpi", "--warmup-calls", "10"]
        if order.volume_bytes
        else []
    )


def _imb(order: LaunchOrder, files: LaunchFiles, cpus: Sequence[int]) -> list[str]:
    """As many calls as our program does (the policy that looks at the volume), each after a barrier, on one buffer."""
    return [
        *(
            sys.executable,
            "-m",
            "dlscale.benchmarks.message_sizes.bound",
            _listed(cpus),
            str(order.reference),
        ),
        *("-thread_level", order.setting.thread_level, "Allreduce", "-npmin", str(order.num_ranks)),
        *("-iter", f"{order.num_calls},{order.volume_bytes // MIB}", "-iter_policy", "dynamic"),
        *("-time", str(order.limit_seconds), "-sync", "on"),
        # It cuts lengths off at 4 MiB unless told that there are longer ones.
        *("-msglog", f"0:{max(order.sizes).bit_length()}", "-msglen", str(files.lengths)),
    ]


def _listed(values: Sequence[int] | Sequence[str]) -> str:
    return ",".join(str(value) for value in values)


GRACE_SECONDS = 15  # the programs end themselves before
TAIL_LINES = 20
MEMORY = Path("/dev/shm")  # noqa: S108 - mkstemp makes the names


def run_launch(
    order: LaunchOrder, place: Place, *, position: int, cpus: Sequence[int], cold_bytes: int
) -> MessageSizeLaunch:
    """A failure is in the record, not an exception; nothing that was started is left running."""
    with tempfile.TemporaryDirectory(prefix="dlscale-collectives-") as name:
        folder = Path(name)
        files = LaunchFiles.within(folder, _flags_file())
        files.lengths.write_text("".join(f"{size}\n" for size in order.sizes), encoding="ascii")
        command = command_of(order, place, files, cpus=cpus, cold_bytes=cold_bytes)
        started, begin = now(), time.monotonic()
        try:
            failure, log = _watch(command, folder, order.limit_seconds)
        finally:
            files.flags.unlink(missing_ok=True)  # the ranks do it too, once all have mapped it
        seconds = time.monotonic() - begin
        lines, complete = _read(files.output)
    references = _imb_times(log) if order.program == "IMB-MPI1" else []
    if failure is None and not (complete or references):
        failure = "it ended without an error and without its results"
    header = next((line for line in lines if line["kind"] == "launch"), {})
    return MessageSizeLaunch(
        purpose=order.purpose,
        block=order.block,
        position=position,
        backend=order.peer.name,
        setting=order.setting.name,
        variables={key: redact(value) for key, value in order.setting.variables.items()},
        thread_level=order.setting.thread_level,
        num_ranks=order.num_ranks,
        program=order.program,
        command=redact(shlex.join(command).replace(name, "<spool>").replace(str(files.flags), "<flags>")),
        started=started,
        seconds=seconds,
        library=header.get("library"),
        thread_level_provided=header.get("thread_level"),
        barrier=header.get("barrier"),
        round_trip_nanoseconds=[line["nanoseconds"] for line in lines if line["kind"] == "round_trip"],
        samples=[Samples.model_validate(_fields(line)) for line in lines if line["kind"] == "block"],
        references=references,
        failures=[CellFailure.model_validate(_fields(line)) for line in lines if line["kind"] == "failure"],
        failure=failure,
        log_tail=redact("\n".join(log.splitlines()[-TAIL_LINES:])) if failure else "",
    )


def _flags_file() -> Path:
    """Empty and private, in memory where that is possible: a page on its way to a disk is slow to write to."""
    folder = MEMORY if os.access(MEMORY, os.W_OK) else None
    descriptor, name = tempfile.mkstemp(prefix="dlscale-flags-", dir=folder)
    os.close(descriptor)
    return Path(name)


def _watch(command: Sequence[str], folder: Path, limit: float) -> tuple[str | None, str]:
    """Why it failed, if it did, and what it printed."""
    path = folder / "output.log"
    failure: str | None = None
    with path.open("wb") as log:
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=clean_environment(),
                start_new_session=True,
            )
        except OSError as error:
            return f"{redact(command[0])} cannot be started: {error.strerror}", ""
        try:
            process.wait(timeout=limit + GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            failure = f"not finished after {limit:.0f} s, and ended"
        finally:
            end_group(process)
    text = path.read_text(encoding="utf-8", errors="replace")
    if failure is None and process.returncode != 0:
        failure = _why(text, process.returncode)
    return failure, text


def _why(text: str, status: int) -> str:
    """The first line in which a program says what is wrong, or how it died."""
    for pattern in (r"^allreduce benchmark: .*", r"^\w*(?:Error|Exception): .*", r"^Abort\(.*"):
        if found := re.search(pattern, text, re.MULTILINE):
            return redact(found[0].strip())
    if death := who_died(text):
        return f"a rank died: {death.how}"
    return f"mpiexec ended with exit status {status}"


def _read(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The lines of a spool that are whole, and whether it was finished."""
    if not path.exists():
        return [], False
    lines = list(_whole_lines(path.read_text(encoding="utf-8", errors="replace")))
    return lines, any(line["kind"] == "end" for line in lines)


def _whole_lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return  # written when its process was killed: nothing whole comes after it


def _fields(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "kind"}


_IMB_LINE = re.compile(r"^\s+(\d+)\s+(\d+)\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", re.MULTILINE)


def _imb_times(text: str) -> list[ReferenceTime]:
    """From IMB's table: bytes, repetitions, t_min, t_max, t_avg in microseconds."""
    found = []
    for num_bytes, num_calls, slowest in _IMB_LINE.findall(text):
        try:
            found.append(
                ReferenceTime(
                    message_bytes=int(num_bytes), num_calls=int(num_calls), seconds=1e-6 * float(slowest)
                )
            )
        except ValidationError:
            continue  # the line of 0 bytes
    return found
