"""A launcher of another MPI starts processes that are each alone in a world of their own."""

from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.ring.mpi_match import require_same_world


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
    ],
)
def test_a_world_of_one_in_a_larger_launch_is_refused(loaded, environment):
    with pytest.raises(
        UsageError, match=rf"started 2 processes \(\w+\).* than {loaded}, which mpi4py loaded"
    ):
        require_same_world(num_ranks=1, loaded=loaded, environment=environment)


@pytest.mark.requires("mpiexec", "ring", "openmpi")
def test_ranks_of_open_mpi_under_another_mpiexec_refuse_to_join(launch, open_mpi):
    if open_mpi:
        pytest.skip("needs the mpiexec of MPICH: run from .venv")
    ranks = launch("join_alone", python=str(Path(".venv-openmpi/bin/python").absolute()))
    for error in ranks.wait_for("refused"):
        assert error["kind"] == "UsageError"
        assert "the launcher started 2 processes (PMI_SIZE)" in error["text"]
        assert "than Open MPI, which mpi4py loaded" in error["text"]
