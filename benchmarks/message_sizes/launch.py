"""One launch of a library: from what is to be measured to a command line, and from what happened to a record."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from dlscale.base.parsing import parse_json_object
from dlscale.base.redaction import redact
from dlscale.benchmarks.launch import launchers
from dlscale.benchmarks.launch.causes import who_died
from dlscale.benchmarks.launch.environment import changes_runs
from dlscale.benchmarks.launch.supervisor import end_group, now, start_launcher
from dlscale.benchmarks.message_sizes.cluster import Cluster
from dlscale.benchmarks.message_sizes.peers import OWN, Peer, PeerSetting, Place, peer_variables
from dlscale.benchmarks.rank.leftovers import sweep_files
from dlscale.benchmarks.rank.lifeline import hold_lifeline, is_held
from dlscale.benchmarks.records.message_sizes import (
    CellFailure,
    Choice,
    MessageSizeLaunch,
    Mode,
    Purpose,
    ReferenceTime,
    Samples,
)
from dlscale.benchmarks.systems.system import Flavour, flavour_of

DRIVER = Path(__file__).with_name("driver")
IMB: Final = "IMB-MPI1"
# The ring's other operations, each measured in launches of its own, and what people read for a setting's name.
RING_VARIANTS: Final = {"ring-shared": "memory of its own", "ring-unsynchronised": "no waiting"}
GRACE_SECONDS = 5  # the ranks end themselves before
TAIL_LINES = 20
FOLDER_PREFIX = "dlscale-collectives-"
MEMORY = Path("/dev/shm")  # noqa: S108 - mkstemp makes the names


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """One launch to make."""

    purpose: Purpose
    block: int
    peer: Peer
    setting: PeerSetting
    num_ranks: int
    sizes: Sequence[int]
    modes: Sequence[Mode]
    operations: Sequence[str]
    seconds: float = 1.0  # of timed calls, about
    limit_seconds: int = 600  # then it is ended
    program: Literal["dlscale", "IMB-MPI1"] = "dlscale"
    reference: Path | None = None  # the IMB-MPI1

    @property
    def name(self) -> str:
        """For people."""
        what = "" if self.program == "dlscale" else f", {self.program}"
        setting = RING_VARIANTS.get(self.operations[0], self.setting.name)
        return f"{self.peer.title}, {setting}{what}, {self.num_ranks} ranks"


def command_of(
    order: LaunchOrder,
    place: Place,
    folder: Path,
    flags: Path,
    *,
    cpus: Sequence[int],
    cold_bytes: int,
    cluster: Cluster | None = None,
) -> list[str]:
    """The whole command line. The launch's own files lie in `folder`, the flags of its start line elsewhere."""
    begin = [str(DRIVER), "--cpus", _listed(cpus), "--lifeline", str(folder)]
    if cluster:
        begin += ["--num-ranks", str(order.num_ranks), "--ranks-per-node", str(cluster.ranks_per_node)]
    program = [str(cluster.installation.python if cluster else place.python), *begin]
    if order.program == IMB:
        program = [sys.executable, *begin, *_imb(order, folder)]
    else:
        program += [
            *("--backend", "mpi" if order.peer.kind == "mpi" else order.peer.name),
            *("--operations", _listed(order.operations), "--thread-level", order.setting.thread_level),
            *(
                "--sizes",
                _listed(order.sizes),
                "--modes",
                _listed(order.modes),
                "--cold-bytes",
                str(cold_bytes),
            ),
            *("--seconds", f"{order.seconds:.2f}", "--limit", str(order.limit_seconds)),
            *(
                "--output",
                str(folder / "samples.jsonl"),
                "--flags",
                str(flags),
                "--store",
                str(folder / "store"),
            ),
        ]
    if cluster:
        return cluster.command(
            program,
            num_ranks=order.num_ranks,
            variables={"OMP_NUM_THREADS": "1", **order.setting.variables},
            num_cpus=len(cpus),
        )
    return launchers.mpiexec(
        flavour(order.peer, place),
        place.mpiexec,
        num_ranks=order.num_ranks,
        oversubscribed=order.num_ranks > len(cpus),
        variables=variables_of(order, place),
        program=program,
    )


def flavour(peer: Peer, place: Place) -> Flavour:
    """Which MPI's options a peer's mpiexec takes. Intel's takes those of MPICH."""
    if peer.name in OWN and place.mpiexec.exists():
        done = subprocess.run(
            [place.mpiexec, "--version"], capture_output=True, text=True, check=False, timeout=60
        )
        return flavour_of(done.stdout + done.stderr) or "mpich"
    return "openmpi" if peer.name == "openmpi" else "mpich"


def variables_of(order: LaunchOrder, place: Place) -> dict[str, str]:
    """Environment variables of the ranks."""
    library_path = {"LD_LIBRARY_PATH": str(place.folder / "lib")} if order.program == IMB else {}
    return {
        "OMP_NUM_THREADS": "1",
        **library_path,
        **peer_variables(order.peer, place),
        **order.setting.variables,
    }


