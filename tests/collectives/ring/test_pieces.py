"""How nodes are cut, on machines that are folders of files as the kernel has them."""

import os

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.ring.pieces import domain_of, num_numa_domains, piece_here


@pytest.fixture
def two_sockets(tmp_path):
    """8 CPUs on two sockets of two NUMA domains each, and a domain of memory alone."""
    for number, cpus in enumerate(["0-1", "2,3", "4-5", "6-7", ""]):
        (tmp_path / "node" / f"node{number}").mkdir(parents=True)
        (tmp_path / "node" / f"node{number}" / "cpulist").write_text(cpus + "\n")
    for cpu in range(8):
        topology = tmp_path / "cpu" / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{cpu // 4}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("cpus", "numa", "socket"),
    [({0}, 0, 0), ({2, 3}, 1, 0), ({5}, 2, 1), ({1, 2}, None, 0), ({3, 4}, None, None)],
)
def test_the_domain_that_a_rank_is_bound_to(two_sockets, cpus, numa, socket):
    assert domain_of(cpus, "numa", two_sockets) == numa
    assert domain_of(cpus, "socket", two_sockets) == socket


def test_domains_without_cpus_do_not_count(two_sockets):
    assert num_numa_domains(two_sockets) == 4


def test_a_kernel_that_knows_no_domains_has_one(tmp_path):
    assert num_numa_domains(tmp_path) == 1
    assert domain_of({0, 1}, "numa", tmp_path) == 0


class OneMachine:
    """Rank `rank` of one machine's, bound to these domains, as mpi4py's communicator."""

    def __init__(self, rank, domains=()):
        self._rank, self._domains = rank, list(domains)

    def Split_type(self, _kind, key):  # noqa: N802
        assert key == self._rank
        return self

    def Free(self):  # noqa: N802
        pass

    def Get_rank(self):  # noqa: N802
        return self._rank

    def bcast(self, _value):
        return 0

    def allgather(self, value):
        assert value == self._domains[self._rank]
        return self._domains


def test_ranks_of_a_domain_are_a_piece(two_sockets, monkeypatch):
    bound = [{0}, {1}, {6}, {7}]
    found = []
    for rank in range(4):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, rank=rank: bound[rank])
        found.append(piece_here(OneMachine(rank, [0, 0, 3, 3]), domains="numa", system=two_sockets))
    assert found == [(0, 0), (0, 0), (0, 3), (0, 3)]


def test_a_rank_that_is_bound_to_no_domain_is_named(two_sockets, monkeypatch):
    bound = [{0}, set(range(8))]
    for rank in range(2):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, rank=rank: bound[rank])
        with pytest.raises(UsageError, match="rank 1 may run on CPUs of several"):
            piece_here(OneMachine(rank, [0, None]), domains="numa", system=two_sockets)


def test_every_so_many_ranks_are_a_piece():
    assert [piece_here(OneMachine(rank), ranks_per_node=2)[1] for rank in range(5)] == [0, 0, 1, 1, 2]
