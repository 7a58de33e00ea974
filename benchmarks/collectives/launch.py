"""Runs one launch to its end and turns whatever happened into a record."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dlscale.benchmarks.collectives.command import Files, Order, clean_environment, command_of
from dlscale.benchmarks.collectives.peers import Place
from dlscale.benchmarks.collectives.record import CellFailure, Launch, ReferenceTime, Samples
from dlscale.benchmarks.environment import redact
from dlscale.benchmarks.launchers import who_died
from dlscale.benchmarks.supervisor import end_group, now

GRACE_SECONDS = 15  # the programs end themselves before
TAIL_LINES = 20
MEMORY = Path("/dev/shm")  # noqa: S108 - mkstemp makes the names


def run(order: Order, place: Place, *, position: int, cpus: Sequence[int], cold_bytes: int) -> Launch:
    """A failure is in the record, not an exception; nothing that was started is left running."""
    with tempfile.TemporaryDirectory(prefix="dlscale-collectives-") as name:
        folder = Path(name)
        files = Files.within(folder, _flags_file())
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
    return Launch(
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
