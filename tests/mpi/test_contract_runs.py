"""Starts tests/contract under mpiexec, on several numbers of ranks."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlscale.benchmarks.systems.system import load_system

TOP = Path(__file__).parents[2]
LIMIT_SECONDS = 900
ENDING_SECONDS = 10  # a killed process is not gone at once where others want the cores
# What MPI carries for whoever trains is in the other files; these train in frameworks over the same calls. Of those
# that do it in both, the ones in torch tell as much of another MPI.
OF_FRAMEWORKS = (
    *("keras", "tensorflow_exchange", "tensorflow_training", "torch_training", "wire_training", "audit"),
    "jax_training",
    *("algorithms", "compressed_training", "resumed"),
)
OF_SERVERS = ("servers", "served_algorithms")
TEST_LIMIT_SECONDS = 60  # a broken collective hangs; the rank then says where, and ends the launch


def mpiexec():
    """The command that starts ranks, more than there are cores if need be; and whether it is MPICH's."""
    beside = Path(sys.prefix) / "bin" / "mpiexec"
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert program, "the mark lets no test come here without an mpiexec"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if "Open MPI" not in version and "open-mpi" not in version:
        return [program], True
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [program, "--oversubscribe", *as_root], False


def stop(process):
    """End mpiexec and its ranks: politely, so that it can take its ranks along, then by force."""
    for blow, patience_seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, blow)
            process.wait(patience_seconds)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def run_contract(num_ranks, folder, *, backend=None, num_servers=0, prefix=None, variables=(), words=None):
    """All of the contract, or that of trainers over one backend, whose servers are further ranks.

    In this environment, or that of `prefix`, with further `variables`. Returns (exit status of mpiexec, or None if it
    was stopped; its own output).
    """
    launcher, mpich = mpiexec()
    if prefix:
        launcher, mpich = [str(prefix / "bin" / "mpiexec")], True
    python = str(prefix / "bin" / "python") if prefix else sys.executable
    command = [*launcher, "-n", str(num_ranks + num_servers)]
    command += [python, str(TOP / "tests/mpi/rank_pytest.py"), str(folder)]
    variables = {"DLSCALE_UNDER_MPIEXEC": str(num_ranks), **dict(variables)}
    if backend:
        command += words or ["tests/contract/test_trainer.py", "tests/contract/test_servers.py"]
        command += ["--deselect", "tests/contract/test_trainer.py::test_overlap_gives_the_same_weights"]
        variables |= {"DLSCALE_CONTRACT_BACKENDS": backend, "DLSCALE_CONTRACT_SERVERS": str(num_servers)}
    elif num_ranks > 3:  # what the ring does between two nodes of two ranks each; all else 3 ranks have shown
        command += sorted(str(path) for path in (TOP / "tests/contract").glob("test_ring*.py"))
    else:
        command += ["tests/contract", *(f"--ignore=tests/contract/test_{name}.py" for name in OF_SERVERS)]
        if not mpich:
            command += [f"--ignore=tests/contract/test_{name}.py" for name in OF_FRAMEWORKS]
            command += ["-k", "not tensorflow"]
            variables["DLSCALE_CONTRACT_BACKENDS"] = "none,mpi,ring"  # Gloo does not know of MPI
    command += ["-p", "no:cacheprovider"]
    # By a thread, because a signal is not heard inside MPI.
    command += [f"--timeout={TEST_LIMIT_SECONDS}", "--timeout-method=thread"]
    output = folder / "mpiexec.txt"
    with output.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=TOP,
            env={**os.environ, **variables},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                stop(process)
    return status, output.read_text()


def processes_of(folder):
    """The processes that work in that folder, as /proc/<id>/cmdline."""
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(folder).encode() in words_of(path)]


def words_of(cmdline):
    """A process's command line; nothing once it is gone."""
    try:
        return cmdline.read_bytes()
    except OSError:
        return b""


def story(folder, num_ranks):
    """What the ranks that did not pass wrote, the end of it."""
    parts = []
    for rank in range(num_ranks):
        status, text = (folder / f"rank-{rank}.{kind}" for kind in ("status", "txt"))
        if not status.exists() or status.read_text() != "0":
            outcome = f"exit status {status.read_text()}" if status.exists() else "did not end"
            said = text.read_text()[-6000:] if text.exists() else "(nothing)"
            parts.append(f"--- rank {rank} of {num_ranks}: {outcome}\n{said}")
    return "\n".join(parts)


@pytest.mark.requires("mpiexec")
@pytest.mark.timeout(LIMIT_SECONDS + 40)
@pytest.mark.parametrize(
    "num_ranks",
    [
        pytest.param(2, marks=pytest.mark.any_mpi),
        *(pytest.param(ranks, marks=pytest.mark.slow) for ranks in (1, 3, 4)),
    ],
)
def test_contract(num_ranks, tmp_path):
    check(tmp_path, num_ranks, *run_contract(num_ranks, tmp_path))


SERVERS = {1: 1, 2: 1, 3: 2}


@pytest.mark.requires("mpiexec", "grpc_ps-torch", "grpc_ps-tensorflow")
@pytest.mark.timeout(LIMIT_SECONDS + 40)
@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_contract_of_servers(num_ranks, tmp_path):
    num_servers = SERVERS[num_ranks]
    found = run_contract(num_ranks, tmp_path, backend="grpc_ps", num_servers=num_servers)
    check(tmp_path, num_ranks + num_servers, *found)


@pytest.mark.requires("mpiexec")
@pytest.mark.timeout(LIMIT_SECONDS + 40)
@pytest.mark.slow
def test_contract_of_servers_over_mpi(tmp_path):
    """In torch; its servers know no framework, and a study over every backend trains over them in both."""
    words = ["tests/contract/test_trainer.py", "tests/contract/test_served_algorithms.py", "-k", "torch"]
    found = run_contract(2, tmp_path, backend="mpi_ps", num_servers=1, words=words)
    check(tmp_path, 3, *found)


@pytest.mark.requires("mpiexec", "tf_collective-tensorflow")
@pytest.mark.timeout(LIMIT_SECONDS + 40)
@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_contract_of_tensorflows_collectives(num_ranks, tmp_path):
    check(tmp_path, num_ranks, *run_contract(num_ranks, tmp_path, backend="tf_collective"))


ONECCL = TOP / "build" / "ccl"


@pytest.mark.requires("oneccl")
@pytest.mark.timeout(LIMIT_SECONDS + 40)
@pytest.mark.slow
def test_contract_of_horovod_over_oneccl(tmp_path):
    """With a worker beside each rank, on its training core: where tests run there may be no other."""
    environment = load_system("local").environments[".venv-ccl"].variables
    options = {"operations": "ccl", "ccl_workers": 1, "ccl_workers_share": True}
    variables = {name: value.replace("{prefix}", str(ONECCL)) for name, value in environment.items()}
    variables |= {
        "DLSCALE_CONTRACT_OPTIONS": json.dumps(options),
        "DLSCALE_REQUIRE": "horovod-torch",  # it has no TensorFlow
        "OMP_NUM_THREADS": "1",
    }
    check(tmp_path, 2, *run_contract(2, tmp_path, backend="horovod", prefix=ONECCL, variables=variables))


def check(folder, num_ranks, status, said):
    failures = story(folder, num_ranks)
    end = time.monotonic() + ENDING_SECONDS
    while (left := processes_of(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, f"processes that outlived their launch: {left}"
    if status != 0 or failures:
        ended = "was stopped" if status is None else f"ended with {status}"
        pytest.fail(f"mpiexec {ended}\n{said[-2000:]}\n{failures}", pytrace=False)
