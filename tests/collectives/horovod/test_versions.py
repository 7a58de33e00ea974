"""Whether Horovod was built against what is installed now, and what it and oneCCL are told when they start."""

import json
import os
from importlib import metadata

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives import Setup, check_setup, horovod
from dlscale.collectives.horovod import Options, other_versions
from dlscale.collectives.registry import unavailable_because


def note(tmp_path, built_against):
    path = tmp_path / "horovod.json"
    path.write_text(json.dumps({"built_against": built_against}))
    return path


def test_the_same_versions_are_no_problem(tmp_path):
    assert other_versions(note(tmp_path, {"numpy": metadata.version("numpy")})) is None


def test_another_version_is_named_beside_the_one_that_is_here(tmp_path):
    now = metadata.version("numpy")
    assert other_versions(note(tmp_path, {"numpy": "0.1"})) == f"numpy 0.1, and here is {now}"
    assert other_versions(note(tmp_path, {"nonsense-package": "1"})) == "nonsense-package 1, and here is none"


def test_somebody_elses_horovod_has_no_note(tmp_path):
    assert other_versions(tmp_path / "nothing.json") is None
    (tmp_path / "horovod.json").write_text("[]")
    assert other_versions(tmp_path / "horovod.json") is None


def test_only_what_was_asked_for_is_told_to_horovod():
    assert Options().variables() == {"HOROVOD_CPU_OPERATIONS": "MPI"}
    told = Options(operations="ccl", fusion_threshold_mib=0.5, cycle_time_ms=2, cache_capacity=0).variables()
    assert told == {
        "HOROVOD_CPU_OPERATIONS": "CCL",
        "HOROVOD_FUSION_THRESHOLD": "524288",
        "HOROVOD_CYCLE_TIME": "2",
        "HOROVOD_CACHE_CAPACITY": "0",
    }


class BuiltForMpi:
    mpi_built, ccl_built, nccl_built = (
        staticmethod(lambda there=there: there) for there in (True, False, False)
    )


def test_operations_that_it_was_not_built_for_are_known_before_ranks_start(monkeypatch):
    monkeypatch.setattr(horovod, "load", lambda _: BuiltForMpi)
    assert unavailable_because("horovod", "torch") is None
    assert unavailable_because("horovod", "torch", {"operations": "mpi"}) is None
    reason = unavailable_because("horovod", "torch", {"operations": "ccl"})
    assert reason.startswith("Horovod was asked for operations ccl, but was built for mpi; make horovod")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ccl_workers": 2}, "asked for operations mpi"),
        ({"operations": "nccl", "ccl_workers_share": True}, "asked for operations nccl"),
        ({"operations": "ccl", "ccl_workers": -1}, "ccl_workers of backend horovod is -1"),
        ({"operations": "ccl", "ccl_workers_share": True}, "give ccl_workers"),
    ],
)
def test_oneccls_workers_are_oneccls(options, said):
    with pytest.raises(UsageError, match=said):
        Options(**options)


@pytest.mark.parametrize(
    ("workers", "share", "cores", "threads", "fits"),
    [
        (0, False, 2, 4, True),
        (1, False, 2, 2, False),
        (1, False, 2, 1, True),
        (2, False, 4, 3, False),
        (2, True, 2, 2, True),
        (3, True, 2, 2, False),
    ],
)
def test_oneccls_workers_leave_training_its_cores(workers, share, cores, threads, fits):
    options = {"operations": "ccl", "ccl_workers": workers, "ccl_workers_share": share}
    setup = Setup(framework="torch", num_ranks=2, cores_per_rank=cores, threads_per_rank=threads)
    if fits:
        check_setup("horovod", options, setup)
    else:
        with pytest.raises(UsageError, match=f"{workers} ccl_workers beside {threads} training threads"):
            check_setup("horovod", options, setup)


class Node:
    """The second of two ranks of a node, both bound to two cores."""

    def Get_rank(self):  # noqa: N802
        return 1

    def Split_type(self, _, key):  # noqa: N802
        assert key == 1
        return self

    def Free(self):  # noqa: N802
        pass

    def allgather(self, own):
        return [[2, 3][-len(own) :], own] if isinstance(own, list) else ["", own]


def test_oneccl_is_told_the_cores_of_all_ranks_of_a_node(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {6, 7, 4})
    monkeypatch.setattr(horovod, "_num_threads", lambda _: 2)
    told = horovod._worker_variables(Options(operations="ccl", ccl_workers=1), Node(), "torch")
    assert told == {"CCL_WORKER_COUNT": "1", "CCL_WORKER_OFFLOAD": "1", "CCL_WORKER_AFFINITY": "3,7"}
    with pytest.raises(UsageError, match="2 ccl_workers beside 2 training threads on the 3 cores"):
        horovod._worker_variables(Options(operations="ccl", ccl_workers=2), Node(), "torch")
