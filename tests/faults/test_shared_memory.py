"""Memory that the ring's ranks share: too much is refused before it is taken, and closed memory by name."""

import shutil

import pytest

pytestmark = [pytest.mark.requires("mpiexec", "ring"), pytest.mark.timeout(180), pytest.mark.slow]


def test_more_than_there_is_memory_is_refused_before_it_is_taken(launch):
    ranks = launch("too_much")
    for error in ranks.wait_for("refused"):
        assert error["kind"] == "MemoryError"
        assert "KiB" in error["text"]
    ranks.wait_for("end")


def test_memory_that_others_cannot_open_is_an_error(launch):
    for error in launch("closed_to_others").wait_for("refused"):
        assert "opening another rank's memory through /proc: Permission denied" in error["text"]


@pytest.mark.requires("root")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare")
def test_ranks_in_process_namespaces_of_their_own_are_refused(launch, open_mpi):
    if open_mpi:
        pytest.skip("Open MPI 5 itself crashes there")
    around = ["unshare", "--pid", "--fork", "--mount", "--mount-proc"]
    for error in launch("join_alone", around=around).wait_for("refused"):
        assert "through /proc" in error["text"] or "another process namespace" in error["text"]