def clean_environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A user's variables without those that would change what is measured."""
    return {name: value for name, value in variables.items() if not changes_runs(name)}


def _imb(order: LaunchOrder, folder: Path) -> list[str]:
    """IMB takes a barrier before each call, and makes as many calls as fit into its time."""
    lengths = folder / "lengths"
    lengths.write_text("".join(f"{size}\n" for size in order.sizes), encoding="ascii")
    return [
        *("--exec", str(order.reference), "-thread_level", order.setting.thread_level, "Allreduce"),
        *("-npmin", str(order.num_ranks), "-sync", "on", "-time", f"{order.seconds / len(order.sizes):.2f}"),
        # It cuts lengths off at 4 MiB unless told that there are longer ones.
        *("-msglog", f"0:{max(order.sizes).bit_length()}", "-msglen", str(lengths)),
    ]


def _listed(values: Sequence[int] | Sequence[str]) -> str:
    return ",".join(str(value) for value in values)


def run_launch(
    order: LaunchOrder,
    place: Place,
    *,
    position: int,
    cpus: Sequence[int],
    cold_bytes: int,
    cluster: Cluster | None = None,
) -> MessageSizeLaunch:
    """A failure is in the record, not an exception; nothing that was started is left running."""
    sweep_abandoned()
    shared = cluster.folder if cluster else None
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, dir=shared) as name:
        folder, flags = Path(name), _flags_file()
        command = command_of(order, place, folder, flags, cpus=cpus, cold_bytes=cold_bytes, cluster=cluster)
        started, begin = now(), time.monotonic()
        try:
            with hold_lifeline(folder):
                failure, log = _watch(command, folder, order.limit_seconds)
        finally:
            sweep_files(folder)
            # The ranks do it too, once all have mapped it; those of several nodes have a file on each.
            for path in flags.parent.glob(f"{flags.name}*"):
                path.unlink(missing_ok=True)
        seconds = time.monotonic() - begin
        lines = list(_whole_lines(folder / "samples.jsonl"))
    references = _imb_times(log) if order.program == IMB else []
    if failure is None and not references and not _of_kind(lines, "end"):
        failure = "it ended without an error and without its results"
    header = next(iter(_of_kind(lines, "launch")), {})
    return MessageSizeLaunch(
        purpose=order.purpose,
        block=order.block,
        position=position,
        backend=order.peer.name,
        setting=order.setting.name,
        variables={key: redact(value) for key, value in order.setting.variables.items()},
        thread_level=order.setting.thread_level,
        num_ranks=order.num_ranks,
        num_nodes=order.num_ranks // cluster.ranks_per_node if cluster else 1,
        program=order.program,
        operations=list(order.operations),
        command=redact(shlex.join(command).replace(name, "<spool>").replace(str(flags), "<flags>")),
        started=started,
        seconds=seconds,
        library=header.get("library"),
        thread_level_provided=header.get("thread_level"),
        barrier=header.get("barrier"),
        round_trip_nanoseconds=[line["nanoseconds"] for line in _of_kind(lines, "round_trip")],
        samples=[Samples.model_validate(line) for line in _of_kind(lines, "block")],
        choices=[Choice.model_validate(line) for line in _of_kind(lines, "choice")],
        references=references,
        failures=[CellFailure.model_validate(line) for line in _of_kind(lines, "failure")],
        failure=failure,
        log_tail=redact("\n".join(log.splitlines()[-TAIL_LINES:])) if failure else "",
    )


def sweep_abandoned() -> None:
    """Remove what a killed dlscale left on this machine: folders of launches, and the shared memory of their ranks."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError):
            if (
                folder.stat().st_uid == os.geteuid()
                and any(folder.glob("lifeline-*"))
                and not is_held(folder)
            ):
                sweep_files(folder)
                shutil.rmtree(folder)


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
            process = start_launcher(command, log, environment=clean_environment())
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
    for pattern in (r"^collectives benchmark: .*", r"^\w*(?:Error|Exception): .*", r"^Abort\(.*"):
        if match := re.search(pattern, text, re.MULTILINE):
            return redact(match[0].strip())
    if death := who_died(text):
        return f"a rank died: {death.how}"
    return f"mpiexec ended with exit status {status}"


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


_IMB_LINE = re.compile(
    r"^[ \t]+([1-9]\d{0,17})[ \t]+([1-9]\d{0,17})[ \t]+[\d.]+[ \t]+(\d{1,15}(?:\.\d{1,15})?)[ \t]+[\d.]+[ \t]*$",
    re.MULTILINE,
)


def _imb_times(text: str) -> list[ReferenceTime]:
    """From IMB's table: bytes (the line of 0 is left out), repetitions, t_min, t_max, t_avg in microseconds."""
    return [
        ReferenceTime(message_bytes=int(num_bytes), num_calls=int(num_calls), seconds=1e-6 * float(slowest))
        for num_bytes, num_calls, slowest in _IMB_LINE.findall(text)
    ]
