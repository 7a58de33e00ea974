"""The draft of a system's file: valid whatever commands print, with sources, without a user's name."""

import tomllib

import pytest

from dlscale.benchmarks.systems.probe import draft, probe_machine, read_machine
from dlscale.benchmarks.systems.system import System, facts

PARTITIONS = (
    "PartitionName=cpu AllowGroups=ALL Default=YES DefaultTime=00:30:00 MaxNodes=2 MaxTime=1-12:00:00 MinNodes=0 "
    "Nodes=nid00[001-003] OverSubscribe=EXCLUSIVE State=UP TotalNodes=5\n"
    'PartitionName=g"pu Default=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED State=UP TotalNodes=1\n'
    "PartitionName=old Default=NO MaxTime=UNLIMITED Nodes=old01 State=DOWN TotalCPUs=8 TotalNodes=1\n"
    "PartitionName=empty Default=NO MaxTime=UNLIMITED Nodes=(null) State=UP TotalCPUs=0 TotalNodes=0\n"
)
NODE = (
    "NodeName={name} CoresPerSocket=64 Gres={gres} OS=Linux 5.14.21 #1 SMP RealMemory={memory} Sockets={sockets} "
    "CoreSpecCount=4 State=IDLE ThreadsPerCore=2 Partitions={partitions} Reason=Not responding Sockets=7\n"
)
NODES = "".join(
    NODE.format(name=name, gres=gres, memory=memory, sockets=sockets, partitions=partitions)
    for name, gres, memory, sockets, partitions in (
        ("nid00001", "(null)", 1030000, 2, "cpu"),
        ("nid00002", "(null)", 515000, 2, "cpu,old"),
        ("nid00003", "(null)", 515000, 2, "cpu"),
        ("gpu01", "gpu:a100:4(S:0-1),craynetwork:4", 515000, 1, 'g"pu'),
    )
)
SLURM = {
    "scontrol show config": "ClusterName             = Aurochs 2\nMpiDefault              = none\nMpiParams = (null)\n",
    "scontrol show partition -o": PARTITIONS,
    "scontrol show node -o": NODES,
}
PBS = {
    "pbsnodes -a": "".join(
        f"x{number}\n     Mom = x{number}\n     state = {state}\n     resources_available.mem = 527672488kb\n"
        f"     resources_available.ncpus = 64\n     resources_available.ngpus = 4\n\n"
        for number, state in enumerate(["free", "job-exclusive", "offline,down"])
    ),
    "qstat -Q -f": (
        "Queue: debug\n    queue_type = Execution\n    resources_max.nodect = 1\n"
        "    resources_max.walltime = 01:30:00\n    enabled = True\n    started = True\n\n"
        "Queue: prod\n    queue_type = Route\n    enabled = True\n    started = True\n\n"
        "Queue: old\n    queue_type = Execution\n    enabled = False\n    started = True\n\n"
    ),
}
THREADS = "".join(f"{thread},{thread % 128},{thread % 128 // 64}\n" for thread in range(256))
LOGIN = {
    "lscpu -p=CPU,CORE,SOCKET": f"# CPU,Core,Socket\n{THREADS}",
    "lscpu": "Model name:    AMD EPYC 7763  64-Core Processor\n",
}
SMI = "nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits"


@pytest.fixture
def drafted():
    """The text drafted from these answers, and the system in it."""

    def make(answers):
        machine = read_machine(lambda *words: answers.get(" ".join(words), ""))
        text = draft(machine, ["scontrol: no\nanswer"])
        system = System.model_validate(tomllib.loads(text))
        assert {fact.source for _, fact in facts(system)} <= set(system.sources)
        assert all(fact.kind == "machine" for _, fact in facts(system))
        assert "# Not answered: scontrol: no answer\n" in text
        return text, system

    return make


def test_slurm_has_partitions_that_are_up_with_their_nodes_and_limits(drafted):
    text, system = drafted(LOGIN | SLURM)
    assert (system.name, system.scheduler, system.launcher) == ("aurochs-2", "slurm", "srun")
    assert (system.partition, list(system.partitions)) == ("cpu", ["cpu", 'g"pu'])
    assert system.recognised.variables == {"SLURM_CLUSTER_NAME": "Aurochs 2"}
    cpu, gpu = system.partitions.values()
    # The total counts nodes that come later; the most frequent nodes are described.
    assert (cpu.num_nodes.value, cpu.max_nodes.value, cpu.max_walltime.value) == (3, 2, "36 h")
    assert (gpu.num_nodes.value, gpu.max_nodes, gpu.max_walltime) == (1, None, None)
    assert gpu.directives == ['--partition=g"pu', "--gpus-per-node=4"]
    assert text.count("nodes are unlike [node]") == 2
    node, placement = system.node, system.placement
    assert (node.cores.value, node.threads_per_core.value, node.memory.value) == (128, 2, "502.9 GiB")
    assert node.cpu_model.value == "AMD EPYC 7763 64-Core Processor"  # this is such a node by its cores
    assert (system.devices, placement.ranks_per_node, placement.reserved_cores) == (None, 2, 4)
    assert "Slurm has no MpiDefault" in text
    told = SLURM["scontrol show config"].replace("none", "pmix")
    assert "MpiDefault" not in drafted(SLURM | {"scontrol show config": told})[0]


