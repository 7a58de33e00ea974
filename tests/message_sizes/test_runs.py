"""The message-size benchmark as a user runs it: real ranks of the ring and of the MPI that is there, small sizes."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlscale.base.strings import redact
from dlscale.benchmarks.cli import FAILED_CASES, main
from dlscale.benchmarks.message_sizes import launch, peers
from dlscale.benchmarks.message_sizes.launch import START
from dlscale.benchmarks.message_sizes.peers import Peer, choose_peers
from dlscale.benchmarks.records.collective_operations import COLLECTIVES

DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")
KIB = 2**10
pytestmark = [pytest.mark.slow, pytest.mark.requires("mpiexec", "ring")]


@pytest.fixture(scope="module")
def peer() -> Peer:
    from mpi4py import MPI

    return choose_peers(["openmpi" if MPI.get_vendor()[0] == "Open MPI" else "mpich"])[0]


@pytest.fixture(scope="module")
def folder(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `make collectives-setup` leaves it, but with the environment that is there."""
    folder = tmp_path_factory.mktemp("peers")
    (folder / ".peers").mkdir()
    (folder / ".peers" / peer.name).symlink_to(sys.prefix)
    return folder


def collectives(folder: Path, *words: str, limit: int = 280) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DLSCALE, "collectives", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=limit,
        cwd=folder,
    )


def driver(
    tmp_path: Path, change: str = "", *, num_ranks: int = 1, **options: Any
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Ranks as on several nodes, or with other libraries, which `change` puts in; what they wrote."""
    order = {
        "operations": ["mpi"],
        "sizes": [4096],
        "thread_level": "single",
        "cpus": sorted(os.sched_getaffinity(0)),
        "num_ranks": num_ranks,
        "ranks_per_node": 2,
        "seconds": 30.0,
    }
    (tmp_path / "order.json").write_text(json.dumps(order | options))
    program = f"import pathlib, sys\nfrom dlscale.benchmarks.message_sizes import calls, rank\n{change}\n"
    program += "rank.start(pathlib.Path(sys.argv[1]))"
    done = subprocess.run(
        [
            *(str(Path(sys.prefix) / "bin" / "mpiexec"), "-n", str(num_ranks), sys.executable),
            *(["-c", program] if change else [str(START)]),
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
    )
    output = tmp_path / "samples.jsonl"
    lines = output.read_text().splitlines() if output.exists() else []
    return done, [json.loads(line) for line in lines]


def operations_of(blocks: list[dict[str, Any]]) -> set[str]:
    return {f"{one['operation']}:{one['collective']}".removesuffix(":allreduce") for one in blocks}


def test_a_whole_run(
    folder: Path,
    peer: Peer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(peers, "PEERS", folder / ".peers")
    monkeypatch.setattr(Peer, "unusable", lambda _: None)
    results = tmp_path / "results"
    words = ("--backends", f"ring,{peer.name}", "--sizes", "4KiB,256KiB", "--ranks", "2,4")
    words += ("--launches", "1", "--budget", "40s", "--results", str(results), "--json")
    with pytest.raises(SystemExit) as ended:
        main(["collectives", *words])
    out, err = capsys.readouterr()
    assert ended.value.code in (0, FAILED_CASES), err
    said = json.loads(out)
    failed = {(row["num_ranks"], row["failure"]) for row in said["rows"] if row["failure"]}
    assert failed <= {(4, "no time was left")}, err
    for backend in ("ring", peer.name):
        for size in (4 * KIB, 256 * KIB):
            rates = [
                row["algbw_gb_per_second"]
                for row in said["rows"]
                if (row["backend"], row["message_bytes"], row["num_ranks"]) == (backend, size, 2)
            ]
            assert rates, (backend, size)
            assert min(rates) > 0
    assert {row["backend"] for row in said["rows"] if row["num_ranks"] == 4} == {"ring", peer.name}

    (run,) = (results / "collectives").iterdir()
    for name in ("collectives.csv", "collectives-2r.png", "collectives-2r.pdf", "collectives-4r.svg"):
        assert (run / name).stat().st_size > 0
    records = [run / "campaign.json", *(run / "launches").iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in records} == {0o600}
    for path in records:
        assert redact(path.read_text()) == path.read_text()  # no home folder, no user's name

    again = collectives(folder, "report", "--results", str(results), "--json")
    assert json.loads(again.stdout) == said
    assert not list(launch.MEMORY.glob("dlscale-collectives-*"))


EVERY = COLLECTIVES[1:]


@pytest.mark.parametrize(
    "operations",
    [
        ["mpi", *(f"mpi:{name}" for name in EVERY)],
        ["ring", *(f"ring:{name}" for name in EVERY)],
        ["gloo", *(f"gloo:{name}" for name in EVERY)],
    ],
)
def test_every_call_of_every_rank_is_there(tmp_path: Path, operations: list[str]):
    done, lines = driver(tmp_path, num_ranks=2, operations=operations, sizes=[4096, 65536])
    assert done.returncode == 0, done.stderr
    blocks = [line for line in lines if line["kind"] == "block"]
    assert operations_of(blocks) == set(operations)
    for block in blocks:
        own, other = block["nanoseconds"]
        assert len(own) == len(other) > 0
    assert lines[-1] == {"kind": "end"}


SLOW = """
import time
class Slow(calls.Library):
    description, close = "x", lambda self: None
    calls = {"allreduce": lambda _: lambda: time.sleep(0.05)}
    get = lambda self, _: rank.BY_NAME["allreduce"].wanted(1024, 0, 1)
calls.LIBRARIES["mpi"] = calls.LIBRARIES["ring"] = Slow
"""


def test_what_would_not_end_in_time_is_not_begun(tmp_path: Path):
    done, lines = driver(tmp_path, SLOW, sizes=[*range(4096, 4100)] * 2, seconds=2.0)
    assert done.returncode == 0, done.stderr
    assert lines[-1] == {"kind": "end"}
    assert [line["reason"] for line in lines if line["kind"] == "failure"][-1] == "no time was left"
    assert [line for line in lines if line["kind"] == "block"]


def test_an_operation_that_tries_variants_is_not_timed_before_it_has_tried_all(tmp_path: Path):
    """A short budget ended its warm-up, and the trials of slow variants were timed."""
    done, lines = driver(tmp_path, SLOW + "Slow.num_trials = 30\n", operations=["ring"], seconds=3.0)
    assert done.returncode == 0, done.stderr
    assert {line["num_warmup"] for line in lines if line["kind"] == "block"} == {35}


def test_a_rank_that_fails_ends_the_others(tmp_path: Path):
    """It used to wait, as Python ended, in MPI for ranks that waited for it."""
    done, _ = driver(tmp_path, num_ranks=2, operations=["sing"])
    assert done.returncode != 0
    assert "collectives benchmark: KeyError: 'sing'" in done.stderr


def test_a_wrong_result_is_a_failure_and_no_number(tmp_path: Path):
    """The driver's own check, on a library that forgets the last element on one rank."""
    done, lines = driver(
        tmp_path,
        "class Forgetful(calls._Mpi):\n"
        "    def get(self, message):\n"
        "        message[-self.rank.rank:] *= 1 - self.rank.rank\n"
        "        return message\n"
        "calls.LIBRARIES['mpi'] = Forgetful\n",
        num_ranks=2,
        operations=["mpi", "mpi:broadcast"],
    )
    assert done.returncode == 0, done.stderr
    assert [line["reason"] for line in lines if line["kind"] == "failure"] == ["wrong result"] * 2
    assert not [line for line in lines if line["kind"] == "block"]
