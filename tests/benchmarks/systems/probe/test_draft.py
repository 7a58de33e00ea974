"""The file that is made: a valid system, whatever was read, without anybody's name."""

import dataclasses
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import main
from dlscale.benchmarks.cli.system import probe
from dlscale.benchmarks.systems.limits import Limits
from dlscale.benchmarks.systems.probe import draft as drafting
from dlscale.benchmarks.systems.probe import measure
from dlscale.benchmarks.systems.probe.cluster import read_cluster
from dlscale.benchmarks.systems.probe.draft import draft, host_pattern, probe_machine
from dlscale.benchmarks.systems.probe.node import ThisNode, devices_of, fact
from dlscale.benchmarks.systems.system import System, facts, load_system

NODE = ThisNode(
    hostname="login03.cluster.example.org",
    node={
        "cores": fact(64, "node"),
        "threads_per_core": fact(1, "node"),
        "memory": fact("251.6 GiB", "node"),
        "cpu_model": fact("EPYC 7713", "node"),
        "numa_domains": None,
    },
    devices={},
    fabric={},
    num_threads=64,
    num_allowed=64,
    mpi=None,
    pals=False,
    modules=None,
    torch=None,
    limits=Limits(cores=None, memory_bytes=None, num_throttled=0),
)
A100 = devices_of([("NVIDIA A100-SXM4-80GB", 80.0)] * 4)
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


def with_node(**changes):
    return dataclasses.replace(NODE, **changes)


def with_cpu(**changes):
    return with_node(node=NODE.node | {name: fact(value, "node") for name, value in changes.items()})


def slurm(**changes):
    answers = SLURM | {words.replace("_", " ") + " -o": text for words, text in changes.items()}
    return read_cluster(lambda *words: answers.get(" ".join(words), ""), None)


def loaded(text):
    return System.model_validate(tomllib.loads(text))


@pytest.mark.parametrize("stated", ["RealMemory=1", "RealMemory=20", "RealMemory=0", ""])
def test_memory_that_slurm_does_not_know_is_left_out_with_a_remark(stated):
    nodes = f"NodeName=g1 CoresPerSocket=32 {stated} Sockets=1 ThreadsPerCore=2 Partitions=gpu\n"
    text = draft(NODE, slurm(scontrol_show_node=nodes))
    assert loaded(text).node.memory is None
    assert ("the memory of the nodes: slurm does not know it" in text) == (stated != "RealMemory=20")
    assert "Unknown: memory" in text or "memory" not in text.partition("[node]")[2].partition("[")[0]


def test_a_machine_without_scheduler_gpu_and_network():
    text = draft(with_cpu(threads_per_core=None, cpu_model=None), None)
    system = loaded(text)
    assert (system.name, system.scheduler, system.launcher) == ("this-machine", "none", "mpiexec")
    assert (system.node.cores.value, system.node.memory.value) == (64, "251.6 GiB")
    assert system.devices is system.fabric is system.placement is None
    assert system.environments["current"].prefix == "current"
    assert "# Unknown: threads_per_core, cpu_model, numa_domains.\n" in text
    assert "# [devices] is left out: nvidia-smi names no GPU here" in text
    assert "# [fabric] is left out: no network interface is up.\n" in text


def test_a_machine_with_gpus_a_network_and_mpi():
    network = {"name": fact("InfiniBand HDR", "network"), "bandwidth": fact("400 Gb/s", "network")}
    gpus = devices_of([("NVIDIA A100", 80.0)] * 3 + [("NVIDIA T1000", 4.0)])
    system = loaded(draft(with_node(devices=gpus, fabric=network, mpi=("openmpi", "Open MPI 5.0.6")), None))
    assert (system.devices.per_node.value, system.devices.memory.value) == (4, "80.0 GiB")
    assert system.devices.model.note == "counted with: NVIDIA T1000"
    assert (system.fabric.name.value, system.fabric.bandwidth.value) == ("InfiniBand HDR", "400 Gb/s")
    assert system.environments["current"].mpi == "openmpi"
    assert "openmpi" in system.environments["current"].setup


@pytest.mark.parametrize(("version", "words"), [("2.11.0+cu130", " torch==2.11.0+cu130"), (None, "")])
def test_set_up_keeps_the_torch_that_is_installed(version, words):
    system = loaded(draft(with_node(torch=version), None))
    assert system.environments["current"].setup == f"pip install 'dlscale[mpich]'{words}"


