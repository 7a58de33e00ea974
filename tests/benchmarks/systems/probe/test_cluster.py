"""What schedulers say of their nodes, as scontrol(1), gres.conf(5), pbsnodes(8B) and qstat(1B) describe it."""

import pytest

from dlscale.benchmarks.systems.probe.cluster import parse_clock, parse_gres, read_cluster

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


def slurm(flavour=None, **changes):
    """Slurm as it answers, with some answers changed: config, partition, node."""
    answers = ANSWERS | {
        words: text for words, text in ANSWERS.items() for key in changes if key in words.split()
    }
    answers |= {words: changes[key] for words in ANSWERS for key in changes if key in words.split()}
    return read_cluster(lambda *words: answers.get(" ".join(words), ""), flavour)


def test_slurm_has_partitions_that_are_up_with_their_nodes_and_limits():
    cluster = slurm("mpich")
    assert (cluster.scheduler, cluster.launcher, cluster.default, cluster.name) == (
        "slurm",
        "srun",
        "cpu",
        "aurochs",
    )
    assert cluster.source.endswith("of Slurm 23.02.6")
    cpu, gpu = cluster.partitions
    assert (cpu.name, cpu.num_nodes, cpu.max_nodes) == ("cpu", 3, 2)
    assert (cpu.max_seconds, cpu.default_seconds) == (36 * 3600, 1800)
    assert (gpu.max_nodes, gpu.max_seconds, gpu.default_seconds) == (None, None, None)
    assert gpu.directives == ("--partition=gpu", "--gpus-per-node=4")
    # Physical cores; the most frequent nodes come first.
    assert [round(kind.memory_gib) for kind in cpu.kinds] == [503, 1006]
    assert (cluster.kind.cores, cluster.kind.threads_per_core, cluster.kind.sockets) == (128, 2, 2)
    assert (cluster.kind.reserved_cores, cluster.kind.num_gpus) == (4, 0)
    (accelerated,) = gpu.kinds
    assert (accelerated.num_gpus, accelerated.gpu_model, accelerated.cores) == (4, "a100", 64)


def test_nodes_that_will_come_later_do_not_count():
    announced = PARTITIONS.replace("TotalNodes=3", "TotalNodes=5")
    assert slurm(partition=announced).partitions[0].num_nodes == 3


def test_without_a_default_the_largest_partition_is_taken():
    cluster = slurm(partition=PARTITIONS.replace("Default=YES", "Default=NO"))
    assert (cluster.default, cluster.partition.name) == (None, "cpu")


def test_without_nodes_the_partitions_are_left():
    cluster = slurm(node="")
    assert [(partition.name, partition.num_nodes) for partition in cluster.partitions] == [
        ("cpu", 3),
        ("gpu", 1),
    ]
    assert cluster.kind is None


@pytest.mark.parametrize("silent", ["config", "partition"])
def test_a_controller_that_does_not_answer_is_no_cluster(silent):
    assert slurm(**{silent: ""}) is None


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
    cluster = slurm(
        flavour, config=CONFIG.replace("MpiDefault              = none", f"MpiDefault = {default}")
    )
    assert cluster.launch_options == options
    assert cluster.remarks[0]


PBS = {
    "pbsnodes -a": "".join(
        f"x{number}\n     Mom = x{number}\n     ntype = PBS\n     state = {state}\n     pcpus = 64\n"
        "     resources_available.arch = linux\n     resources_available.mem = 527672488kb\n"
        f"     resources_available.ncpus = 64\n     resources_available.ngpus = 4\n     sharing = default_shared\n\n"
        for number, state in enumerate(["free", "job-exclusive", "offline,down"])
    ),
    "qstat -Q -f": (
        "Queue: debug\n    queue_type = Execution\n    resources_max.nodect = 1\n"
        "    resources_max.walltime = 01:00:00\n"
        "    enabled = True\n    started = True\n\n"
        "Queue: prod\n    queue_type = Route\n    enabled = True\n    started = True\n\n"
        "Queue: old\n    queue_type = Execution\n    enabled = False\n    started = True\n\n"
    ),
}


@pytest.mark.parametrize(("pals", "launcher"), [(False, "mpiexec"), (True, "pals")])
def test_pbs_has_queues_that_take_jobs(pals, launcher):
    cluster = read_cluster(lambda *words: PBS.get(" ".join(words), ""), None, pals=pals)
    assert (cluster.scheduler, cluster.launcher, cluster.default) == ("pbs", launcher, "debug")
    (queue,) = cluster.partitions
    assert (queue.name, queue.num_nodes, queue.max_nodes, queue.max_seconds) == ("debug", 2, 1, 3600)
    assert queue.directives == ("-q debug",)
    assert (cluster.kind.cores, cluster.kind.num_gpus, round(cluster.kind.memory_gib)) == (64, 4, 503)
    assert "num_nodes counts all" in cluster.remarks[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:nvidia_a100-sxm4-40gb:4(S:0-1)", (4, "nvidia_a100-sxm4-40gb")),
        ("cpu:amd:1,gpu:h100:2(S:0,2-3),shard:8", (2, "h100")),
        ("gpu:4", (4, None)),
        ("gpu:0", (0, None)),
        ("gpu:no_consume:4", (4, None)),
        ("gpu:tesla:no_consume:2", (2, "tesla")),
        ("gpu:(null):4(S:0-3)", (4, None)),
        (f"gpu:{'9' * 400}", (1, None)),
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
