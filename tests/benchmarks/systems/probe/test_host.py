"""Commands that are missing, fail or hang."""

import os
import time

import pytest

from dlscale.benchmarks.systems.probe import node as host_module
from dlscale.benchmarks.systems.probe.node import Host


@pytest.fixture
def with_program(tmp_path):
    def make(script):
        program = tmp_path / "scontrol"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return Host(variables=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"})

    return make


def test_output_in_the_language_that_is_parsed(with_program):
    host = with_program('echo "$1 $LC_ALL"')
    assert host.run("scontrol", "show") == "show C\n"
    assert host.problems == []


def test_what_some_print_to_stderr_alone(with_program):
    assert with_program("echo 'srun: pmi2' >&2").run("scontrol") == "srun: pmi2\n"
    assert with_program("echo out; echo err >&2").run("scontrol") == "out\n"


def test_a_missing_command_is_no_problem():
    host = Host()
    assert host.run("no-such-scheduler", "-a") is None
    assert host.problems == []


def test_a_failing_command_is_told_with_its_last_words(with_program):
    host = with_program("echo first >&2; echo 'Unable to contact slurm controller' >&2; exit 1")
    assert host.run("scontrol", "show", "config") is None
    assert host.problems == ["scontrol show config: exit status 1, Unable to contact slurm controller"]


def test_a_command_that_hangs_is_given_up(with_program, monkeypatch):
    monkeypatch.setattr(host_module, "COMMAND_SECONDS", 0.3)
    host = with_program("exec sleep 20")
    start = time.monotonic()
    assert host.run("scontrol") is None
    assert time.monotonic() - start < 10
    assert "no answer within" in host.problems[0]


def test_what_is_not_text_is_read_all_the_same(with_program):
    assert "A100" in with_program("printf 'A100\\377\\n'").run("scontrol")


def test_files_that_are_not_there(tmp_path):
    host = Host(root=tmp_path)
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys/empty").write_text("\n")
    assert host.text("/sys/speed") is host.text("/sys/empty") is host.text("/sys") is None
    assert host.names("/proc") == []