def test_slurm_with_gpus_seen_from_a_log_in_node():
    text = draft(with_cpu(cores=1, cpu_model="Login CPU"), slurm())
    system = loaded(text)
    assert (system.name, system.scheduler, system.launcher) == ("aurochs-2", "slurm", "srun")
    assert system.partition == "gpu"
    assert (system.node.cores.value, system.node.memory.value) == (64, "250.0 GiB")
    assert system.node.cpu_model is None  # this is not one of those nodes
    assert "Login CPU" not in text
    assert (system.devices.per_node.value, system.devices.model.value) == (4, "a100")
    gpu, memory = system.partitions["gpu"], system.partitions['big"mem']
    assert (gpu.num_nodes.value, gpu.max_walltime.number) == (1, 43200)
    assert gpu.max_walltime.note == "30 min if a job does not say"
    assert gpu.directives == ["--partition=gpu", "--gpus-per-node=4"]
    assert memory.max_walltime is None
    assert "# Nodes unlike [node], to be described in a file of their own: 96 cores, 2000.0 GiB.\n" in text
    assert (system.placement.ranks_per_node, system.placement.reserved_cores) == (4, 2)
    assert system.recognised.hostnames == ["login*.cluster.example.org"]
    assert system.recognised.variables == {"SLURM_CLUSTER_NAME": "Aurochs 2"}


def test_a_partition_of_several_kinds_of_nodes_says_so():
    mixed = SLURM["scontrol show node -o"].replace('Partitions=big"mem', 'Partitions=big"mem,gpu')
    text = draft(NODE, slurm(scontrol_show_node=mixed))
    assert "FILL IN: num_nodes counts all kinds." in text.replace("\n# ", " ")
    assert loaded(text).partitions["gpu"].num_nodes.value == 2


def test_slurm_without_gpus_has_a_rank_per_socket():
    nodes = SLURM["scontrol show node -o"].replace("Gres=gpu:a100:4", "Gres=(null)")
    text = draft(with_node(devices=A100), slurm(scontrol_show_node=nodes))
    system = loaded(text)
    assert (system.devices, system.placement.ranks_per_node) == (None, 2)
    assert "have no GPUs; this machine has 4 of NVIDIA A100-SXM4-80GB." in text.replace("\n# ", " ")


def test_slurm_that_does_not_describe_its_nodes():
    system = loaded(draft(NODE, slurm(scontrol_show_node="")))
    assert (system.node.cores.value, system.placement.ranks_per_node) == (64, 1)
    assert system.node.cores.note == drafting.HERE


def test_slurm_without_a_default_partition_asks_for_one():
    partitions = SLURM["scontrol show partition -o"].replace("Default=YES", "Default=NO")
    text = draft(NODE, slurm(scontrol_show_partition=partitions))
    assert "FILL IN: the scheduler names no default partition" in text
    assert loaded(text).partition == "gpu"


def test_in_a_job_the_node_itself_is_described_too():
    system = loaded(draft(with_node(devices=A100), slurm()))
    assert system.node.cpu_model.value == "EPYC 7713"
    assert system.node.cpu_model.note
    assert (system.devices.model.value, system.devices.memory.value) == ("NVIDIA A100-SXM4-80GB", "80.0 GiB")


def test_every_number_names_what_was_read_and_when():
    system = loaded(draft(NODE, slurm()))
    for place, known in facts(system):
        assert known.kind == "machine", place
        assert str(datetime.now(UTC).year) in system.sources[known.source], place
    assert set(system.sources) == {known.source for _, known in facts(system)}


def test_a_draft_is_read_as_it_is():
    assert loaded(draft(NODE, None)).scheduler == "none"
    assert loaded(draft(NODE, slurm())).scheduler == "slurm"


@pytest.mark.parametrize(
    ("command", "scheduler", "directive"),
    [("qstat", "cobalt", "-q batch"), ("bsub", "lsf", "-q batch"), ("flux", "flux", "--queue batch")],
)
def test_other_schedulers_get_a_template_that_completes_the_system(
    monkeypatch, command, scheduler, directive
):
    monkeypatch.setattr(drafting.shutil, "which", lambda name: name if name == command else None)
    text = draft(NODE, None)
    assert loaded(text).scheduler == "none"
    assert f"{command} is here, which the probe does not ask" in text.replace("\n# ", " ")
    start = text.index("# [recognised]")
    template = re.sub(r"^# ?", "", text[start:], flags=re.MULTILINE)
    top = f'scheduler = "{scheduler}"\npartition = "batch"'
    completed = text[:start].replace('scheduler = "none"', top) + template
    system = loaded(completed.replace("\n[sources]", '\n[sources]\nsite = "the pages"'))
    assert system.partitions["batch"].directives == [directive]
    assert system.recognised.hostnames == ["login*.cluster.example.org"]


def test_affinity_is_shown_and_does_not_count():
    text = draft(with_node(num_allowed=2), None)
    assert loaded(text).node.cores.value == 64
    assert "may run on 2 of this machine's 64 hardware threads" in text
    assert "hardware threads" not in draft(NODE, None)


def test_limits_of_a_container_are_shown_and_do_not_count():
    text = draft(with_node(limits=Limits(cores=0.6, memory_bytes=4 << 30, num_throttled=7)), None)
    comments = text.replace("\n# ", " ")
    assert "A control group limits the probe to the time of 0.6 cores" in comments
    assert "A control group limits the probe's memory to 4.0 GiB" in comments
    assert (loaded(text).node.cores.value, loaded(text).node.memory.value) == (64, "251.6 GiB")


