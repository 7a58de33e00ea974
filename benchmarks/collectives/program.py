"""Compiling the C++ benchmark with a peer's own mpicxx. Needs no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from dlscale.benchmarks.collectives.peers import Peer, Place, checkout
from dlscale.benchmarks.environment import redact
from dlscale.models.errors import UsageError

SECONDS = 1800
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
            command, capture_output=True, text=True, check=False, env=variables, timeout=SECONDS
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
