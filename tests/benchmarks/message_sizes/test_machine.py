"""Command lines as they are started, on this node and on nodes of a job, and which libraries may take part there."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch.probe import Probe
from dlscale.benchmarks.message_sizes import machine as machines
from dlscale.benchmarks.message_sizes.launch import START
from dlscale.benchmarks.message_sizes.machine import Machine, nodes_of_job
from dlscale.benchmarks.message_sizes.peers import Peer, load_peers
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch
from dlscale.benchmarks.systems.start import Installation
from dlscale.benchmarks.systems.system import System, load_system

from .conftest import machine_of


def test_a_setting_is_its_variables(order: MessageSizeLaunch, machine: Machine):
    own = order.model_copy(update={"variables": {"MPIR_CVAR_CH4_CMA_ENABLE": "1"}})
    place = machine.libraries["mpich"].installation.prefix / "bin"
    assert " ".join(machine.command(own, ["-P", "/folder"])) == (
        f"{place}/mpiexec -launcher fork -rmk user -n 2 -bind-to none "
        f"-genv OMP_NUM_THREADS 1 -genv MPIR_CVAR_CH4_CMA_ENABLE 1 {place}/python -P /folder"
    )


def test_oversubscribed_ranks_of_open_mpi(
    order: MessageSizeLaunch, peer: Peer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    machine = machine_of(peer.model_copy(update={"mpi": "openmpi"}))
    words = " ".join(machine.command(order.model_copy(update={"num_ranks": 4}), []))
    assert "mpiexec -n 4 --map-by slot:OVERSUBSCRIBE --bind-to none" in words


def test_every_peer_has_its_default_first_and_no_setting_twice():
    for peer in load_peers():
        names = [setting.name for setting in peer.settings]
        assert len(names) == len(set(names)), peer.name
        assert names[0] == "default", peer.name
        meanings = [(setting.thread_level, *sorted(setting.variables.items())) for setting in peer.settings]
        assert len(meanings) == len(set(meanings)), peer.name


def test_a_rank_needs_numpy_and_nothing_else(tmp_path: Path):
    """A library's environment has no dlscale and none of its dependencies."""
    for folder in Path(np.__file__).parents[1].glob("numpy*"):
        (tmp_path / folder.name).symlink_to(folder)
    done = subprocess.run(
        [sys.executable, "-S", str(START), str(tmp_path)],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "collectives benchmark: FileNotFoundError" in done.stderr
    assert "order.json" in done.stderr


@pytest.fixture
def perlmutter(monkeypatch: pytest.MonkeyPatch) -> System:
    """A job of three of its nodes, whose environment has no Horovod."""
    installation = Installation(
        name="site",
        prefix=Path("/env"),
        python=Path("/env/bin/python"),
        mpiexec=Path("/usr/bin/srun"),
        mpi="mpich",
        variables={"GLOO_SOCKET_IFNAME": "hsn0"},
    )
    report = Probe(
        versions={"mpi": "MPICH 4.3.0"},
        mpi="mpich",
        mpi_problem=None,
        problems={"horovod/torch": "not built"},
        frameworks=["torch"],
        commit="c",
        node={},
    )
    system = load_system("perlmutter")
    monkeypatch.setattr(machines, "find_installation", lambda *_: installation)
    monkeypatch.setattr(machines, "probe", lambda *_: report)
    monkeypatch.setattr(machines, "job_nodes", lambda *_, **__: ("nid001", "nid002", "nid003"))
    monkeypatch.setattr(machines, "load_system", lambda _: system)
    monkeypatch.setattr(machines, "usable_cpus", lambda: [0, 1])
    return system


def test_nodes_of_a_job(perlmutter: System, order: MessageSizeLaunch):
    machine = nodes_of_job("perlmutter", counts=[2, 3], names=["all"])
    assert [(name, found.state.unusable) for name, found in machine.libraries.items()] == [
        ("ring", None),
        ("mpi", None),
        ("horovod", "not built"),
    ]
    per_node = machine.ranks_per_node or 0
    spanning = order.model_copy(update={"backend": "mpi", "num_ranks": 2 * per_node, "num_nodes": 2})
    line = " ".join(machine.command(spanning, ["-P", str(START), "/spool"]))
    assert line.startswith("env ")
    assert "GLOO_SOCKET_IFNAME=hsn0" in line
    assert f" srun --nodes=2 --ntasks={2 * per_node} --ntasks-per-node={per_node} " in line
    assert " --nodelist=nid[001-002] " in line
    assert line.endswith(f"/env/bin/python -P {START} /spool")


def test_nothing_opens_ports_unless_the_system_allows_it(perlmutter: System, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UsageError, match="open_ports = true in"):
        nodes_of_job("perlmutter", counts=[2], names=["gloo"])
    with pytest.raises(UsageError, match="no backend 'openmpi'"):
        nodes_of_job("perlmutter", counts=[2], names=["openmpi"])
    allowing = perlmutter.model_copy(update={"open_ports": True})
    monkeypatch.setattr(machines, "load_system", lambda _: allowing)
    machine = nodes_of_job("perlmutter", counts=[2], names=["all", "nccl"])
    assert [*machine.libraries] == ["ring", "mpi", "gloo", "horovod", "nccl"]
