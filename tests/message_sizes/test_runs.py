"""The message-size benchmark as a user runs it: real ranks of the ring and of the MPI that is there, small sizes."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlscale.base.redaction import redact
from dlscale.benchmarks.cli import FAILED_CASES, main
from dlscale.benchmarks.message_sizes import peers as setup
from dlscale.benchmarks.message_sizes import run as message_sizes_run
from dlscale.benchmarks.message_sizes.launch import START
from dlscale.benchmarks.message_sizes.peers import Peer, choose_peers, place_of
from dlscale.benchmarks.records.collective_operations import COLLECTIVES

DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")
KIB = 2**10
pytestmark = [pytest.mark.slow, pytest.mark.requires("mpiexec", "ring")]


@pytest.fixture(scope="module")
def peer() -> Peer:
    from mpi4py import MPI

    return choose_peers(["openmpi" if MPI.get_vendor()[0] == "Open MPI" else "mpich"])[0]


@pytest.fixture(scope="module")
def environments(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make collectives-setup` leaves it, but with the environment that is there; nothing is downloaded."""
    folder = tmp_path_factory.mktemp("peers")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(setup.venv, "create", lambda place, **_: place.symlink_to(sys.prefix))
        patched.setattr(setup, "pip_install", lambda *_: None)
        assert setup.set_up(peer, place_of(peer.name, folder), tell=print) is None
    return folder


def collectives(*words: str, limit: int = 280) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DLSCALE, "collectives", *words], capture_output=True, text=True, check=False, timeout=limit
    )


