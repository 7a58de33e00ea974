"""Where an environment's programs are found, and what they are started with."""

from pathlib import Path

import pytest

from dlscale.benchmarks.systems.system import Environment, System, find_installation


def machine(environment: Environment) -> System:
    return System(
        name="local",
        title="this machine",
        scheduler="none",
        launcher="mpiexec",
        node={"cores": "detect"},
        environments={"one": environment},
    )


def test_variables_name_the_folder_of_their_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bin_ = tmp_path / "env" / "bin"
    bin_.mkdir(parents=True)
    for program in ("python", "mpiexec"):
        (bin_ / program).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    variables = {"LD_LIBRARY_PATH": "{prefix}/lib:{prefix}/lib/more", "FABRIC": "shm:{other}"}
    found = find_installation(machine(Environment(prefix="env", variables=variables, setup="make")), "one")
    assert found.prefix == tmp_path / "env"
    assert found.variables == {
        "LD_LIBRARY_PATH": f"{tmp_path}/env/lib:{tmp_path}/env/lib/more",
        "FABRIC": "shm:{other}",
    }
