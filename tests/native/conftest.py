"""Builds the programs of this folder with CMake, once per session and variant, under build/native."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TOP = HERE.parents[1]
BUILDS = TOP / "build/native"
RUN_LIMIT_SECONDS = 240

# With these a finding ends the program with another exit status than a failed check does.
FINDING = 66
SANITIZER_OPTIONS = {
    "TSAN_OPTIONS": f"halt_on_error=1:exitcode={FINDING}",
    "ASAN_OPTIONS": f"exitcode={FINDING}:detect_leaks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}


def tool(name):
    """A build tool of this environment, or else one on PATH."""
    beside = Path(sys.prefix) / "bin" / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"no {name}: it comes with dlscale's extra [dev]"
    return found


class Variant:
    """One way to compile the programs: plain (sanitizer "") or under a sanitizer, from `sources`."""

    def __init__(self, name, *, sanitizer="", sources=TOP / "collectives/ring/src"):
        self.folder = BUILDS / name
        self._define = [f"-DDLSCALE_SANITIZER={sanitizer}", f"-DDLSCALE_RING_SOURCES={sources}"]

    def build(self, *programs):
        """Compile what has changed; all programs if none is named."""
        with self._locked():
            configure = [tool("cmake"), "-S", str(HERE), "-B", str(self.folder), "-G", "Ninja", *self._define]
            self._do([*configure, f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"])
            targets = ["--target", *programs] if programs else []
            self._do([tool("cmake"), "--build", str(self.folder), *targets])

    def run(self, program, *arguments):
        """The finished program and all it said. A hang is a failure."""
        return subprocess.run(
            [str(self.folder / program), *map(str, arguments)],
            env=os.environ | SANITIZER_OPTIONS,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=RUN_LIMIT_SECONDS,
            check=False,
        )

    def check(self, program, *arguments):
        done = self.run(program, *arguments)
        if done.returncode != 0:
            pytest.fail(f"{program} ended with {done.returncode}\n{done.stdout[-6000:]}", pytrace=False)

    @contextlib.contextmanager
    def _locked(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @staticmethod
    def _do(command):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.fail(f"{' '.join(command)}\n{(done.stdout + done.stderr)[-4000:]}", pytrace=False)


@pytest.fixture(scope="session")
def variant():
    """variant("address", sanitizer="address"): a `Variant`, built once per session, or `programs` of it."""
    made = {}

    def get(name, *programs, **how):
        if name not in made:
            made[name] = Variant(name, **how)
            made[name].build(*programs)
        return made[name]

    return get
