"""The message-size benchmark as a user runs it: compiled with the environment's own MPI, real ranks, small sizes."""

import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dlscale.base.redaction import redact
from dlscale.benchmarks.message_sizes import setup
from dlscale.benchmarks.message_sizes.peers import Peer, Place, choose_peers, place_of

DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")
KIB = 2**10
pytestmark = pytest.mark.requires("mpiexec", "ring")


@pytest.fixture(scope="module")
def peer() -> Peer:
    from mpi4py import MPI

    return choose_peers(["openmpi" if MPI.get_vendor()[0] == "Open MPI" else "mpich"])[0]


@pytest.fixture(scope="module")
def environments(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make collectives-setup` leaves it, but with the MPI that is there; nothing is downloaded."""
    folder = tmp_path_factory.mktemp("peers")

    def borrow(place: Path, **_: object) -> None:
        place.mkdir()
        for name in ("bin", "include", "lib"):
            (place / name).symlink_to(Path(sys.prefix) / name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(setup.venv, "create", borrow)
        patched.setattr(setup, "pip", print)
        assert setup.set_up(peer, place_of(peer.name, folder), tell=print).failure is None
    return folder


def collectives(*words: str, limit: int = 280) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DLSCALE, "collectives", *words], capture_output=True, text=True, check=False, timeout=limit
    )


def program(
    place: Place, tmp_path: Path, **options: str
) -> tuple[subprocess.CompletedProcess[str], list[dict]]:
    """The C++ program on one rank, as it is; what it wrote."""
    flags, output = tmp_path / "flags", tmp_path / "output"
    flags.touch()
    words = {
        "operations": "mpi",
        "sizes": "4096",
        "modes": "hot",
        "cpus": "0",
        "seconds": "0.1",
        "limit": "60",
    }
    words |= {"output": str(output), "flags": str(flags), **options}
    command = [str(place.program), *(part for name, value in words.items() for part in (f"--{name}", value))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    lines = output.read_text().splitlines() if output.exists() else []
    return done, [json.loads(line) for line in lines]


def test_a_whole_run(environments: Path, peer: Peer, tmp_path: Path):
    results = tmp_path / "results"
    done = collectives(
        *("--environments", str(environments), "--backends", f"ring,{peer.name}", "--sizes", "4KiB,256KiB"),
        *("--ranks", "2,4", "--launches", "1", "--budget", "10s", "--results", str(results), "--json"),
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    for backend in ("ring", peer.name, "memory", "unsynchronised"):
        for size in (4 * KIB, 256 * KIB):
            rates = [
                row["algbw_gb_per_second"]
                for row in said["rows"]
                if (row["backend"], row["message_bytes"], row["num_ranks"], row["mode"])
                == (backend, size, 2, "hot")
            ]
            assert rates, (backend, size)
            assert min(rates) > 0
    assert {row["backend"] for row in said["rows"] if row["num_ranks"] == 4} == {"ring", peer.name}
    assert not [row["failure"] for row in said["rows"] if row["failure"]]

    (folder,) = (results / "collectives").iterdir()
    for name in ("collectives.csv", "collectives-2r.png", "collectives-2r.pdf", "collectives-4r.svg"):
        assert (folder / name).stat().st_size > 0
    records = [folder / "campaign.json", *(folder / "launches").iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in records} == {0o600}
    for path in records:
        assert redact(path.read_text()) == path.read_text()  # no home folder, no user's name

    again = collectives("report", "--results", str(results), "--json")
    assert json.loads(again.stdout) == said


def test_a_settings_variables_reach_the_library(environments: Path, peer: Peer, tmp_path: Path):
    """Thread levels are what the library says it gives."""
    place = place_of(peer.name, environments)
    for asked in ("single", "multiple"):
        (tmp_path / asked).mkdir()
        _, lines = program(place, tmp_path / asked, **{"thread-level": asked})
        assert lines[0]["thread_level"] == asked


def test_every_call_of_every_rank_is_there(environments: Path, peer: Peer, tmp_path: Path):
    options = {"operations": "mpi,ring,ring-shared,stream", "modes": "hot,fresh,cold", "cold-bytes": "65536"}
    done, lines = program(place_of(peer.name, environments), tmp_path, **options)
    assert done.returncode == 0, done.stderr
    blocks = [line for line in lines if line["kind"] == "block"]
    assert {(block["operation"], block["mode"]) for block in blocks} == {
        (operation, mode)
        for operation in options["operations"].split(",")
        for mode in ("hot", "fresh", "cold")
    }
    for block in blocks:
        assert len(block["nanoseconds"]) == 1
        assert len(block["nanoseconds"][0]) == len(block["spread_nanoseconds"]) > 0
    assert lines[-1] == {"kind": "end"}


def test_a_fixed_number_of_calls(environments: Path, peer: Peer, tmp_path: Path):
    options = {"operations": "mpi-copy", "volume": str(10 * 4096), "barrier": "mpi", "sizes": "4096,8192"}
    _, lines = program(place_of(peer.name, environments), tmp_path, **options)
    calls = {
        line["message_bytes"]: len(line["spread_nanoseconds"]) for line in lines if line["kind"] == "block"
    }
    assert calls == {4096: 10, 8192: 5}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"operations": "sing"}, "no operation sing"),
        ({"colour": "red"}, "no option --colour"),
        ({"flags": "/nowhere/flags"}, "cannot open /nowhere/flags"),
        ({"output": "/nowhere/output"}, "cannot write /nowhere/output"),
    ],
)
def test_a_mistake_ends_it_at_once(
    environments: Path, peer: Peer, tmp_path: Path, options: dict[str, str], expected: str
):
    done, _ = program(place_of(peer.name, environments), tmp_path, **options)
    assert done.returncode != 0
    assert re.search(f"allreduce benchmark: .*{expected}", done.stderr)
