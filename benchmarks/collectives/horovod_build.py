"""Horovod from its source distribution, for torch over the environment's own MPI; the wheel is kept.

Horovod publishes no wheels, and its last release asks for C++14, which torch refuses: the compiler is called
through a script that asks for C++17 after it.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from dlscale.benchmarks.collectives.peers import Place

RECIPE = 1  # raised when what is below changes
BUILD_PACKAGES = ("setuptools", "wheel", "cmake", "cffi", "cloudpickle", "psutil", "pyyaml", "packaging")
# Where a wrong guess would lead to a Horovod without MPI or torch, it is an error instead.
VARIABLES = {
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITHOUT_GLOO": "1",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # its build files are older than CMake 4 accepts
    "MAKEFLAGS": "-j2",
}
_COMPILER = '#!/bin/sh\nexec g++ "$@" -std=c++17 -g0 -w\n'


# `setup.pip`: an environment, pip's words, variables.
Pip = Callable[[Place, Sequence[str], dict[str, str]], None]


def build(place: Place, *, tell: Callable[[str], None], pip: Pip) -> None:
    """Horovod is installed in the environment, which has torch and an MPI. Raises UsageError."""
    tell("what Horovod's build needs")
    pip(place, ["install", *BUILD_PACKAGES], {})
    wheels = place.folder.with_name("wheels") / _key(place)
    if not list(wheels.glob("horovod-*.whl")):
        tell("compiling Horovod, some minutes")
        compiler = place.folder / "bin" / "horovod-c++"
        compiler.write_text(_COMPILER, encoding="utf-8")
        compiler.chmod(0o755)
        search = f"{place.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        pip(
            place,
            ["wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(wheels), "horovod"],
            {**VARIABLES, "CXX": str(compiler), "PATH": search},
        )
    pip(place, ["install", "--no-deps", *(str(path) for path in wheels.glob("horovod-*.whl"))], {})


def _key(place: Place) -> str:
    """A folder's name for the versions that a wheel was compiled against."""
    listed = subprocess.run(
        [str(place.python), "-m", "pip", "list", "--format=json", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = {row["name"]: row["version"] for row in json.loads(listed.stdout)}
    text = json.dumps([RECIPE, _python(place), found.get("torch"), found.get("mpich")])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _python(place: Place) -> str:
    return Path(os.path.realpath(place.python)).name