def test_pbs_gives_a_system_with_jobs():
    answers = {
        "pbsnodes -a": "x1\n     state = free\n     resources_available.ncpus = 64\n",
        "qstat -Q -f": "Queue: prod\n    queue_type = Execution\n    enabled = True\n    started = True\n",
    }
    system = loaded(draft(NODE, read_cluster(lambda *words: answers.get(" ".join(words), ""), None)))
    assert (system.scheduler, system.launcher, system.partition) == ("pbs", "mpiexec", "prod")
    assert (system.partitions["prod"].directives, system.placement.ranks_per_node) == (["-q prod"], 1)


def test_commands_that_failed_are_named():
    problem = "scontrol show config: exit status 1, Unable to contact slurm controller"
    text = draft(NODE, None, problems=[problem, problem])
    assert text.count("Not answered: scontrol show config") == 1
    assert loaded(text).scheduler == "none"


@pytest.mark.parametrize("model", ['say "no"', "C:\\nodes\\1", "Zürich, 東京 🖥", "a\tb\nc", "'''", "# none"])
def test_difficult_texts_are_read_back(model):
    text = draft(with_node(devices=devices_of([(model, None)])), None, problems=[model])
    assert loaded(text).devices.model.value == model


def test_what_nobody_sees_is_shown():
    text = draft(with_node(devices=devices_of([("A\u202e100\x9b\u3164", None)])), None)
    assert r"A\\u202e100\\x9b\\u3164" in text
    loaded(text)


def test_a_long_name_of_a_cluster_is_cut():
    answers = SLURM | {"scontrol show config": f"ClusterName             = {'Aurochs-' * 40}\n"}
    text = draft(NODE, read_cluster(lambda *words: answers.get(" ".join(words), ""), None))
    assert loaded(text).name.startswith("aurochs-aurochs")


def test_long_remarks_are_wrapped():
    lines = draft(NODE, None, problems=["word " * 60]).splitlines()
    assert all(len(line) <= 110 for line in lines if line.startswith("#"))


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


def test_nobody_is_named(monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: Path("/home/jane"))
    monkeypatch.setenv("SCRATCH", "/scratch/jane")
    text = draft(with_node(hostname="jane-login4.cluster.org", modules=("gcc/12",)), slurm())
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


def test_a_file_that_is_there_is_not_replaced(ask, tmp_path):
    out = tmp_path / "mine.toml"
    assert f"wrote {out}; " in ask("--out", str(out))
    out.write_text("mine")
    with pytest.raises(UsageError, match=r"exists already; remove it") as caught:
        ask("--out", str(out))
    assert "\n" not in str(caught.value)
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "mine.txt"], "does not end in .toml"),
        (["--out", "no/such/mine.toml"], "no folder no/such"),
        (["--name", "My Machine"], "is no system's name"),
        (["--name", ""], "is no system's name"),
        (["--name", "a" * 121], "is no system's name"),
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
    assert "mpiexec -launcher fork -rmk user -n 1" in told.out
    assert " with current " in told.out


@pytest.fixture
def small_tries(monkeypatch):
    monkeypatch.setattr(measure, "TRY_SECONDS", 0.0)
    monkeypatch.setattr(measure, "MOST_SECONDS", 60.0)
    monkeypatch.setattr(measure, "ARRAY_BYTES", 1 << 20)
    monkeypatch.setitem(measure.SIDE, "cpu", 64)


def test_measured_rates_name_their_source_and_fill_bandwidth_and_peaks(small_tries):
    text = probe_machine(name="mine", measure=True)
    node = System.model_validate(tomllib.loads(text)).node
    assert node.memory_bandwidth.number > 0
    assert {dtype: fact.number > 0 for dtype, fact in node.peak.items()} == {"fp32": True, "bf16": True}
    assert {fact.source for fact in (node.memory_bandwidth, *node.peak.values())} == {"measured"}
    assert "PyTorch" in node.memory_bandwidth.note
    assert "measured = " in text
    told = " ".join(text.replace("#", " ").split())
    assert ("dlscale collectives --system THIS.toml --nodes 2" in told) == ("[fabric]" in text)
    assert "measured = " not in probe_machine(name="mine")


def test_a_rate_that_takes_too_long_is_left_out_aloud(small_tries, monkeypatch):
    monkeypatch.setattr(measure, "MOST_SECONDS", -1.0)
    text = probe_machine(name="mine", measure=True)
    node = System.model_validate(tomllib.loads(text)).node
    assert (node.memory_bandwidth, node.peak) == (None, {})
    for rate in ("memory bandwidth", "matrix products in fp32", "matrix products in bf16"):
        assert f"# Not answered: --measure: {rate}: one call took more than -1 s" in text
