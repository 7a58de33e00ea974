"""What tests can ask for beyond Python itself: @pytest.mark.requires("openmpi").

What is missing is skipped, with the reason in the summary. What DLSCALE_REQUIRE names (a list with commas) may
not be skipped: there its absence is a failure.
"""

import functools
import gc
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Laws are tried on few examples at every run, and on many at night; a busy machine is no failure.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("few", max_examples=30, **PATIENT)
settings.register_profile("nightly", max_examples=1000, **PATIENT)
settings.load_profile("few")

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's C++ writes past pytest
os.environ.setdefault(
    "GRPC_ENABLE_FORK_SUPPORT", "0"
)  # else a child begins with gRPC's complaints about its threads


def pytest_collection_finish() -> None:
    """Spare the garbage collector thousands of tests and all modules, which stay: an eighth of the unit tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)  # building networks makes far more than 700 objects that stay


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
    if name == "oneccl":
        made = Path("build/ccl/horovod.json")
        return None if made.exists() else f"no environment of oneCCL: make {made}"
    if name == "ring":
        found = importlib.util.find_spec("dlscale.collectives.ring._engine")
        return None if found else "the native ring was not built"
    if name == "mpiexec":
        found = (Path(sys.prefix) / "bin" / "mpiexec").exists() or shutil.which("mpiexec")
        return None if found else "no mpiexec in this environment or on PATH"
    if name == "hydra":
        found = (Path(sys.prefix) / "bin" / "mpiexec.hydra").exists() or shutil.which("mpiexec.hydra")
        return (
            None if found else "this environment's mpiexec is not MPICH's, which starts ranks on other hosts"
        )
    if name == "namespaces":
        return _no_hosts()
    if name == "slurm":
        programs = [one for one in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(one)]
        return f"no {', '.join(programs)}: apt-get install slurm-wlm munge" if programs else None
    if name == "chromium":
        programs = [one for one in ("chromium", "chromedriver") if not shutil.which(one)]
        return f"no {', '.join(programs)}: apt-get install chromium chromium-driver" if programs else None
    if name == "compiler":
        return None if shutil.which(os.environ.get("CXX", "g++")) else "no C++ compiler"
    if name == "sanitizers":
        return _no_sanitizers()
    backend, _, framework = name.partition("-")
    if framework:
        from dlscale.collectives.registry import unavailable_because as problem

        return problem(backend, framework)
    return None if importlib.util.find_spec(name) else f"package {name} is not installed"


def _no_hosts() -> str | None:
    """Why no network namespaces can be made; tests/network/hosts.py makes hosts of them."""
    from tests.network.hosts import missing

    return missing()


@functools.cache
def _no_sanitizers() -> str | None:
    """Why g++ (or CXX) makes no programs with -fsanitize=...; it compiles and runs one with each."""
    compiler = os.environ.get("CXX", "g++")
    if not shutil.which(compiler):
        return f"no C++ compiler {compiler}"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        for sanitizer in ("thread", "address,undefined"):
            command = [compiler, f"-fsanitize={sanitizer}", "-x", "c++", "-", "-o", str(program)]
            for step in (command, [str(program)]):
                done = subprocess.run(
                    step, input="int main() {}", capture_output=True, text=True, check=False
                )
                if done.returncode:
                    return f"{compiler} -fsanitize={sanitizer}: {done.stderr.strip()[-200:]}"
    return None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "requires(name): skipped where `name` is missing, see tests/conftest.py"
    )
    config.addinivalue_line("markers", "slow: `make test` leaves it out, `make test-all` does not")
    config.addinivalue_line(
        "markers", "nightly: `make test-nightly` runs it, `make test` and `make test-all` do not"
    )
    config.addinivalue_line("markers", "any_mpi: `make test-nightly` runs it over Open MPI too")


def pytest_runtest_setup(item: pytest.Item) -> None:
    required = os.environ.get("DLSCALE_REQUIRE", "").split(",")
    for mark in item.iter_markers("requires"):
        for name in mark.args:
            reason = _missing(name)
            if reason and {name, name.partition("-")[0]} & set(required):
                pytest.fail(f"DLSCALE_REQUIRE names {name}, but: {reason}", pytrace=False)
            if reason:
                pytest.skip(f"{name}: {reason}")
