"""A launcher of another MPI starts processes that are each alone in a world of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.control.by_mpi import require_same_world


@pytest.mark.parametrize(
    ("num_ranks", "loaded", "environment"),
    [
        (1, "MPICH", {}),
        (1, "MPICH", {"PMI_SIZE": "1"}),
        (4, "MPICH", {"PMI_SIZE": "4"}),
        (4, "Open MPI", {"OMPI_COMM_WORLD_SIZE": "4"}),
        # a launch of one inside a larger one of another MPI
        (1, "MPICH", {"PMI_SIZE": "1", "OMPI_COMM_WORLD_SIZE": "2"}),
        (1, "Open MPI", {"PMI_SIZE": "2", "OMPI_COMM_WORLD_SIZE": "1"}),
        # hydra starts its proxies by srun
        (4, "MPICH", {"PMI_SIZE": "4", "SLURM_STEP_NUM_TASKS": "2"}),
        (1, "MPICH", {"SLURM_NTASKS": "8"}),  # in a batch script, beside any step
        (2, "MPICH", {"PMI_SIZE": "2", "WORLD_SIZE": "2"}),  # as scripts for DistributedDataParallel set it
        (2, "MPICH", {"PMI_SIZE": "2", "WORLD_SIZE": "8"}),
        (4, "MPICH", {"SLURM_STEP_NUM_TASKS": "2"}),  # one of the parts of a step
        (1, "MPICH", {"PMI_SIZE": "", "WORLD_SIZE": "many"}),
    ],
)
def test_a_world_as_large_as_the_launch_passes(num_ranks, loaded, environment):
    require_same_world(num_ranks=num_ranks, loaded=loaded, environment=environment)


@pytest.mark.parametrize(
    ("loaded", "environment"),
    [
        ("MPICH", {"OMPI_COMM_WORLD_SIZE": "2"}),
        ("MPICH", {"PMI_SIZE": "2"}),
        ("MPICH", {"SLURM_STEP_NUM_TASKS": "2"}),
        ("Open MPI", {"PMI_SIZE": "2"}),
        ("Open MPI", {"OMPI_COMM_WORLD_SIZE": "2", "PMI_SIZE": "1"}),
        ("MPICH", {"WORLD_SIZE": "2"}),
        ("MPICH", {"JSM_NAMESPACE_SIZE": "2"}),
    ],
)
def test_a_world_of_one_in_a_larger_launch_is_refused(loaded, environment):
    with pytest.raises(
        UsageError, match=rf"started 2 processes \(\w+\).* than {loaded}, which mpi4py loaded"
    ):
        require_same_world(num_ranks=1, loaded=loaded, environment=environment)


def test_a_world_smaller_than_its_own_launch_is_refused():
    with pytest.raises(UsageError, match=r"started 4 processes \(PMI_SIZE\), but in MPI there are 2"):
        require_same_world(num_ranks=2, loaded="MPICH", environment={"PMI_SIZE": "4"})


@pytest.mark.parametrize("around", [{}, {"PMI_SIZE": "1"}, {"SLURM_STEP_NUM_TASKS": "1"}])
def test_processes_of_torchrun_are_no_ranks(around):
    environment = {**around, "TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2"}
    with pytest.raises(UsageError, match=r"torchrun started 2 processes \(WORLD_SIZE\).*mpiexec -n 2 python"):
        require_same_world(num_ranks=1, loaded="MPICH", environment=environment)
    require_same_world(num_ranks=2, loaded="MPICH", environment=environment)


def test_a_worker_knows_how_many_it_is_one_of():
    with pytest.raises(UsageError, match=r"asked for 2 ranks, but MPI sees 1: .* same environment"):
        require_same_world(num_ranks=1, loaded="MPICH", environment={}, asked=2)
    with pytest.raises(UsageError, match=r"but MPI sees 1 \(the launcher says 2: OMPI_COMM_WORLD_SIZE\)"):
        require_same_world(num_ranks=1, loaded="MPICH", environment={"OMPI_COMM_WORLD_SIZE": "2"}, asked=2)
    require_same_world(num_ranks=2, loaded="MPICH", environment={"PMI_SIZE": "2"}, asked=2)


ENTRIES = {
    "plain": "ring.join(MPI.COMM_WORLD)",
    "torch hook": "ring.torch_hook(ring.join(MPI.COMM_WORLD))",
}
ENTER = """
from mpi4py import MPI
from dlscale.base.errors import UsageError
from dlscale.collectives import ring
for entry in {entries!r}:
    try:
        exec(entry)
    except UsageError as error:
        print("refused:", error)
"""


@pytest.mark.slow
@pytest.mark.requires("mpiexec", "ring")
def test_every_entry_of_the_ring_refuses_processes_of_torchrun():
    """TensorFlow's and Keras's entries take what `join` returns."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI"))}
    of_torchrun = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "RANK": "0"}
    done = subprocess.run(
        [sys.executable, "-c", ENTER.format(entries=list(ENTRIES.values()))],
        capture_output=True,
        text=True,
        check=False,
        env=environment | of_torchrun,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(ENTRIES), done.stderr
    assert all("refused: torchrun started 2 processes" in line for line in lines)


@pytest.mark.nightly
@pytest.mark.requires("mpiexec", "ring", "openmpi")
def test_ranks_of_open_mpi_under_another_mpiexec_refuse_to_join(launch, open_mpi):
    if open_mpi:
        pytest.skip("needs the mpiexec of MPICH: run from .venv")
    ranks = launch("join_alone", python=str(Path(".venv-openmpi/bin/python").absolute()))
    for error in ranks.wait_for("refused"):
        assert error["kind"] == "UsageError"
        assert "the launcher started 2 processes (PMI_SIZE)" in error["text"]
        assert "than Open MPI, which mpi4py loaded" in error["text"]
