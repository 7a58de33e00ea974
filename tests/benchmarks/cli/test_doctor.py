"""What `dlscale doctor` says."""

import json

import pytest

from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.probe import Probe, SeenGpus


@pytest.mark.slow
def test_it_runs_where_every_framework_is_installed(dlscale):
    status, out, _ = dlscale("doctor")
    assert status == 0
    assert any(line.split() == ["torch", "tensorflow"] for line in out.splitlines())
    assert not [line for line in out.splitlines() if line.count("make horovod") > 1], (
        "a remedy stands there once"
    )


@pytest.fixture
def answered(monkeypatch):
    """The environment's Python answers that it has torch over MPICH on a node with GPUs of AMD, and no grpcio."""
    seen = SeenGpus(
        framework="torch",
        version="2.11.0+rocm6.4",
        names=["AMD Instinct MI250X"],
        libraries={},
        backend="nccl",
        library="RCCL 2.22.3",
    )
    monkeypatch.setattr("dlscale.benchmarks.cli.doctor.shows_gpus", lambda: True)
    probe = Probe(
        versions={"torch": "2.11.0"},
        mpi="mpich",
        mpi_problem=None,
        problems={
            "grpc_ps/torch": "needs grpcio",
            "grpc_ps/tensorflow": "tensorflow is not installed",
            "tf_collective/tensorflow": "tensorflow is not installed",
            "mpi/tensorflow": "tensorflow is not installed",
        },
        frameworks=["torch"],
        commit="c",
        node={"num_cores": 8, "cpu_model": "EPYC", "memory_gib": 512},
        gpus=[seen],
    )
    monkeypatch.setattr(environment, "probe", lambda _, question: probe if "torch" in question.gpus else None)


@pytest.mark.usefixtures("answered")
def test_it_says_which_gpus_there_are_and_by_what_they_exchange(dlscale):
    lines = dlscale("doctor")[1].splitlines()
    assert "GPUs visible to torch: AMD Instinct MI250X; between them RCCL 2.22.3" in lines


@pytest.mark.usefixtures("answered")
def test_what_is_required_and_missing_is_the_exit_status(dlscale):
    assert dlscale("doctor", "--require", "ring,mpi")[0] == 0
    status, out, err = dlscale("doctor", "--json", "--require", "grpc_ps,tf_collective,mpi")
    rows = {(row["backend"], row["framework"]): row for row in json.loads(out)["rows"]}
    assert status == 1
    assert [line.partition(" is ")[0] for line in err.splitlines()] == ["grpc_ps", "tf_collective"]
    assert rows["grpc_ps", "torch"]["usable"] is False
    assert "tensorflow" in rows["mpi", "tensorflow"]["install"]