def test_a_log_in_node_is_not_described_as_a_compute_node(drafted):
    _, system = drafted({"lscpu": LOGIN["lscpu"]} | SLURM)
    assert system.node.cpu_model is None
    assert system.node.cores.value == 128


@pytest.mark.parametrize(
    ("gres", "number", "model"),
    [
        ("gpu:nvidia_a100-sxm4-40gb:4(S:0-1)", 4, "nvidia_a100-sxm4-40gb"),
        ("cpu:amd:1,gpu:h100:2(S:0,2-3),shard:8", 2, "h100"),
        ("gpu:4", 4, "GPU"),
        ("gpu:0", None, None),
        ("gpu:no_consume:4", 4, "GPU"),
        ("gpu:tesla:no_consume:2", 2, "tesla"),
        ("gpu:1g.5gb:7", 7, "1g.5gb"),
        ("gpu:(null):4(S:0-3)", 4, "GPU"),
        ("gpu", 1, "GPU"),
        ("gpu:k80:8,gpu:v100:2", 10, "k80"),
        ("craynetwork:4", None, None),
    ],
)
def test_gpus_of_slurm(drafted, gres, number, model):
    nodes = NODE.format(name="n", gres=gres, memory=1, sockets=1, partitions="cpu")
    _, system = drafted(SLURM | {"scontrol show node -o": nodes})
    assert system.node.memory is None  # 1 is what Slurm has where a site does not say
    found = system.devices
    assert (found and found.per_node.value, found and found.model.value) == (number, model)
    assert system.placement.ranks_per_node == (number or 1)


@pytest.mark.parametrize("silent", ["scontrol show config", "scontrol show partition -o"])
def test_a_controller_that_does_not_answer_is_no_cluster(drafted, silent):
    assert drafted(SLURM | {silent: ""})[1].scheduler == "none"
    assert drafted(SLURM | {"scontrol show node -o": ""})[1].partitions["cpu"].num_nodes.value == 5


@pytest.mark.parametrize(
    ("version", "launcher"), [("", "mpiexec"), ("mpiexec version 1.8.0 revision x", "pals")]
)
def test_pbs_has_queues_that_take_jobs(drafted, version, launcher):
    _, system = drafted(PBS | {"mpiexec --version": version})
    assert (system.scheduler, system.launcher, system.partition) == ("pbs", launcher, "debug")
    (queue,) = system.partitions.values()
    assert (queue.num_nodes.value, queue.max_nodes.value, queue.max_walltime.value) == (2, 1, "90 min")
    assert queue.directives == ["-q debug"]
    assert (system.node.cores.value, system.node.memory.value) == (64, "503.2 GiB")
    assert (system.devices.per_node.value, system.placement.ranks_per_node) == (4, 4)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("NVIDIA A100-SXM4-40GB, 40960\n" * 4, (4, "NVIDIA A100-SXM4-40GB", "40.0 GiB")),
        ("NVIDIA T1000, 4096\n" + "NVIDIA A100, 40960\n" * 2, (2, "NVIDIA A100", "40.0 GiB")),
        ("NVIDIA GB10, [N/A]\n", (1, "NVIDIA GB10", None)),
        ('say "no"\\, \tZürich 🖥, 1024\n', (1, 'say "no"\\, \tZürich 🖥', "1.0 GiB")),
    ],
)
def test_gpus_of_nvidia_smi(drafted, output, expected):
    _, system = drafted({SMI: output})
    memory = system.devices.memory
    assert (system.devices.per_node.value, system.devices.model.value, memory and memory.value) == expected


def test_without_lscpu_threads_are_counted(drafted):
    node = drafted({})[1].node
    assert (node.cores.value > 0, node.threads_per_core, node.cpu_model) == (True, None, None)
    uneven = "0,0,0\n1,0,0\n2,1,0\n3,1,0\n4,2,0\n5,3,0\n"
    node = drafted({"lscpu -p=CPU,CORE,SOCKET": uneven})[1].node
    assert (node.cores.value, node.threads_per_core) == (4, None)


def test_a_users_name_is_not_written(drafted, monkeypatch):
    monkeypatch.setenv("HOME", "/home/jane")
    monkeypatch.setenv("SCRATCH", "/scratch/jane")
    monkeypatch.setattr("platform.node", lambda: "jane-login4.cluster.org")
    text, system = drafted(SLURM)
    assert "jane" not in text
    assert system.filesystem.results == "$SCRATCH/dlscale"
    assert system.recognised.hostnames == ["*-login*.cluster.org"]
    monkeypatch.setattr("platform.node", lambda: "10-20")
    assert drafted(SLURM)[1].recognised.hostnames == []


def test_commands_that_fail_are_named_and_not_taken_for_none(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'Driver/library version mismatch'; exit 18\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (line,) = [line for line in probe_machine().splitlines() if "nvidia-smi'" in line]
    assert line.startswith("# Not answered: ")
    assert "exit status 18" in line
    assert line.endswith("Driver/library version mismatch")


def test_the_command_writes_a_new_file_that_loads(dlscale, mistake, tmp_path):
    out = tmp_path / "mine.toml"
    status, text, _ = dlscale("system", "probe", "--out", out)
    assert (status, "TODO" in text) == (0, True)
    assert dlscale("system", "show", out)[0] == 0
    for wrong in (out, "mine.txt", "no/such/mine.toml"):
        assert str(wrong) in mistake("system", "probe", "--out", wrong)
