"""Whether Horovod was built against what is installed now, and what it and oneCCL are told when they start."""

import json
from importlib import metadata

from dlscale.collectives import horovod
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
    told = Options(operations="ccl", fusion_threshold_mib=0.5, cycle_time_ms=2).variables()
    assert told == {
        "HOROVOD_CPU_OPERATIONS": "CCL",
        "HOROVOD_FUSION_THRESHOLD": "524288",
        "HOROVOD_CYCLE_TIME": "2",
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
