"""From an environment to Horovod in it: a kept wheel or a new one, installed and loaded once."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.base.redaction import redact
from dlscale.benchmarks.horovod_build.progress import BuildProgress
from dlscale.benchmarks.horovod_build.target import (
    InstalledFacts,
    Target,
    build_variables,
    checkout,
    describe,
    num_compilers,
    write_compiler,
)

NOTE = "horovod.json"  # in the environment's folder; `dlscale.collectives.horovod` compares it when it starts
RUN_PACKAGES = ("cffi", "cloudpickle", "packaging", "psutil", "pyyaml")
BUILD_PACKAGES = ("cmake", "setuptools", "wheel")
NO_ROOM = "free space there, then run the same command again"
# The first call into the library, and whether it has the operations that were asked for.
_CHECK = "import horovod.{framework} as hvd; raise SystemExit(0 if hvd.mpi_built() and {more} else 3)"


class Watch(Protocol):
    """Hears how a build goes on."""

    def tell(self, text: str) -> None:
        """A step begins or has ended."""

    def at(self, progress: BuildProgress) -> None:
        """A line was read; called often."""


def build_horovod(target: Target, *, watch: Watch) -> InstalledFacts:
    """Horovod is installed in the environment, for all frameworks there. Raises UsageError naming the failed step."""
    facts = describe(target)
    folder = checkout() / "build"
    folder.mkdir(exist_ok=True)
    path = folder / f"horovod-{facts.key}.log"
    waiting = "waiting for another build of the same"
    with (
        open_wheels_folder(facts.key, waiting=lambda: watch.tell(waiting)) as cache,
        path.open("w", encoding="utf-8") as file,
    ):
        job = _Job(target, facts, watch, file, path)
        kept = find_wheel(cache)
        if kept:
            watch.tell(f"Horovod {facts.horovod} for {facts}: from {redact(str(kept.parent))}")
        else:
            watch.tell(
                f"Horovod {facts.horovod} for {facts}: compiling, minutes with {num_compilers()} compilers; "
                f"its output is in {redact(str(path))}"
            )
            kept = job.compile(cache)
        job.install(kept)
        job.check()
    note = {
        "horovod": facts.horovod,
        "built_against": facts.built_against,
        "mpi": facts.mpi,
        "key": facts.key,
    }
    write_atomically(target.prefix / NOTE, json.dumps(note, indent=2) + "\n", mode=0o644, remedy=NO_ROOM)
    return facts


class _Job:
    """One build, with its log."""

    def __init__(self, target: Target, facts: InstalledFacts, watch: Watch, log: IO[str], path: Path) -> None:
        self._target, self._facts, self._watch, self._log, self._path = target, facts, watch, log, path
        self._progress = BuildProgress()

    def compile(self, cache: Path) -> Path:
        """A new wheel, kept in `cache`."""
        for killed in cache.glob("new-*"):
            shutil.rmtree(killed, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=cache) as made:
            compiler = Path(made) / "c++"
            write_compiler(self._target, compiler)
            variables = build_variables(self._target, self._facts, compiler)
            self._pip(["install", *BUILD_PACKAGES, *RUN_PACKAGES], variables)
            # pip would keep the wheel too, by Horovod's version alone, and give it to environments that it does
            # not fit.
            words = ["wheel", "--verbose", "--no-cache-dir", "--no-binary=horovod", "--no-build-isolation"]
            self._pip([*words, "--no-deps", "--wheel-dir", made, "horovod"], variables)
            found = list(Path(made).glob("horovod-*.whl"))
            if len(found) != 1:
                raise self._failure("pip made no wheel")
            return keep_wheel(found[0], cache)

    def install(self, wheel: Path) -> None:
        """The wheel replaces any Horovod that is there."""
        self._progress.step = "install"
        (self._target.prefix / NOTE).unlink(missing_ok=True)
        self._pip(["install", *RUN_PACKAGES], self._target.environ())
        self._pip(
            ["install", "--no-deps", "--no-index", "--force-reinstall", str(wheel)], self._target.environ()
        )

    def check(self) -> None:
        """Each framework's library loads, and has what it was built for."""
        self._progress.step = "import check"
        operations = {value.lower() for value in self._facts.operations.values()} & {"ccl", "nccl"}
        more = " and ".join(f"hvd.{name}_built()" for name in sorted(operations)) or "True"
        for framework in self._facts.frameworks:
            self._watch.tell(f"loading horovod.{framework}")
            command = [str(self._target.python), "-c", _CHECK.format(framework=framework, more=more)]
            status, last = self._run(command, self._target.environ(TF_CPP_MIN_LOG_LEVEL="2"))
            if status == 3:
                raise self._failure(f"horovod.{framework} lacks {' or '.join(['mpi', *sorted(operations)])}")
            if status != 0:
                raise self._failure(f"horovod.{framework}: {last or f'ended with {status}'}")

    def _pip(self, words: Sequence[str], variables: Mapping[str, str]) -> None:
        command = [str(self._target.python), "-m", "pip", "--disable-pip-version-check", *words]
        pinned = {**variables, "PIP_CONSTRAINT": str(checkout() / "constraints.txt")}
        status, _ = self._run(command, pinned)
        if status != 0:
            raise self._failure(self._progress.reason)

    def _run(self, command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str]:
        """Exit status and last line; everything goes to the log."""
        last = ""
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=variables,
            start_new_session=True,
        ) as process:
            try:
                for line in process.stdout or ():
                    self._log.write(line)
                    self._log.flush()
                    self._progress.read(line)
                    self._watch.at(self._progress)
                    last = line.strip() or last
                    if self._progress.failed:
                        os.killpg(process.pid, signal.SIGTERM)
                        break
            except BaseException:  # make and its compilers would go on by themselves
                os.killpg(process.pid, signal.SIGTERM)
                raise
        return process.returncode, last

    def _failure(self, reason: str) -> UsageError:
        step = self._progress.failed_step
        return UsageError(
            f"Horovod for {redact(str(self._target.prefix))}: {step} failed: {redact(reason)}; the whole output is "
            f"in {redact(str(self._path))}"
        )


