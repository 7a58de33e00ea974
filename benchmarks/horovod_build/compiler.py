"""What stands between Horovod 0.28.1 and today's frameworks: variables, and a compiler that corrects its arguments."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from dlscale.benchmarks.horovod_build.target import Facts, Target
from dlscale.models.errors import UsageError

GIB_PER_COMPILER = 2  # of memory, with the frameworks' headers
# Where a wrong guess would lead to a Horovod without MPI, it is an error instead.
VARIABLES = {
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITHOUT_GLOO": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # its build files are older than CMake 4 accepts
}
FRAMEWORK_VARIABLES = {"torch": "PYTORCH", "tensorflow": "TENSORFLOW"}
# Both frameworks refuse the C++14 that Horovod asks for. xla_mpi_ops.cc is for GPUs only and includes headers of XLA
# that have moved. Libraries of the environment are named by their place in it, not by where it lies: a kept wheel
# goes into other environments too, and one that is gone, or another's MPI, must not be found.
_SCRIPT = r"""#!/bin/sh
undefine=
for word in "$@"; do
  shift
  case $word in
    -Wl,-rpath,*) word=$(printf %s "$word" | sed -e 's#'@packages@'#$ORIGIN/../..#g' \
                                                 -e 's#'@prefix@'#$ORIGIN/@up@#g') ;;
    *xla_mpi_ops.cc) undefine=-UTENSORFLOW_VERSION ;;
  esac
  set -- "$@" "$word"
done
exec @compiler@ "$@" $undefine -std=c++17 -g0 -w
"""


def write_compiler(target: Target, path: Path) -> None:
    """`path` is the compiler for Horovod. Raises UsageError if this machine has none."""
    asked = os.environ.get("CXX", "g++")
    words = shlex.split(asked)
    if not words or not shutil.which(words[0]):
        raise UsageError(
            f"no C++ compiler {asked!r} on PATH, and Horovod is compiled here; install one (Debian: g++) "
            "or name yours: CXX=..."
        )
    # Horovod's libraries lie in lib/python3.x/site-packages/horovod/<framework>.
    packages = next(iter(sorted(target.prefix.glob("lib/python3*/site-packages"))), target.prefix / "none")
    values = {
        "packages": shlex.quote(str(packages)),
        "prefix": shlex.quote(str(target.prefix)),
        "up": "../../../../..",
        "compiler": shlex.join(words),
    }
    text = _SCRIPT
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o700)


def build_variables(target: Target, facts: Facts, compiler: Path) -> dict[str, str]:
    """The environment of the build: the user's own, with what must hold here."""
    frameworks = {
        f"HOROVOD_{'WITH' if name in facts.frameworks else 'WITHOUT'}_{word}": "1"
        for name, word in FRAMEWORK_VARIABLES.items()
    }
    jobs = {"CXX": str(compiler), "MAKEFLAGS": f"-j{num_compilers()}"}
    variables = target.environ(**VARIABLES, **frameworks, **jobs)
    for name in ("WITHOUT_MPI", "WITH_GLOO", "WITH_MXNET"):
        variables.pop(f"HOROVOD_{name}", None)
    # Its presence alone makes Horovod link oneCCL, and a machine with Intel's modules loaded has it set.
    if facts.operations.get("HOROVOD_CPU_OPERATIONS") != "CCL":
        variables.pop("CCL_ROOT", None)
    return variables


def num_compilers() -> int:
    """As many as there are cores and memory for."""
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return max(1, min(len(os.sched_getaffinity(0)), int(gib / GIB_PER_COMPILER)))
