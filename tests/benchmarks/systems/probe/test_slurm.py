"""Slurm's answers, as scontrol(1) and gres.conf(5) describe them and `scontrol -o` prints them."""

import pytest

from dlscale.benchmarks.systems.probe.slurm import (
    default_partition,
    mpi_options,
    parse_clock,
    parse_config,
    parse_gres,
    parse_nodes,
    parse_partitions,
    read_slurm,
)

CONFIG = """Configuration data as of 2026-11-22T07:00:00
AccountingStorageEnforce = associations,limits,qos
ClusterName             = aurochs
MpiDefault              = none
MpiParams               = (null)
SLURM_VERSION           = 23.02.6
SlurmctldHost[0]        = ctl(10.0.0.1)

Slurmctld(primary) at ctl is UP
"""
PARTITIONS = (
    "PartitionName=cpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A "
    "DefaultTime=00:30:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=2 "
    "MaxTime=1-12:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=nid00[001-003] PriorityJobFactor=1 "
    "RootOnly=NO ReqResv=NO OverSubscribe=EXCLUSIVE OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=768 "
    "TotalNodes=3 SelectTypeParameters=NONE DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n"
    "PartitionName=gpu Default=NO DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=UNLIMITED Nodes=gpu01 "
    "OverSubscribe=NO State=UP TotalCPUs=64 TotalNodes=1\n"
    "PartitionName=old Default=NO MaxTime=UNLIMITED Nodes=old01 State=DOWN TotalCPUs=8 TotalNodes=1\n"
    "PartitionName=empty Default=NO MaxTime=UNLIMITED Nodes=(null) State=UP TotalCPUs=0 TotalNodes=0\n"
)
NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=64 CPUAlloc=0 CPUEfctv=248 CPUTot=256 CPULoad=0.01 "
    "AvailableFeatures=cpu ActiveFeatures=cpu Gres={gres} NodeAddr={name} NodeHostName={name} Version=23.02.6 "
    "OS=Linux 5.14.21 #1 SMP PREEMPT_DYNAMIC RealMemory={memory} AllocMem=0 FreeMem=500000 "
    "Sockets={sockets} Boards=1 CoreSpecCount=4 CPUSpecList=1-4 State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1 "
    "Owner=N/A Partitions={partitions} BootTime=2026-11-01T00:00:00 CfgTRES=cpu=248,mem=515000M,billing=248 "
    "Reason=Not responding Sockets=7\n"
)
NODES = "".join(
    NODE.format(name=name, gres=gres, memory=memory, sockets=sockets, partitions=partitions)
    for name, gres, memory, sockets, partitions in (
        ("nid00001", "(null)", 1030000, 2, "cpu"),
        ("nid00002", "(null)", 515000, 2, "cpu,old"),
        ("nid00003", "(null)", 515000, 2, "cpu"),
        ("gpu01", "gpu:a100:4(S:0-1),craynetwork:4", 515000, 1, "gpu"),
    )
)
PLUGINS = "MPI plugin types are...\n\tnone\n\tpmi2\n\tcray_shasta\n"
ANSWERS = {
    "scontrol show config": CONFIG,
    "scontrol show partition -o": PARTITIONS,
    "scontrol show node -o": NODES,
    "srun --mpi=list": PLUGINS,
}


def test_nodes_are_physical_cores_memory_and_gpus():
    nodes = parse_nodes(NODES)
    partitions, kind = nodes[1]
    assert partitions == ["cpu", "old"]
    assert (kind.cores, kind.threads_per_core, kind.sockets, kind.reserved_cores) == (128, 2, 2, 4)
    assert kind.memory_gib == pytest.approx(502.93, abs=0.01)
    assert (kind.num_gpus, kind.gpu_model) == (0, None)
    assert (nodes[3][1].num_gpus, nodes[3][1].gpu_model, nodes[3][1].cores) == (4, "a100", 64)


def test_partitions_that_are_up_with_their_limits():
    cpu, gpu = parse_partitions(PARTITIONS, parse_nodes(NODES))
    assert (cpu.name, cpu.num_nodes, cpu.max_nodes) == ("cpu", 3, 2)
    assert (cpu.max_seconds, cpu.default_seconds) == (36 * 3600, 1800)
    assert (gpu.max_nodes, gpu.max_seconds, gpu.default_seconds) == (None, None, None)
    assert gpu.kinds[0].num_gpus == 4


