"""Starts tests/contract under mpiexec, on several numbers of ranks."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlscale.benchmarks.systems.system import load_system
from tests.processes import mpiexec

TOP = Path(__file__).parents[2]
LIMIT_SECONDS = 900

pytestmark = [pytest.mark.requires("mpiexec"), pytest.mark.timeout(LIMIT_SECONDS + 40)]

ENDING_SECONDS = 10  # a killed process is not gone at once where others want the cores
# Operations on buffers; all other files train.
COMMUNICATORS = (
    *("collective", "compressed_collective", "matching"),
    *("ring", "ring_large", "ring_properties", "ring_safety", "ring_stress"),
    "neighbours",
)
# Trainings over the same calls as the others: of those in both frameworks, the ones in torch tell as much of another
# MPI.
OF_FRAMEWORKS = (
    *(
        "keras",
        "tensorflow_exchange",
        "tensorflow_rows",
        "tensorflow_training",
        "torch_training",
        "audit",
    ),
    *("algorithms", "compressed_training"),
)
OF_SERVERS = ("servers", "served_algorithms")
TEST_LIMIT_SECONDS = 60  # a broken collective hangs; the rank then says where, and ends the launch


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


def communicators(num_ranks):
    """The files of a launch: on 4 ranks the ring between two nodes, and two replicas; all else 3 ranks have shown."""
    names = [name for name in COMMUNICATORS if num_ranks < 4 or name.startswith(("ring", "neighbours"))]
    return [f"tests/contract/test_{name}.py" for name in names]


def trainers():
    """The files of a launch without servers."""
    left_out = [*OF_SERVERS, *COMMUNICATORS, *(() if mpiexec()[1] else OF_FRAMEWORKS)]
    return ["tests/contract", *(f"--ignore=tests/contract/test_{name}.py" for name in left_out)]


OVER_ONE_BACKEND = ("tests/contract/test_trainer.py", "tests/contract/test_servers.py")


def run_contract(num_ranks, folder, words, *, backend=None, num_servers=0, prefix=None, variables=()):
    """What pytest makes of `words`, in one launch; over one backend if asked, whose servers are further ranks.

    In this environment, or that of `prefix`, with further `variables`. Returns (exit status of mpiexec, or None if it
    was stopped; its own output).
    """
    launcher, mpich = mpiexec()
    if prefix:
        launcher, mpich = [str(prefix / "bin" / "mpiexec")], True
    python = str(prefix / "bin" / "python") if prefix else sys.executable
    command = [*launcher, "-n", str(num_ranks + num_servers)]
    command += [python, str(TOP / "tests/mpi/rank_pytest.py"), str(folder), *words]
    variables = {"DLSCALE_UNDER_MPIEXEC": str(num_ranks), **dict(variables)}
    if backend:
        variables |= {"DLSCALE_CONTRACT_BACKENDS": backend, "DLSCALE_CONTRACT_SERVERS": str(num_servers)}
    elif not mpich:
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


@pytest.mark.parametrize(
    "num_ranks",
    [
        pytest.param(2, marks=pytest.mark.any_mpi),
        *(pytest.param(ranks, marks=pytest.mark.slow) for ranks in (3, 4)),
        pytest.param(1, marks=pytest.mark.nightly),  # studies train over the ring on 1 rank
    ],
)
def test_contract_of_communicators(num_ranks, tmp_path):
    check(tmp_path, num_ranks, *run_contract(num_ranks, tmp_path, communicators(num_ranks)))


@pytest.mark.parametrize(
    "num_ranks",
    [
        pytest.param(2, marks=[pytest.mark.slow, pytest.mark.any_mpi]),
        *(pytest.param(ranks, marks=pytest.mark.nightly) for ranks in (1, 3, 4)),
    ],
)
def test_contract_of_trainers(num_ranks, tmp_path):
    """On 4 ranks those that share samples: two replicas of 2, or one."""
    words = trainers() if num_ranks < 4 else ["tests/contract/test_split.py"]
    by_day = ["-m", "not nightly"] if num_ranks == 2 else []
    check(tmp_path, num_ranks, *run_contract(num_ranks, tmp_path, [*words, *by_day]))


SERVERS = {1: 1, 2: 1, 3: 2}


@pytest.mark.requires("grpc_ps-torch", "grpc_ps-tensorflow")
@pytest.mark.slow
@pytest.mark.parametrize(
    "num_ranks", [2, *(pytest.param(ranks, marks=pytest.mark.nightly) for ranks in (1, 3))]
)
def test_contract_of_servers(num_ranks, tmp_path):
    num_servers = SERVERS[num_ranks]
    found = run_contract(num_ranks, tmp_path, OVER_ONE_BACKEND, backend="grpc_ps", num_servers=num_servers)
    check(tmp_path, num_ranks + num_servers, *found)


@pytest.mark.slow
def test_contract_of_servers_over_mpi(tmp_path):
    """In torch; its servers know no framework, and a study over every backend trains over them in both."""
    words = ["tests/contract/test_trainer.py", "tests/contract/test_served_algorithms.py", "-k", "torch"]
    found = run_contract(2, tmp_path, words, backend="mpi_ps", num_servers=1)
    check(tmp_path, 3, *found)


@pytest.mark.requires("tf_collective-tensorflow")
@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, pytest.param(1, marks=pytest.mark.nightly)])
def test_contract_of_tensorflows_collectives(num_ranks, tmp_path):
    found = run_contract(num_ranks, tmp_path, OVER_ONE_BACKEND, backend="tf_collective")
    check(tmp_path, num_ranks, *found)


@pytest.mark.requires("ring")
@pytest.mark.nightly
@pytest.mark.any_mpi
def test_twenty_thousand_random_operations(tmp_path):
    words, variables = ["tests/contract/test_ring_stress.py"], {"DLSCALE_STRESS": "20000"}
    check(tmp_path, 4, *run_contract(4, tmp_path, words, variables=variables))


@pytest.mark.requires("ring")
@pytest.mark.nightly
def test_messages_of_more_than_an_int_counts(tmp_path):
    """6 GiB on each of 2 ranks."""
    words, variables = ["tests/contract/test_ring_large.py"], {"DLSCALE_LARGE": "1"}
    check(tmp_path, 2, *run_contract(2, tmp_path, words, variables=variables))


ONECCL = TOP / "build" / "ccl"


@pytest.mark.nightly
@pytest.mark.requires("oneccl")
def test_contract_of_horovod_over_oneccl(tmp_path):
    environment = load_system("local").environments[".venv-ccl"].variables
    options = {"operations": "ccl"}
    variables = {name: value.replace("{prefix}", str(ONECCL)) for name, value in environment.items()}
    variables |= {
        "DLSCALE_CONTRACT_OPTIONS": json.dumps(options),
        "DLSCALE_REQUIRE": "horovod-torch",  # it has no TensorFlow
        "OMP_NUM_THREADS": "1",
    }
    found = run_contract(2, tmp_path, OVER_ONE_BACKEND, backend="horovod", prefix=ONECCL, variables=variables)
    check(tmp_path, 2, *found)


def check(folder, num_ranks, status, said):
    failures = story(folder, num_ranks)
    end = time.monotonic() + ENDING_SECONDS
    while (left := processes_of(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, f"processes that outlived their launch: {left}"
    if status != 0 or failures:
        ended = "was stopped" if status is None else f"ended with {status}"
        pytest.fail(f"mpiexec {ended}\n{said[-2000:]}\n{failures}", pytrace=False)
