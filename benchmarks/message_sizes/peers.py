"""The peers, as peers.toml describes them, where their environments lie, and the C++ benchmark compiled for each.

The benchmark is compiled with a peer's own mpicxx. That needs no network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import Field

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.base.redaction import redact

RING = "ring"
ThreadLevel = Literal["single", "multiple"]


class PeerSetting(Frozen):
    """Variables that a peer is started with. Default ones are always measured, others if a sweep picks them."""

    name: str
    variables: dict[str, str] = {}
    thread_level: ThreadLevel = "single"
    default: bool = False


class Peer(Frozen):
    """A library with an allreduce. `mpi` is called by our C++ program, `torch` from Python."""

    name: str
    title: str
    kind: Literal["mpi", "torch"]
    packages: list[str]
    build: Literal["horovod"] | None = None  # made from source after the packages are there
    variables: dict[str, str] = {}  # at every setting; {prefix} is the environment's folder
    reference: str | None = None  # the benchmark of others that it can be checked with
    settings: list[PeerSetting] = Field(min_length=1)


class _File(Frozen):
    peers: list[Peer]


def load_peers() -> list[Peer]:
    """All of peers.toml, in its order."""
    text = resources.files("dlscale.benchmarks.message_sizes").joinpath("peers.toml").read_text("utf-8")
    return _File.model_validate(tomllib.loads(text)).peers


def choose_peers(names: Sequence[str]) -> list[Peer]:
    """The peers of those names; the ring and `all` are understood. Raises UsageError for an unknown one."""
    peers = load_peers()
    known = [RING, *(peer.name for peer in peers)]
    for name in names:
        if name != "all" and name not in known:
            raise UsageError(f"no backend {name!r} in this benchmark; choose one of: {', '.join(known)}")
    if "all" in names:
        return peers
    return [peer for peer in peers if peer.name in names]


@dataclass(frozen=True, slots=True)
class Place:
    """A peer's environment: a virtual environment of its own, with a note of what was put there."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def mpiexec(self) -> Path:
        """Its launcher."""
        return self.folder / "bin" / "mpiexec"

    @property
    def program(self) -> Path:
        """Our benchmark, compiled with its MPI."""
        return self.folder / "build" / "dlscale-allreduce"

    @property
    def note(self) -> Path:
        """What setting it up ended with (`setup.Note`)."""
        return self.folder.with_name(f"{self.folder.name}.json")


def checkout() -> Path:
    """The folder with the sources that the programs are compiled from. Raises UsageError in a bare installation."""
    top = Path(str(resources.files("dlscale.benchmarks"))).resolve().parent
    if not (top / "collectives" / "ring" / "bench" / "CMakeLists.txt").is_file():
        raise UsageError(
            f"dlscale collectives compiles programs from the sources, which are not in {top}; "
            "run it from a checkout: make collectives"
        )
    return top


def place_of(peer: str, folder: Path) -> Place:
    """Where the peer's environment lies or will lie."""
    return Place(folder.absolute() / peer)


COMPILE_SECONDS = 1800
LINES_KEPT = 6


def compile_program(peer: Peer, place: Place) -> None:
    """`place.program` is up to date with the sources. Raises UsageError with the compiler's words."""
    cmake = shutil.which("cmake", path=f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    if cmake is None:
        raise UsageError("no cmake in this environment or on PATH; install one: pip install cmake")
    mpicxx = place.folder / "bin" / "mpicxx"
    build = place.program.parent
    variables = {**os.environ, **peer_variables(peer, place)}
    bench = checkout() / "collectives" / "ring" / "bench"
    configure = [cmake, "-S", str(bench), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"]
    for command in (
        [*configure, f"-DCMAKE_CXX_COMPILER={mpicxx}"],
        [cmake, "--build", str(build), "--parallel", "2"],
    ):
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=variables, timeout=COMPILE_SECONDS
        )
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise UsageError(
                f"the benchmark does not compile with {redact(str(mpicxx))}: "
                f"{redact(' / '.join(said[-LINES_KEPT:]))}"
            )


def peer_variables(peer: Peer, place: Place) -> dict[str, str]:
    """The variables that a peer needs wherever it lies."""
    return {name: value.format(prefix=place.folder) for name, value in peer.variables.items()}
