"""Launches on several nodes: the system's launcher and environment, and who may take part."""

from dataclasses import replace
from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch.probe import Probe
from dlscale.benchmarks.message_sizes.launch import START, LaunchOrder, command
from dlscale.benchmarks.message_sizes.machine import Cluster
from dlscale.benchmarks.systems.start import Installation
from dlscale.benchmarks.systems.system import load_system


@pytest.fixture
def report() -> Probe:
    return Probe(
        versions={"mpi": "MPICH 4.3.0"},
        mpi="mpich",
        mpi_problem=None,
        problems={"horovod/torch": "not built"},
        frameworks=["torch"],
        commit="c",
        node={},
    )


@pytest.fixture
def cluster(report: Probe, tmp_path: Path) -> Cluster:
    return Cluster(
        system=load_system("perlmutter"),
        installation=Installation(
            name="site",
            prefix=Path("/env"),
            python=Path("/env/bin/python"),
            mpiexec=Path("/usr/bin/srun"),
            mpi="mpich",
            variables={"GLOO_SOCKET_IFNAME": "hsn0"},
        ),
        flavour="mpich",
        report=report,
        nodes=("nid001", "nid002", "nid003"),
        ranks_per_node=8,
        folder=tmp_path,
        cpus=[0, 1],
    )


def test_the_systems_launcher_starts_the_same_driver(cluster: Cluster, order: LaunchOrder):
    spanning = replace(order, num_ranks=16)
    words = command(spanning, cluster, Path("/spool"), Path("/f"))
    line = " ".join(words)
    assert line.startswith("env GLOO_SOCKET_IFNAME=hsn0 CUDA_VISIBLE_DEVICES=3,2,1,0 ")
    assert (
        " srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=16 --nodelist=nid[001-002] " in line
    )
    assert f"/env/bin/python -P {START} --cpus 0,1 --num-ranks 16 --ranks-per-node 8 --backend mpi " in line
    assert cluster.facts()["wire_bytes_per_second"] == 100e9


def test_libraries_are_the_environments(cluster: Cluster):
    peers = replace(cluster, allow_open_ports=True).peers(["all"], [])
    assert [peer.title for peer in peers] == ["ring", "MPICH 4.3.0", "Gloo (torch.distributed)", "Horovod"]
    assert [cluster.state(peer)[0] for peer in peers] == [None, None, None, "not built"]


def test_nothing_opens_ports_unless_allowed(cluster: Cluster):
    assert [peer.name for peer in cluster.peers(["all"], [])] == ["ring", "mpi", "horovod"]
    with pytest.raises(UsageError, match="allow_open_ports"):
        cluster.peers(["gloo"], [])
    with pytest.raises(UsageError, match="no backend 'openmpi' between nodes"):
        cluster.peers(["openmpi"], [])
