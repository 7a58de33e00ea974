"""Every shipped system's whole script and command line, as published recipes have them."""

import re
import runpy
import shlex
import subprocess
from pathlib import Path

import pytest

from dlscale.benchmarks.systems.system import load_system

FOLDER = Path(__file__).parent / "golden"
REWRITE = runpy.run_path(str(FOLDER / "rewrite.py"))
NAMES = REWRITE["batch_systems"]()

# Options as the schedulers' manuals document them; no parser of theirs runs without the scheduler. Slurm's are those
# of sbatch(1) and, --uenv and --view, of the plug-in that CSCS documents.
SBATCH = """
    account acctg-freq array batch begin chdir clusters comment constraint contiguous core-spec cores-per-socket
    cpu-freq cpus-per-gpu cpus-per-task deadline dependency distribution error exclude exclusive export get-user-env
    gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint hold input job-name
    kill-on-invalid-dep licenses mail-type mail-user mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice
    no-requeue nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket
    open-mode output overcommit oversubscribe parsable partition power priority profile propagate qos reboot requeue
    reservation signal sockets-per-node spread-job switches thread-spec threads-per-core time time-min tmp
    use-min-nodes verbose wait wait-all-nodes wckey x11 uenv view
    """
OPTIONS = {
    "pbs": (
        r"-(N \S{1,15}|l (select=\d+(:\w+=\w+)+|place=[\w:]+|walltime=\d+:\d\d:\d\d|filesystems=\S+)|"
        r"j oe|[oAqWPv] \S+|r [yn])"
    ),
    "torque": r"-(N \S{1,15}|l (nodes=\d+:ppn=\d+|walltime=\d+:\d\d:\d\d)|j oe|[oAqW] \S+|r [yn])",
    "cobalt": r"(-[AnqtoeOM] \S+|--(jobname|cwd|dependencies|env|project) \S+|--attrs[= ]\S+)",
}
MARKERS = {"slurm": "#SBATCH ", "pbs": "#PBS ", "torque": "#PBS ", "cobalt": "#COBALT "}


def golden(name: str) -> str:
    return (FOLDER / f"{name}.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_scripts_and_command_lines(name: str):
    assert REWRITE["golden"](name) == golden(name), (
        "if it is meant: python tests/benchmarks/golden/rewrite.py"
    )


def test_there_is_one_for_each_system():
    assert sorted(path.stem for path in FOLDER.glob("*.sh")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_bash_can_read_them(name: str):
    subprocess.run(["bash", "-n", str(FOLDER / f"{name}.sh")], check=True)


@pytest.mark.parametrize("name", NAMES)
def test_directives_are_options_that_manuals_know(name: str):
    scheduler = load_system(name).scheduler
    lines = golden(name).splitlines()[1:]
    directives = lines[: lines.index("")]
    assert directives
    for directive in directives:
        assert directive.startswith(MARKERS[scheduler])
        option = directive.removeprefix(MARKERS[scheduler])
        if scheduler == "slurm":
            assert len(shlex.split(option)) == 1, f"{option} is more than one word"
            found = re.match(r"--([a-z0-9-]+)(=|$)", option)
            assert found, f"{option} is no long option"
            assert found[1] in SBATCH.split(), f"sbatch has no option --{found[1]}"
        else:
            assert re.fullmatch(OPTIONS[scheduler], option), f"{scheduler} has no option {option}"