def driver(
    tmp_path: Path, change: str = "", *, num_ranks: int = 1, **options: str
) -> tuple[subprocess.CompletedProcess[str], list[dict]]:
    """The driver as it is, or with other libraries, which `change` puts in; what it wrote."""
    flags, output = tmp_path / "flags", tmp_path / "samples.jsonl"
    flags.touch()
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:num_ranks]))
    words = {"cpus": cpus, "num-ranks": str(num_ranks), "sizes": "4096", "seconds": "0.1", "limit": "60"}
    words |= {"folder": str(tmp_path), "flags": str(flags), **options}
    program = f"from dlscale.benchmarks.message_sizes import calls, rank\n{change}\nrank.main()"
    done = subprocess.run(
        [
            *(str(Path(sys.prefix) / "bin" / "mpiexec"), "-n", str(num_ranks), sys.executable),
            *(["-c", program] if change else [str(START)]),
            *(part for name, value in words.items() for part in (f"--{name}", value)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
    )
    lines = output.read_text().splitlines() if output.exists() else []
    return done, [json.loads(line) for line in lines]


def operations_of(blocks: list[dict]) -> set[str]:
    return {f"{one['operation']}:{one['collective']}".removesuffix(":allreduce") for one in blocks}


def test_a_whole_run(
    environments: Path,
    peer: Peer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """In short launches of a long budget, which sets their limits: 4 ranks on 2 busy cores take many times as long.

    So long that no time may be left there for the larger size, which is told and no failure of the launch.
    """
    monkeypatch.setattr(message_sizes_run, "MOST_SECONDS", 1.0)
    results = tmp_path / "results"
    words = ("--environments", str(environments), "--backends", f"ring,{peer.name}", "--sizes", "4KiB,256KiB")
    words += ("--ranks", "2,4", "--launches", "1", "--budget", "10min", "--results", str(results), "--json")
    with pytest.raises(SystemExit) as ended:
        main(["collectives", *words])
    out, err = capsys.readouterr()
    assert ended.value.code in (0, FAILED_CASES), err
    said = json.loads(out)
    failed = {(row["num_ranks"], row["failure"]) for row in said["rows"] if row["failure"]}
    assert failed <= {(4, "no time was left")}, err
    for backend in ("ring", peer.name, "memory"):
        for size in (4 * KIB, 256 * KIB):
            rates = [
                row["algbw_gb_per_second"]
                for row in said["rows"]
                if (row["backend"], row["message_bytes"], row["num_ranks"]) == (backend, size, 2)
            ]
            assert rates, (backend, size)
            assert min(rates) > 0
    assert {row["backend"] for row in said["rows"] if row["num_ranks"] == 4} == {"ring", peer.name}

    (folder,) = (results / "collectives").iterdir()
    for name in ("collectives.csv", "collectives-2r.png", "collectives-2r.pdf", "collectives-4r.svg"):
        assert (folder / name).stat().st_size > 0
    records = [folder / "campaign.json", *(folder / "launches").iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in records} == {0o600}
    for path in records:
        assert redact(path.read_text()) == path.read_text()  # no home folder, no user's name

    again = collectives("report", "--results", str(results), "--json")
    assert json.loads(again.stdout) == said


@pytest.mark.nightly
def test_a_small_budget_is_kept(environments: Path, peer: Peer, tmp_path: Path):
    begin = time.monotonic()
    done = collectives(
        *("--environments", str(environments), "--backends", f"ring,{peer.name}", "--sizes", "4KiB:1MiB:x4"),
        *("--budget", "20s", "--results", str(tmp_path)),
    )
    assert done.returncode in (0, 2), done.stderr
    assert time.monotonic() - begin < 20 + 25  # start-up, a last launch that is slow, and the figure
    assert "Average bus bandwidth" in done.stdout


@pytest.mark.parametrize("asked", ["single", "multiple"])
def test_a_settings_thread_level_reaches_the_library(tmp_path: Path, asked: str):
    _, lines = driver(tmp_path, backend="mpi", operations="mpi", **{"thread-level": asked})
    assert lines[0]["thread_level"] == asked


@pytest.mark.parametrize(
    ("backend", "operations"),
    [
        ("mpi", "mpi,stream," + ",".join(f"mpi:{name}" for name in COLLECTIVES[1:])),
        ("ring", "ring,ring-shared,stream," + ",".join(f"ring:{name}" for name in COLLECTIVES[1:])),
    ],
)
def test_every_call_of_every_rank_is_there(tmp_path: Path, backend: str, operations: str):
    done, lines = driver(tmp_path, backend=backend, operations=operations)
    assert done.returncode == 0, done.stderr
    blocks = [line for line in lines if line["kind"] == "block"]
    assert operations_of(blocks) == set(operations.split(","))
    for block in blocks:
        assert len(block["nanoseconds"]) == 1
        assert len(block["nanoseconds"][0]) == len(block["spread_nanoseconds"]) > 0
    assert lines[-1] == {"kind": "end"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"operations": "sing"}, "KeyError: 'sing'"),
        ({"flags": "/nowhere/flags"}, "No such file or directory: '/nowhere/flags'"),
        ({"folder": "/nowhere"}, "No such file or directory: '/nowhere/samples.jsonl'"),
    ],
)
def test_a_mistake_ends_it_at_once(tmp_path: Path, options: dict[str, str], expected: str):
    done, _ = driver(tmp_path, **{"backend": "mpi", "operations": "mpi", **options})
    assert done.returncode != 0
    assert f"collectives benchmark: {expected}" in done.stderr.replace("FileNotFoundError: [Errno 2] ", "")


def test_ranks_of_two_nodes_meet_and_their_clocks_are_compared(tmp_path: Path):
    """On one machine, whose clock serves both: the skew of starts is small against a round trip."""
    done, lines = driver(
        tmp_path,
        num_ranks=4,
        backend="mpi",
        operations="mpi,mpi:broadcast",
        sizes="4096,65536",
        **{"ranks-per-node": "2"},
    )
    assert done.returncode == 0, done.stderr
    blocks = [line for line in lines if line["kind"] == "block"]
    assert operations_of(blocks) == {"mpi", "mpi:broadcast"}
    for block in blocks:
        assert len(block["nanoseconds"]) == 4
        before, after = block["round_trip_nanoseconds"]
        assert 0 < before < 1e8
        assert 0 < after < 1e8
    assert lines[0]["barrier"] == "shared memory on a node, MPI between nodes"
    assert not list(tmp_path.glob("flags-*"))


