"""The file that is made: a valid system, whatever was found, without anybody's name."""

import re
import tomllib
from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import main
from dlscale.benchmarks.cli.system import probe
from dlscale.benchmarks.systems.lint import lint
from dlscale.benchmarks.systems.probe import draft as drafting
from dlscale.benchmarks.systems.probe.draft import draft, host_pattern
from dlscale.benchmarks.systems.probe.machine import read_machine
from dlscale.benchmarks.systems.probe.node import NVIDIA
from dlscale.benchmarks.systems.system import System, facts, load_system

SLURM = {
    "scontrol show config": "ClusterName             = Aurochs 2\nMpiDefault              = pmix\n",
    "scontrol show partition -o": (
        "PartitionName=gpu Default=YES DefaultTime=00:30:00 MaxNodes=UNLIMITED MaxTime=12:00:00 OverSubscribe=NO "
        "State=UP TotalNodes=1\n"
        'PartitionName=big"mem Default=NO MaxTime=UNLIMITED OverSubscribe=NO State=UP TotalNodes=1\n'
    ),
    "scontrol show node -o": (
        "NodeName=g1 CoresPerSocket=32 Gres=gpu:a100:4 RealMemory=256000 Sockets=2 CoreSpecCount=2 ThreadsPerCore=1 "
        "Partitions=gpu\n"
        "NodeName=b1 CoresPerSocket=48 Gres=(null) RealMemory=2048000 Sockets=2 ThreadsPerCore=1 "
        'Partitions=big"mem\n'
    ),
}


def loaded(text):
    return System.model_validate(tomllib.loads(text))


def test_an_unknown_machine_without_anything(told):
    system = loaded(draft(read_machine(told())))
    assert (system.name, system.scheduler, system.launcher) == ("this-machine", "none", "mpiexec")
    assert system.node.cores.value == 1
    assert system.devices is system.fabric is system.placement is None
    assert system.environments["current"].prefix == "current"


def test_slurm_with_gpus_seen_from_a_log_in_node(told):
    text = draft(read_machine(told({"/proc/cpuinfo": "processor\t: 0\nmodel name\t: Login CPU\n"}, SLURM)))
    system = loaded(text)
    assert (system.name, system.scheduler, system.launcher, system.partition) == (
        "aurochs-2",
        "slurm",
        "srun",
        "gpu",
    )
    assert (system.node.cores.value, system.node.memory.value) == (64, "250.0 GiB")
    assert system.node.cpu_model is None  # this is not one of those nodes
    assert "Login CPU" not in text
    assert (system.devices.per_node.value, system.devices.model.value) == (4, "a100")
    gpu, memory = system.partitions["gpu"], system.partitions['big"mem']
    assert (gpu.num_nodes.value, gpu.max_walltime.number, gpu.max_walltime.note) == (
        1,
        43200,
        "30 min if a job does not say",
    )
    assert gpu.directives == ["--partition=gpu", "--gpus-per-node=4"]
    assert memory.max_walltime is None
    assert "# Nodes unlike [node], to be described in a file of their own: 96 cores, 2000.0 GiB.\n" in text
    assert (system.placement.ranks_per_node, system.placement.reserved_cores) == (4, 2)
    assert system.recognised.hostnames == ["login*.cluster.example.org"]
    assert system.recognised.variables == {"SLURM_CLUSTER_NAME": "Aurochs 2"}


def test_a_queue_of_several_kinds_of_nodes_says_so(told):
    mixed = SLURM["scontrol show node -o"].replace('Partitions=big"mem', 'Partitions=big"mem,gpu')
    text = draft(read_machine(told(answers=SLURM | {"scontrol show node -o": mixed})))
    assert "FILL IN: num_nodes counts all kinds." in text.replace("\n# ", " ")
    assert loaded(text).partitions["gpu"].num_nodes.value == 2


def test_in_a_job_the_node_itself_is_described_too(told):
    cpus = {f"/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": str(n) for n in range(64)}
    files = cpus | {"/sys/devices/system/cpu/online": "0-63", "/proc/cpuinfo": "model name\t: EPYC 7713\n"}
    answers = SLURM | {" ".join(NVIDIA): "NVIDIA A100-SXM4-80GB, 81920\n" * 4}
    system = loaded(draft(read_machine(told(files, answers))))
    assert system.node.cpu_model.value == "EPYC 7713"
    assert system.node.cpu_model.note
    assert (system.devices.model.value, system.devices.memory.value) == ("NVIDIA A100-SXM4-80GB", "80.0 GiB")


