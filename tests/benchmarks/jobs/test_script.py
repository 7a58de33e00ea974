"""The whole script of a job: run by a real bash, with launchers that only say how they were called."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from dlscale.base.batch import JobRequest
from dlscale.base.errors import UsageError
from dlscale.base.quantities import Count
from dlscale.benchmarks.jobs.script import batch_script
from dlscale.benchmarks.systems.system import System

NUM_NODES = Count(value=100, source="docs")


def system(environment: dict[str, object], **changes: object) -> System:
    fields: dict[str, object] = {
        "name": "small",
        "title": "a small machine",
        "scheduler": "slurm",
        "launcher": "srun",
        "sources": {"docs": "the documentation"},
        "node": {"cores": {"value": 8, "source": "docs"}, "threads_per_core": {"value": 2, "source": "docs"}},
        "filesystem": {"results": "/scratch"},
        "partitions": {"regular": {"num_nodes": NUM_NODES.model_dump()}},
        "partition": "regular",
        "placement": {
            "ranks_per_node": 2,
            "variables": {"OMP_NUM_THREADS": "8", "KMP_AFFINITY": "fine,compact,1,0"},
        },
        "environments": {"site": {"prefix": "/opt/dlscale", "setup": "ask"} | environment},
    }
    return System.model_validate(fields | changes)


def script(
    folder: Path, environment: dict[str, object] | None = None, *, command: list[str], **changes: object
) -> str:
    machine = system(environment or {}, **changes)
    request = JobRequest(
        name="job",
        num_nodes=2,
        ranks_per_node=2,
        seconds=600,
        directives=tuple(machine.partitions["regular"].directives),
        account=None,
        output="job.log",
        folder=str(folder),
    )
    return batch_script(machine, machine.environments["site"], request, command)


def run(text: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """With folder/bin first on the path, where srun and module are stubs that print their words."""
    stubs = folder / "bin"
    stubs.mkdir(exist_ok=True)
    stub = stubs / "srun"
    stub.write_text('#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do echo "$1"; shift; done; exec "$@"\n')
    stub.chmod(0o755)
    (folder / "profile").write_text(
        f'module() {{ echo module "$@"; [ $2 != missing ]; }}\nPATH={stubs}:$PATH\n'
    )
    file = folder / "job.sh"
    file.write_text(text)
    subprocess.run(["bash", "-n", str(file)], check=True)
    environment = {"PATH": os.environ["PATH"], "BASH_ENV": str(folder / "profile"), **variables}
    # Without -l: the login files of whoever runs the tests are no part of them.
    return subprocess.run(["bash", str(file)], capture_output=True, text=True, check=False, env=environment)


def test_the_program_runs_in_the_folder_with_its_variables(tmp_path: Path):
    folder = tmp_path / "my study; touch $x"
    folder.mkdir()
    text = script(
        folder,
        command=["sh", "-c", 'pwd; echo "$KMP_AFFINITY" "$_DLSCALE_END_TIME"; echo "$0"', "a $HOME 'b'"],
    )
    before = time.time()
    done = run(text, folder)
    where, values, word = done.stdout.splitlines()
    assert where == str(folder)
    assert word == "a $HOME 'b'"
    affinity, end = values.split()
    assert affinity == "fine,compact,1,0"
    assert before - 1 <= float(end) - 600 <= time.time() + 1


def test_the_environment_counts_where_both_set_a_variable(tmp_path: Path):
    variables = {"OMP_NUM_THREADS": "3", "ODD": "$HOME `id` \"'", "ROOT": "{prefix}/lib"}
    program = ["sh", "-c", 'echo "$OMP_NUM_THREADS"; echo "$ODD"; echo "$ROOT"']
    done = run(script(tmp_path, {"variables": variables}, command=program), tmp_path)
    assert done.stdout.splitlines() == ["3", "$HOME `id` \"'", "/opt/dlscale/lib"]


def test_a_prefix_may_name_variables(tmp_path: Path):
    environment = {"prefix": "$SCRATCH/env", "variables": {"ROOT": "{prefix}/li`b"}}
    text = script(tmp_path, environment, command=["sh", "-c", 'echo "$ROOT"'])
    assert run(text, tmp_path, SCRATCH="/s 1").stdout == "/s 1/env/li`b\n"


def test_so_may_the_programs_path_and_unset_ones_are_an_error(tmp_path: Path):
    text = script(tmp_path, command=["$TOOLS/sh", "-c", 'echo "$0"', "$TOOLS"])
    assert run(text, tmp_path, TOOLS="/bin").stdout == "$TOOLS\n"
    done = run(text, tmp_path)
    assert done.returncode != 0
    assert "TOOLS: unbound variable" in done.stderr


def test_modules_then_commands(tmp_path: Path):
    environment = {
        "modules": ["unload darshan", "gcc/12 x"],
        "commands": ["echo command $UNSET", "X=$(echo 1)"],
    }
    done = run(script(tmp_path, environment, command=["echo", "program"]), tmp_path)
    assert done.stdout.splitlines() == ["module unload darshan", "module load gcc/12 x", "command", "program"]


@pytest.mark.parametrize(
    "broken", [{"modules": ["missing"]}, {"commands": ["false"]}, {"commands": ["false | cat"]}]
)
def test_nothing_is_measured_in_half_an_environment(broken: dict[str, list[str]], tmp_path: Path):
    done = run(script(tmp_path, broken, command=["echo", "program"]), tmp_path)
    assert done.returncode != 0
    assert "program" not in done.stdout


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"modules": ["a\nb"]}, "line break"),
        ({"commands": ["a\nb"]}, "line break"),
        ({"variables": {"A": "1\n2"}}, "line break"),
        ({"directives": ["-q x\ny"]}, "line break"),
        ({"variables": {"A;touch x": "1"}}, "is not a variable name"),
    ],
)
def test_what_no_script_can_do_is_refused(environment: dict[str, object], words: str, tmp_path: Path):
    with pytest.raises(UsageError, match=words):
        script(tmp_path, environment, command=["true"], launcher="mpiexec")


def test_a_signal_for_the_script_reaches_the_program(tmp_path: Path):
    """As Slurm sends it before the end: to the batch shell alone."""
    program = [
        "python3",
        "-c",
        "import signal,time; signal.signal(15, lambda *_: exit(7)); print('up', flush=True); time.sleep(20)",
    ]
    file = tmp_path / "job.sh"
    file.write_text(script(tmp_path, command=program))
    with subprocess.Popen(["bash", str(file)], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout
        assert job.stdout.readline() == "up\n"
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=10) == 7


def test_flux_is_asked_for_what_no_variable_says(tmp_path: Path):
    stubs = tmp_path / "bin"
    stubs.mkdir()
    (stubs / "flux").write_text(
        '#!/bin/sh\ncase "$*" in "getattr hostlist") echo "n[1-2]";; "job timeleft") echo 100;; esac\n'
    )
    (stubs / "flux").chmod(0o755)
    program = ["sh", "-c", 'echo "$_DLSCALE_NODES" $(($_DLSCALE_END_TIME - $(date +%s)))']
    done = run(script(tmp_path, command=program, scheduler="flux", launcher="flux"), tmp_path)
    nodes, left = done.stdout.split()
    assert nodes == "n[1-2]"
    assert 97 <= int(left) <= 100