def test_what_would_not_end_in_time_is_not_begun(tmp_path: Path):
    """Without time for it, sizes are left out; the alarm took the whole launch, though most of it had been measured."""
    start = "lambda *_: calls.Library('x', 'single', {'mpi': sleeping}, lambda: None)"
    done, lines = driver(
        tmp_path,
        "import time; slow = lambda _: lambda: time.sleep(0.02)\n"
        "sleeping = calls.Operation('allreduce', slow, checked=False)\n"
        f"calls.START['mpi'] = {start}\n",
        backend="mpi",
        operations="mpi",
        sizes="4096,8192,16384",
        seconds="100",
        limit="6",
    )
    assert done.returncode == 0, done.stderr
    assert lines[-1] == {"kind": "end"}


def test_an_operation_that_tries_variants_is_not_timed_before_it_has_tried_all(tmp_path: Path):
    """A short budget ended its warm-up, and the trials of slow variants were timed."""
    start = "lambda *_: calls.Library('x', 'single', {'ring': sleeping}, lambda: None)"
    done, lines = driver(
        tmp_path,
        "import time; slow = lambda _: lambda: time.sleep(0.02)\n"
        "sleeping = calls.Operation('allreduce', slow, checked=False)\n"
        f"calls.START['ring'] = {start}\n",
        backend="ring",
        operations="ring",
    )
    assert done.returncode == 0, done.stderr
    assert {line["num_warmup"] for line in lines if line["kind"] == "block"} == {35}


def test_a_rank_that_fails_ends_the_others(tmp_path: Path):
    """It used to wait, as Python ended, in MPI for ranks that waited for it, until all were ended by their alarm."""
    done, _ = driver(tmp_path, num_ranks=2, backend="mpi", operations="mpi", limit="30", folder="/nowhere")
    assert done.returncode != 0
    assert "collectives benchmark: FileNotFoundError" in done.stderr
    assert "Alarm clock" not in done.stdout + done.stderr


def test_a_wrong_result_is_a_failure_and_no_number(tmp_path: Path):
    """The driver's own check, on a library that forgets the last element."""
    done, lines = driver(
        tmp_path,
        "def forgetful(message):\n"
        "    def call():\n"
        "        message[:-1] *= 1; message[-1] = 0\n"
        "    return call\n"
        "forgetting = calls.Operation('allreduce', forgetful)\n"
        "calls.START['mpi'] = lambda *_: calls.Library('x', 'single', {'mpi': forgetting}, lambda: None)\n",
        backend="mpi",
        operations="mpi,mpi:broadcast",
    )
    assert done.returncode == 0, done.stderr
    reasons = [line["reason"] for line in lines if line["kind"] == "failure"]
    assert reasons == ["wrong result", "LookupError: this library has no broadcast"]
    assert not [line for line in lines if line["kind"] == "block"]


def test_tensors_of_a_device_go_through_the_same_loop(tmp_path: Path):
    """As NCCL's on GPUs, with Gloo and the host in their places; what the device is waited for is counted."""
    words = "nccl,stream," + ",".join(f"nccl:{name}" for name in COLLECTIVES[1:])
    done, lines = driver(
        tmp_path,
        "import atexit, torch\n"
        "waits = []\n"
        "calls.START['nccl'] = lambda options, place: calls.on_devices(\n"
        "    options, place, 'gloo', torch.device('cpu'), lambda: waits.append(1), title='x')\n"
        "atexit.register(lambda: print(len(waits)))\n",
        backend="nccl",
        operations=words,
    )
    assert done.returncode == 0, done.stderr
    assert not [line["reason"] for line in lines if line["kind"] == "failure"]
    blocks = [line for line in lines if line["kind"] == "block"]
    assert operations_of(blocks) == set(words.split(","))
    num_calls = sum(len(block["nanoseconds"][0]) for block in blocks)
    assert int(done.stdout) > num_calls, "every call is waited for"