REMEDY = "free space, or name another folder: XDG_CACHE_HOME=..."


def wheels_folder(key: str) -> Path:
    """Where wheels of that key lie: ${XDG_CACHE_HOME:-~/.cache}/dlscale/wheels/<key>."""
    named = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    top = named if named.is_absolute() else Path.home() / ".cache"  # as the specification says
    return top / "dlscale" / "wheels" / key


@contextmanager
def open_wheels_folder(key: str, *, waiting: Callable[[], None]) -> Iterator[Path]:
    """The folder of that key, ours alone; `waiting` is called if another build holds it. Raises UsageError."""
    folder = wheels_folder(key)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(f"cannot keep wheels in {folder}: {error.strerror}; {REMEDY}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(descriptor)


def find_wheel(folder: Path) -> Path | None:
    """The wheel that is kept there, if it is whole."""
    for wheel in sorted(folder.glob("*.whl")):
        try:
            if _note(wheel).read_text(encoding="utf-8").split()[:1] == [_digest(wheel)]:
                return wheel
        except (OSError, UnicodeDecodeError):
            continue
    return None


def keep_wheel(wheel: Path, folder: Path) -> Path:
    """Moves a new wheel of the same file system there; it counts from when its note is written."""
    kept = folder / wheel.name
    try:
        wheel.replace(kept)
    except OSError as error:
        raise UsageError(f"cannot keep {kept}: {error.strerror}; {REMEDY}") from None
    write_atomically(_note(kept), f"{_digest(kept)}  {kept.name}\n", remedy=REMEDY)
    return kept


def _note(wheel: Path) -> Path:
    """Beside the wheel, as sha256sum writes and checks it."""
    return wheel.with_name(f"{wheel.name}.sha256")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
