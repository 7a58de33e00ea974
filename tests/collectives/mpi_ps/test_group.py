"""Groups of workers that step together, without MPI."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.algorithms.downpour import Options
from dlscale.collectives.backend import Setup
from dlscale.collectives.mpi_ps.group import Group
from dlscale.collectives.mpi_ps.messages import Mailbox


def test_workers_are_cut_into_groups_of_about_one_size():
    assert Options(groups=2).turns(5) == [range(2), range(2, 5)]
    assert Options(groups=1).turns(3) == [range(3)]
    assert Options().turns(2) == Options(groups=2).turns(2) == [range(1), range(1, 2)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"groups": -1}, "groups of algorithm downpour is -1; give 0 or more"),
        ({"groups": 2, "push_every": 2}, "leave them out"),
        ({"groups": 4}, "is 4 on 3 ranks: more groups than workers; give at most 3"),
    ],
)
def test_groups_that_make_no_sense_are_refused(options, said):
    with pytest.raises(UsageError, match=said):
        Options(**options).check_setup(Setup(framework="torch", num_ranks=3, num_servers=1))


def test_a_worker_that_died_is_named_to_its_group(monkeypatch):
    fake = SimpleNamespace(ANY_SOURCE=-1, Status=None, BYTE=None, Exception=OSError)
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=fake))
    watch = SimpleNamespace(is_gone=lambda rank: rank == 5, gone=lambda: {5: 77})
    never = SimpleNamespace(Test=lambda: False)
    communicator = SimpleNamespace(Get_rank=lambda: 0, Ibcast=lambda _: never, Ireduce=lambda *_: never)
    group = Group(communicator, Mailbox(None, watch), [3, 4, 5])
    buffer = np.zeros(2, np.float32)
    for collective in (group.share, group.mean, group.agree):
        with pytest.raises(RuntimeError, match=r"worker 5 \(process 77\) died, and the others of its group"):
            collective(buffer if collective != group.agree else True)
