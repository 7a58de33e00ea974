"""A machine whose only library has a script of ours for an mpiexec."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dlscale.benchmarks.message_sizes import peers
from dlscale.benchmarks.message_sizes.machine import Found, Machine
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, PeerState
from dlscale.benchmarks.systems.system import load_system


@pytest.fixture
def peer() -> Peer:
    return Peer(
        name="mpich",
        title="MPICH",
        kind="mpi",
        packages=["mpich"],
        settings=[PeerSetting(name="default")],
    )


@pytest.fixture
def order() -> MessageSizeLaunch:
    return MessageSizeLaunch(
        block=1,
        backend="mpich",
        setting="default",
        variables={},
        thread_level="single",
        num_ranks=2,
        operations=["mpi"],
    )


@pytest.fixture
def machine(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(peers, "PEERS", tmp_path / ".peers")
    return machine_of(peer)


def machine_of(*peers: Peer) -> Machine:
    return Machine(
        system=load_system("local").model_copy(update={"launcher": "mpiexec"}),
        libraries={
            peer.name: Found(
                peer,
                peer.installation(),
                PeerState(name=peer.name, title=peer.title, versions={}, unusable=None),
            )
            for peer in peers
        },
        cpus=[0, 1],
    )


@pytest.fixture
def write_mpiexec(machine: Machine) -> Callable[[str], None]:
    """write_mpiexec(body): $folder is the launch's folder, $output the file that rank 0 would write there."""

    def write(body: str) -> None:
        path = machine.libraries["mpich"].installation.mpiexec
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\nfolder=${{@: -1}}\noutput=$folder/samples.jsonl\n{body}\n")
        path.chmod(0o755)

    return write
