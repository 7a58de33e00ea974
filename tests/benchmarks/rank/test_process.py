"""Which rank a process is, as each launcher says it, and that a launcher without a word of it is refused."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS
from dlscale.benchmarks.rank import process

NAMES = {name for row in LAUNCHERS.values() for name in (*row.ranks, *row.local_ranks)}


@pytest.fixture(autouse=True)
def outside_of_launchers(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "local"),
    [
        ({"PMI_RANK": "5", "MPI_LOCALRANKID": "1"}, 1),
        ({"PALS_RANKID": "5", "PALS_LOCAL_RANKID": "1", "PMI_RANK": "5", "PMI_LOCAL_RANK": "1"}, 1),
        ({"PALS_RANKID": "5", "PALS_LOCAL_RANKID": "1", "PMIX_RANK": "5"}, 1),
        # A Flux instance that PALS or srun started hands PALS's variables on, of its own process.
        ({"FLUX_TASK_RANK": "5", "FLUX_TASK_LOCAL_ID": "1", "PALS_RANKID": "0", "PALS_LOCAL_RANKID": "0"}, 1),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1"}, 1),
        ({"ALPS_APP_PE": "5"}, 0),
    ],
)
def test_a_rank_is_what_its_launcher_says(monkeypatch, variables, local):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    process.require_local_rank(4)
    assert (process.launched_rank(), process.local_rank()) == (5, local)


def test_without_a_launchers_variables_ranks_are_not_taken_for_the_first_of_their_node(monkeypatch):
    process.require_local_rank(1)
    monkeypatch.setenv("PMI_RANK", "1")  # where a launcher's own row has more to say
    with pytest.raises(UsageError, match=r"which of 2 ranks of its node it is .*MPI_LOCALRANKID.*PALS_LOCAL"):
        process.require_local_rank(2)
    monkeypatch.delenv("PMI_RANK")
    with pytest.raises(
        UsageError, match=r"told this process its rank .*PALS_RANKID.*start it with one of: torchrun, mpiexec"
    ):
        process.launched_rank()