def test_the_most_frequent_nodes_come_first():
    cpu = parse_partitions(PARTITIONS, parse_nodes(NODES))[0]
    assert [round(kind.memory_gib) for kind in cpu.kinds] == [503, 1006]


def test_nodes_that_will_come_later_do_not_count():
    announced = PARTITIONS.replace("TotalNodes=3", "TotalNodes=5")
    assert parse_partitions(announced, parse_nodes(NODES))[0].num_nodes == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:nvidia_a100-sxm4-40gb:4(S:0-1)", (4, "nvidia_a100-sxm4-40gb")),
        ("cpu:amd:1,gpu:h100:2(S:0,2-3),shard:8", (2, "h100")),
        ("gpu:4", (4, None)),
        ("gpu", (1, None)),
        ("gpu:k80:8,gpu:v100:2", (10, "k80")),
        ("gpu:a100:4,gpu:1", (5, "a100")),
        ("craynetwork:4", (0, None)),
        ("(null)", (0, None)),
        ("", (0, None)),
    ],
)
def test_gres(text, expected):
    assert parse_gres(text) == expected


def test_config_without_what_is_not_set():
    found = parse_config(CONFIG)
    assert found["ClusterName"] == "aurochs"
    assert "MpiParams" not in found


@pytest.mark.parametrize(
    ("default", "flavour", "options"),
    [
        ("cray_shasta", "mpich", ()),
        ("none", "mpich", ("--mpi=pmi2",)),
        ("none", "intelmpi", ("--mpi=pmi2",)),
        ("none", "openmpi", ()),  # pmix is not among the plugins
        ("none", None, ()),
    ],
)
def test_srun_is_told_how_to_connect_ranks_where_it_does_not_know(default, flavour, options):
    found, remark = mpi_options({"MpiDefault": default}, PLUGINS, flavour)
    assert found == options
    assert remark


def run_of(answers):
    return lambda *words: answers.get(" ".join(words), "")


def test_slurm_is_read_as_a_whole():
    slurm = read_slurm(run_of(ANSWERS), "mpich")
    assert (slurm.version, slurm.default, slurm.cluster) == ("23.02.6", "cpu", "aurochs")
    assert slurm.launch_options == ("--mpi=pmi2",)
    assert slurm.partition.name == "cpu"
    assert slurm.kind.cores == 128


@pytest.mark.parametrize("missing", ["scontrol show config", "scontrol show partition -o"])
def test_a_controller_that_does_not_answer_is_no_slurm(missing):
    answers = {words: text for words, text in ANSWERS.items() if words != missing}
    assert read_slurm(run_of(answers), None) is None


def test_without_a_default_the_largest_partition_is_taken():
    partitions = PARTITIONS.replace("Default=YES", "Default=NO")
    slurm = read_slurm(run_of(ANSWERS | {"scontrol show partition -o": partitions}), None)
    assert (slurm.default, slurm.partition.name) == (None, "cpu")


def test_without_nodes_the_partitions_are_left():
    slurm = read_slurm(run_of(ANSWERS | {"scontrol show node -o": ""}), None)
    assert [(partition.name, partition.num_nodes, partition.kinds) for partition in slurm.partitions] == [
        ("cpu", 3, ()),
        ("gpu", 1, ()),
    ]
    assert slurm.kind is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-12:00:00", 129600),
        ("00:30:00", 1800),
        ("336:00:00", 1209600),
        ("UNLIMITED", None),
        ("NONE", None),
        ("00:00:00", None),
        ("", None),
    ],
)
def test_clocks(text, seconds):
    assert parse_clock(text) == seconds


def test_numbers_that_no_node_has_count_as_unknown():
    line = f"NodeName=a Sockets=2 CoresPerSocket=4 RealMemory={'9' * 400} Gres=gpu:{'9' * 400} Partitions=a"
    ((_, kind),) = parse_nodes(line)
    assert (kind.cores, kind.memory_gib, kind.num_gpus) == (8, None, 1)
    assert default_partition("Default=YES") is None
