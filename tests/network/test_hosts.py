"""Ranks on hosts of this machine that are network namespaces (`hosts`), joined by slow links.

Ranks see the processes of their host only, and end with mpiexec however it ends.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dlscale.base.launchers import LAUNCHERS, Start
from tests.network.hosts import WITH_PARENT, addresses

NUM_HOSTS, RANKS_PER_HOST = 4, 2
LIMIT_SECONDS = 100
TOP = Path(__file__).parents[2]
# Without these UCX sees that the hosts are one, and takes shared memory: the links carry nothing then.
OVER_TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "all"}

pytestmark = [
    pytest.mark.requires("mpiexec", "hydra", "namespaces"),
    pytest.mark.timeout(LIMIT_SECONDS + 20),
    pytest.mark.nightly,
]

ABOUT_A_RANK = """
import socket, time
from mpi4py import MPI
import numpy as np
world = MPI.COMM_WORLD
values = np.ones(2**21, np.float32)
world.Barrier()
begin = time.perf_counter()
world.Allreduce(MPI.IN_PLACE, values)
seconds = world.allreduce(time.perf_counter() - begin, MPI.MAX)
node = world.Split_type(MPI.COMM_TYPE_SHARED)
told = world.gather((socket.gethostname(), node.Get_size(), float(values.max())))
if world.Get_rank() == 0:
    print(repr((told, seconds)))
"""


def run_on_hosts(*command, ranks_per_host=RANKS_PER_HOST, variables=None):
    """What ranks of a Python program said, host by host, with messages over TCP."""
    full = [*WITH_PARENT, sys.executable, "-m", "tests.network.hosts", str(NUM_HOSTS)]
    full += [
        str(Path(sys.prefix) / "bin" / "mpiexec"),
        "-hosts",
        ",".join(addresses(NUM_HOSTS)),
        "-ppn",
        str(ranks_per_host),
    ]
    full += ["-n", str(ranks_per_host * NUM_HOSTS), sys.executable, *command]
    with subprocess.Popen(
        full,
        cwd=TOP,
        env={**os.environ, **OVER_TCP, **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said
    return said


def test_ranks_are_apart_and_talk_over_the_links():
    told, seconds = eval(run_on_hosts("-c", ABOUT_A_RANK))  # noqa: S307  our own words
    assert told == [(f"h{host}", 2, 8.0) for host in (1, 1, 2, 2, 3, 3, 4, 4)]
    # Every host has to send 3/4 of 8 MiB twice, at 0.125 GB/s.
    assert seconds > 0.08, "the links are not slow, or carry nothing"


@pytest.mark.requires("ring")
def test_the_ring_between_hosts_does_what_it_does_between_nodes_of_one(tmp_path):
    """By every schedule, and where ranks disagree."""
    names = ("ring.py::test_any_switch_points_give_the_right_sums", "ring_properties.py")
    run_on_hosts(
        str(TOP / "tests/mpi/rank_pytest.py"),
        str(tmp_path),
        *(f"tests/contract/test_{name}" for name in names),
        *("-k", "not order_of_rank", "-p", "no:cacheprovider"),  # of one node
        ranks_per_host=1,
        variables={"DLSCALE_UNDER_MPIEXEC": str(NUM_HOSTS)},
    )


AGENT = "import os, sys; os.environ['PET_NODE_RANK'] = os.environ['PMI_RANK']; os.execv(sys.argv[1], sys.argv[1:])"
OF_THE_PLANE = """
import os, socket, sys
from pathlib import Path
from dlscale.collectives.control import control_plane
plane = control_plane(Path(sys.argv[1]))
world = plane.meet(8)
told = world.gather((socket.gethostname(), plane.rank, world.allreduce(plane.rank)))
world.Barrier()
if told:
    print(repr(told), flush=True)
os._exit(0)  # as ranks of a launch do
"""


def test_ranks_of_torchrun_meet_at_the_first_host(tmp_path):
    """mpiexec stands in for srun, which starts an agent on every host."""
    start = Start(
        nodes=addresses(NUM_HOSTS),
        num_ranks=RANKS_PER_HOST * NUM_HOSTS,
        ranks_per_node=RANKS_PER_HOST,
        cpus_per_rank=1,
        variables={},
        program=(sys.executable, "-P", "-c", OF_THE_PLANE, str(tmp_path)),
        folder=str(tmp_path),
    )
    line = LAUNCHERS["torchrun"].command(start)
    said = run_on_hosts("-c", AGENT, *line[line.index("agent") + 1 :], ranks_per_host=1)
    (told,) = [line for line in said.splitlines() if line.startswith("[(")]
    assert eval(told) == [(f"h{1 + rank // 2}", rank, 28) for rank in range(8)]  # noqa: S307  our own words
