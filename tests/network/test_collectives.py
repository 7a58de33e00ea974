"""A launch of the message-size benchmark between two emulated hosts: one driver, one loop, a common start over MPI."""

import sys
from pathlib import Path

import pytest

from dlscale.benchmarks.launch.environment import check_mpi, probe
from dlscale.benchmarks.launch.hosts import addresses
from dlscale.benchmarks.message_sizes.cluster import Cluster
from dlscale.benchmarks.message_sizes.launch import LaunchOrder
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting, Place
from dlscale.benchmarks.message_sizes.together import MEMORY, run_together
from dlscale.benchmarks.systems.system import Installation, load_system

pytestmark = [
    pytest.mark.requires("mpiexec", "ring", "hydra", "namespaces"),
    pytest.mark.timeout(180),
    pytest.mark.nightly,
]


def test_two_hosts_start_together_and_say_how_far_apart(tmp_path: Path):
    here = Installation(
        name="current",
        prefix=Path(sys.prefix),
        python=Path(sys.executable),
        mpiexec=Path(sys.prefix) / "bin" / "mpiexec",
        mpi="detect",
        variables={},
    )
    report = probe(here)
    cluster = Cluster(
        system=load_system("emulated-4"),
        installation=here,
        flavour=check_mpi(here, report),
        report=report,
        nodes=addresses(2),
        ranks_per_node=2,
        folder=tmp_path,
    )
    setting = PeerSetting(name="default", default=True, thread_level="multiple")
    order = LaunchOrder(
        purpose="measured",
        block=0,
        peer=Peer(name="ring", title="ring", kind="ring", settings=[setting]),
        setting=setting,
        num_ranks=4,
        sizes=(4096,),
        operations=("ring", "ring:reduce_scatter", "ring:broadcast"),
        seconds=3.0,
        limit_seconds=100,
    )
    (launch,) = run_together([order], lambda _: Place(tmp_path), position=0, cpus=[0, 1], cluster=cluster)
    assert not launch.failure, launch.log_tail
    assert (launch.num_ranks, launch.num_nodes) == (4, 2)
    assert cluster.wire_bytes_per_second == 25e6
    assert launch.barrier == "shared memory on a node, MPI between nodes"
    trips = [time for block in launch.samples for time in block.round_trip_nanoseconds]
    assert min(trips) > 5_000  # nothing in shared memory takes so long
    done = {block.collective for block in launch.samples} | {cell.collective for cell in launch.failures}
    assert done == {"allreduce", "reduce_scatter", "broadcast"}
    assert {cell.reason for cell in launch.failures} <= {"no time was left"}
    assert launch.samples
    for block in launch.samples:
        assert len(block.nanoseconds) == 4
        assert len(block.spread_nanoseconds) == len(block.nanoseconds[0])
        assert max(block.spread_nanoseconds) < 10**9  # of one clock
    assert not list(MEMORY.glob("dlscale-flags-*"))
    assert not list(tmp_path.glob("dlscale-collectives-*"))
