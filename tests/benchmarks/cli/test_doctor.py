"""What `dlscale doctor` says beside its table of backends."""

import pytest
from click.testing import CliRunner

from dlscale.benchmarks.cli import cli
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.probe import Probe, SeenGpus


@pytest.mark.slow
def test_it_runs_where_every_framework_is_installed():
    done = CliRunner().invoke(cli, ["doctor"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert any(line.split() == ["torch", "tensorflow"] for line in done.output.splitlines())
    # A remedy stands in its line once.
    reasons = [line.strip() for line in done.output.splitlines() if line.startswith("  (")]
    assert not [line for line in reasons if line.count("make horovod") > 1], reasons


def test_it_says_whose_gpus_it_looked_for_and_by_what_they_exchange(monkeypatch):
    seen = SeenGpus(
        framework="torch",
        version="2.11.0+rocm6.4",
        names=["AMD Instinct MI250X"],
        libraries={},
        backend="nccl",
        library="RCCL 2.22.3",
        without_tf32=[],
    )
    makers = {"NVIDIA": False, "AMD": True, "Intel": False}
    monkeypatch.setattr("dlscale.benchmarks.cli.doctor.gpu_makers", lambda: makers)
    probe = Probe(
        versions={"torch": "2.11.0"},
        mpi="mpich",
        mpi_problem=None,
        problems={},
        frameworks=["torch"],
        commit="c",
        node={"num_cores": 8, "cpu_model": "EPYC", "memory_gib": 512},
    )
    seeing = probe.model_copy(update={"gpus": [seen]})
    monkeypatch.setattr(
        environment, "probe", lambda _, question: seeing if "torch" in question.gpus else probe
    )
    monkeypatch.setattr(environment, "mpi_threads", lambda _: "multiple")
    lines = CliRunner().invoke(cli, ["doctor"], catch_exceptions=False).output.splitlines()
    assert "GPUs of this machine: NVIDIA none, AMD yes, Intel none" in lines
    assert "GPUs visible to torch: AMD Instinct MI250X; between them RCCL 2.22.3" in lines
    assert "  xccl: never tried: no GPU of Intel has run it yet" in lines
