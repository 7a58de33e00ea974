"""What `dlscale doctor` says beside its table of backends."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from dlscale.analysis.predict import simgrid_engine
from dlscale.benchmarks.cli import cli, doctor


def printed(capsys):
    installation = SimpleNamespace(name=".venv", variables={})
    node = {"num_cores": 2, "cpu_model": "a CPU", "memory_gib": 4}
    doctor._print(
        installation,
        SimpleNamespace(versions={}, node=node, frameworks=()),
        {},
        "make .venv",
        threads="multiple",
        visible=[],
    )
    return capsys.readouterr().out


def test_a_missing_simgrid_is_said_with_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setattr(simgrid_engine, "available", lambda: "not installed; apt-get install it")
    assert "SimGrid, for predictions: not installed; apt-get install it\n" in printed(capsys)


@pytest.mark.requires("simgrid")
def test_simgrid_has_a_version(capsys):
    assert f"SimGrid, for predictions: {simgrid_engine.SimGrid().version}\n" in printed(capsys)


def test_it_runs_where_every_framework_is_installed():
    """With nothing in its place: JAX, which has no GPUs here, must not stop it."""
    done = CliRunner().invoke(cli, ["doctor"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert any(line.split() == ["torch", "tensorflow", "jax"] for line in done.output.splitlines())
