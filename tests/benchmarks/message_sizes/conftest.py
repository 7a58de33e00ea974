"""Peers whose mpiexec is a script of ours."""

from pathlib import Path

import pytest

from dlscale.benchmarks.message_sizes.launch import LaunchOrder
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting, Place

HEADER = '{"kind": "launch", "library": "MPICH 5", "thread_level": "single", "barrier": "shared"}'
BLOCK = (
    '{"kind": "block", "operation": "mpi", "message_bytes": 4096, "round": 0, "num_warmup": 5, '
    '"nanoseconds": [[1000, 1100], [1050, 1090]], "spread_nanoseconds": [10, 20], '
    '"round_trip_nanoseconds": [60, 65]}'
)
FAILURE = '{"kind": "failure", "operation": "mpi", "message_bytes": 4096, "reason": "wrong result"}'
END = '{"kind": "end"}'


@pytest.fixture
def peer() -> Peer:
    return Peer(
        name="mpich",
        title="MPICH",
        kind="mpi",
        packages=["mpich"],
        settings=[PeerSetting(name="default", default=True)],
    )


@pytest.fixture
def order(peer: Peer) -> LaunchOrder:
    return LaunchOrder(
        purpose="measured",
        block=1,
        peer=peer,
        setting=peer.settings[0],
        num_ranks=2,
        sizes=(4096, 8192),
        operations=("mpi", "stream"),
        seconds=1.5,
        limit_seconds=66,
    )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / ".peers" / "mpich")


def write_mpiexec(place: Place, body: str) -> None:
    """An mpiexec that does `body`; $output is the file that the program would write, in $folder."""
    place.mpiexec.parent.mkdir(parents=True, exist_ok=True)
    find = 'for word in "$@"; do [ "$last" = --folder ] && folder=$word; last=$word; done\n'
    find += "output=$folder/samples.jsonl\n"
    place.mpiexec.write_text(f"#!/bin/bash\n{find}{body}\n")
    place.mpiexec.chmod(0o755)