def test_every_number_names_what_was_read_and_when(told):
    system = loaded(draft(read_machine(told({"/proc/meminfo": "MemTotal: 1048576 kB"}, SLURM))))
    for place, one in facts(system):
        assert one.kind == "machine", place
        assert "2026-11-22" in system.sources[one.source], place
    assert set(system.sources) == {one.source for _, one in facts(system)}


def test_lint_finds_only_what_a_person_must_write(told, tmp_path):
    out = tmp_path / "mine.toml"
    out.write_text(draft(read_machine(told())))
    assert lint(str(out)) == []
    out.write_text(draft(read_machine(told(answers=SLURM))))
    assert [problem.partition(":")[0] for problem in lint(str(out))] == ["environments.site"]


def test_what_must_be_there_and_was_not_told_asks_to_be_filled_in(told):
    queues = f"Name     MaxTime   TotalNodes  State\n{'=' * 40}\ndefault  None      None        running\n"
    answers = {"qstat --version": "Cobalt 1.0", "qstat -Q": queues}
    text = draft(read_machine(told(answers=answers)))
    nodes = loaded(text).partitions["default"].num_nodes
    assert (nodes.value, nodes.source) == (1, "placeholder")
    assert "FILL IN: the scheduler does not say how many nodes there are." in text


def test_affinity_is_told_and_does_not_count(told):
    files = {"/proc/cpuinfo": "processor\t: 0\n" * 8}
    text = draft(read_machine(told(files, num_allowed=2)))
    assert loaded(text).node.cores.value == 8
    assert "may run on 2 of this machine's 8 hardware threads" in text
    assert "hardware threads" not in draft(read_machine(told(files, num_allowed=8)))


def test_commands_that_failed_are_named(told):
    host = told()
    host.problems.append("scontrol show config: exit status 1, Unable to contact slurm controller")
    text = draft(read_machine(host))
    assert "Not answered: scontrol show config" in text
    assert loaded(text).scheduler == "none"


@pytest.mark.parametrize(
    ("hostname", "user", "pattern"),
    [
        ("login03.cluster7.org", "jane", "login*.cluster*.org"),
        ("nid000123", "jane", "nid*"),
        ("janes-laptop", "jane", "*s-laptop"),
        ("rooter", "root", "rooter"),
        ("10-20", "jane", None),
        ("jane5", "jane", None),
    ],
)
def test_the_host_is_known_by_a_pattern(hostname, user, pattern):
    assert host_pattern(hostname, user) == pattern


def test_nobody_is_named(told, monkeypatch):
    monkeypatch.setattr(drafting.Path, "home", lambda: Path("/home/jane"))
    variables = {
        "SCRATCH": "/scratch/jane",
        "LMOD_VERSION": "8.7",
        "LOADEDMODULES": "gcc/12:/home/jane/own:jane/tools",
    }
    text = draft(read_machine(told(answers=SLURM, variables=variables, hostname="jane-login4.cluster.org")))
    assert "jane" not in text
    assert loaded(text).filesystem.results == "$SCRATCH/dlscale"
    assert '# modules = ["gcc/12"]' in text


@pytest.fixture
def ask(capsys):
    def run(*words):
        probe(list(words), standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_this_machine(ask):
    text = ask("--name", "mine")
    system = loaded(text)
    assert system.name == "mine"
    assert system.node.memory.number > 2**28
    assert str(Path.home()) + "/" not in text


def test_the_file_is_not_replaced_unless_told(ask, tmp_path):
    out = tmp_path / "mine.toml"
    assert f"wrote {out}; " in ask("--out", str(out))
    out.write_text("mine")
    with pytest.raises(UsageError, match=r"exists already; give --force") as caught:
        ask("--out", str(out))
    assert "\n" not in str(caught.value)
    assert out.read_text() == "mine"
    assert f"replaced {out}; " in ask("--out", str(out), "--force")
    assert load_system(str(out)).environments["current"].prefix == "current"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "mine.txt"], "does not end in .toml"),
        (["--out", "no/such/mine.toml"], "no folder no/such"),
        (["--name", "My Machine"], "is no system's name"),
        (["--name", ""], "is no system's name"),
    ],
)
def test_mistakes(ask, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=re.escape(told)):
        ask(*words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requires("mpiexec", "ring")
def test_a_study_can_be_planned_on_the_draft(ask, tmp_path, capsys):
    out = tmp_path / "draft.toml"
    ask("--out", str(out))
    if load_system(str(out)).scheduler != "none":
        pytest.skip("this machine has a scheduler, for which a draft asks to be filled in first")
    with pytest.raises(SystemExit) as caught:
        main(["run", "weak-scaling", "--system", str(out), "--dry-run", "--results", str(tmp_path)])
    told = capsys.readouterr()
    assert caught.value.code == 0, told.err
    assert "mpiexec -n 1" in told.out
    assert " with current " in told.out
