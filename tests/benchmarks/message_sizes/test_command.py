"""Whole command lines, as they are started."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dlscale.benchmarks.message_sizes.launch import START, LaunchOrder, command
from dlscale.benchmarks.message_sizes.machine import ThisNode
from dlscale.benchmarks.message_sizes.peers import PeerSetting, Place, load_peers

from .conftest import write_mpiexec


def line(order: LaunchOrder) -> str:
    machine = ThisNode(cpus=[0, 1], environments=Path("/env"))
    return " ".join(command(order, machine, Path("/spool"), Path("/flags")))


def program(backend: str, operations: str, thread_level: str = "single") -> str:
    own = "--num-ranks 2 --ranks-per-node 2 "
    own += f"--backend {backend} --operations {operations} --thread-level {thread_level}"
    common = "--sizes 4096,8192 --seconds 1.50 --limit 66 --turns 1 --folder /spool --flags /flags"
    return f"/python -P {START} --cpus 0,1 {own} {common}"


CMA = PeerSetting(name="CMA", thread_level="multiple", variables={"MPIR_CVAR_CH4_CMA_ENABLE": "1"})
HYDRA = "/env/mpich/bin/mpiexec -launcher fork -rmk user -n 2 -bind-to none -genv OMP_NUM_THREADS 1"


def test_an_mpi_and_a_setting_which_is_its_variables(order: LaunchOrder):
    assert line(order) == f"{HYDRA} /env/mpich/bin{program('mpi', 'mpi,stream')}"
    assert line(replace(order, setting=CMA)) == (
        f"{HYDRA} -genv MPIR_CVAR_CH4_CMA_ENABLE 1 /env/mpich/bin{program('mpi', 'mpi,stream', 'multiple')}"
    )


def test_oversubscribed_ranks_of_open_mpi(order: LaunchOrder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    peer = order.peer.model_copy(update={"name": "openmpi"})
    words = line(replace(order, peer=peer, num_ranks=4))
    assert words.startswith("/env/openmpi/bin/mpiexec -n 4 ")
    assert "--bind-to none" in words
    assert "--map-by slot:OVERSUBSCRIBE" in words


@pytest.mark.parametrize("name", ["gloo", "horovod", "ring"])
def test_every_library_has_the_same_program(order: LaunchOrder, name: str):
    peer = order.peer.model_copy(update={"name": name, "kind": "ring" if name == "ring" else "torch"})
    assert line(replace(order, peer=peer, operations=[name])).endswith(program(name, name))


def test_the_rings_mpiexec_is_asked_whose_it_is(
    order: LaunchOrder, place: Place, monkeypatch: pytest.MonkeyPatch
):
    peer = order.peer.model_copy(update={"name": "ring", "kind": "ring"})
    monkeypatch.setattr(sys, "prefix", str(place.folder))
    write_mpiexec(place, "echo 'mpirun (Open MPI) 5.0.11'")
    assert " --bind-to none " in line(replace(order, peer=peer))
    write_mpiexec(place, "echo 'HYDRA build details:'")
    assert " -bind-to none " in line(replace(order, peer=peer))


def test_every_peer_has_a_default_and_no_setting_twice():
    for peer in load_peers():
        names = [setting.name for setting in peer.settings]
        assert len(names) == len(set(names)), peer.name
        assert any(setting.default for setting in peer.settings), peer.name
        meanings = [
            (setting.thread_level, tuple(sorted(setting.variables.items()))) for setting in peer.settings
        ]
        assert len(meanings) == len(set(meanings)), peer.name


def test_a_rank_needs_numpy_and_nothing_else(tmp_path: Path):
    """A library's environment has no dlscale and none of its dependencies."""
    for folder in Path(np.__file__).parents[1].glob("numpy*"):
        (tmp_path / folder.name).symlink_to(folder)
    done = subprocess.run(
        [sys.executable, "-S", str(START), "--help"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "--operations" in done.stdout, done.stderr
