"""From what is to be measured to the exact command line and its variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dlscale.benchmarks import launchers
from dlscale.benchmarks.collectives.peers import Peer, PeerSetting, Place
from dlscale.benchmarks.collectives.program import peer_variables
from dlscale.benchmarks.collectives.record import Mode, Purpose
from dlscale.benchmarks.environment import RECORDED_PREFIXES

DRIVER = Path(__file__).with_name("torch_driver.py")
ROUNDS = 4
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
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
class Files:
    """A launch's own files, in a private folder."""

    output: Path
    flags: Path
    store: Path
    lengths: Path

    @classmethod
    def within(cls, folder: Path, flags: Path) -> Files:
        """Their places; the flags of the start line lie elsewhere."""
        return cls(
            output=folder / "samples.jsonl",
            flags=flags,
            store=folder / "store",
            lengths=folder / "lengths",
        )


def command_of(
    order: Order, place: Place, files: Files, *, cpus: Sequence[int], cold_bytes: int
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


def variables_of(order: Order, place: Place) -> dict[str, str]:
    """What a launch sets."""
    own = {"LD_LIBRARY_PATH": str(place.folder / "lib")} if order.program == "IMB-MPI1" else {}
    one_thread = {"OMP_NUM_THREADS": "1"}
    return {**one_thread, **own, **peer_variables(order.peer, place), **order.setting.variables}


def clean_environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A user's variables without those that would change what is measured."""
    return {name: value for name, value in variables.items() if not name.startswith(RECORDED_PREFIXES)}


def _measurement(order: Order, files: Files, cpus: Sequence[int], cold_bytes: int) -> list[str]:
    """What both our programs understand."""
    return [
        *("--output", str(files.output), "--flags", str(files.flags)),
        *("--sizes", _listed(order.sizes), "--modes", _listed(order.modes), "--cpus", _listed(cpus)),
        *("--cold-bytes", str(cold_bytes), "--seconds", f"{order.seconds:.2f}", "--rounds", str(ROUNDS)),
        *("--max-calls", str(order.num_calls), "--limit", str(order.limit_seconds)),
    ]


def _native(order: Order) -> list[str]:
    words = ["--operations", _listed(order.operations), "--thread-level", order.setting.thread_level]
    return words + (
        ["--volume", str(order.volume_bytes), "--barrier", "mpi", "--warmup-calls", "10"]
        if order.volume_bytes
        else []
    )


def _imb(order: Order, files: Files, cpus: Sequence[int]) -> list[str]:
    """As many calls as our program does (the policy that looks at the volume), each after a barrier, on one buffer."""
    return [
        *(sys.executable, "-m", "dlscale.benchmarks.collectives.bound", _listed(cpus), str(order.reference)),
        *("-thread_level", order.setting.thread_level, "Allreduce", "-npmin", str(order.num_ranks)),
        *("-iter", f"{order.num_calls},{order.volume_bytes // MIB}", "-iter_policy", "dynamic"),
        *("-time", str(order.limit_seconds), "-sync", "on"),
        # It cuts lengths off at 4 MiB unless told that there are longer ones.
        *("-msglog", f"0:{max(order.sizes).bit_length()}", "-msglen", str(files.lengths)),
    ]


def _listed(values: Sequence[int] | Sequence[str]) -> str:
    return ",".join(str(value) for value in values)
