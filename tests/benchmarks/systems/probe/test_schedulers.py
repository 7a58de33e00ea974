"""PBS, Torque, LSF, Flux and Cobalt: texts as their reference guides show them, and what is made of them."""

import pytest

from dlscale.benchmarks.systems.probe import cobalt, flux, lsf, pbs
from dlscale.benchmarks.systems.probe.batch import duration, parse_clock


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


@pytest.mark.parametrize(
    ("seconds", "text"), [(129600, "36 h"), (1800, "30 min"), (90, "90 s"), (5400, "90 min")]
)
def test_durations_have_units(seconds, text):
    assert duration(seconds) == text


# PBS Professional Reference Guide, qstat and pbsnodes.
PBS = {
    "qstat --version": "pbs_version = 2022.1.5\n",
    "qstat -Bf": "Server: pbs01\n    server_state = Active\n    default_queue = workq\n    pbs_version = 2022.1.5\n",
    "qstat -Qf": """Queue: workq
    queue_type = Execution
    total_jobs = 3
    state_count = Transit:0 Queued:0 Held:0 Waiting:0 Running:3 Exiting:0 Begun
\t:0
    resources_max.nodect = 2
    resources_max.walltime = 48:00:00
    resources_default.walltime = 01:00:00
    enabled = True
    started = True

Queue: gpu
    queue_type = Execution
    enabled = True
    started = True

Queue: closed
    queue_type = Execution
    enabled = True
    started = False

Queue: route
    queue_type = Route
    route_destinations = workq,gpu
    enabled = True
    started = True
""",
    "pbsnodes -a": """n001
     Mom = n001.cluster
     state = free
     pcpus = 68
     resources_available.host = n001
     resources_available.mem = 100663296kb
     resources_available.ncpus = 68
     resources_available.Qlist = workq

n002
     state = job-busy
     resources_available.host = n002
     resources_available.mem = 96gb
     resources_available.ncpus = 68
     resources_available.Qlist = workq

n003[0]
     state = free
     resources_available.host = n003
     resources_available.mem = 256gb
     resources_available.ncpus = 32
     resources_available.ngpus = 2
     resources_available.Qlist = gpu

n003[1]
     state = free
     resources_available.host = n003
     resources_available.mem = 256gb
     resources_available.ncpus = 32
     resources_available.ngpus = 2
     resources_available.Qlist = gpu
""",
}
# Torque Administrator Guide 6.1, pbsnodes and qstat.
TORQUE = {
    "qstat --version": "Version: 6.1.2\nCommit: 661e092552de43a785c15d39a3634a541d86898e\n",
    "qstat -Bf": "Server: head\n    server_state = Active\n    default_queue = batch\n    pbs_version = 6.1.2\n",
    "qstat -Qf": """Queue: batch
    queue_type = Execution
    resources_max.walltime = 28800
    resources_default.nodes = 1
    enabled = True
    started = True
""",
    "pbsnodes -a": """cn01
     state = free
     power_state = Running
     np = 28
     properties = compute
     ntype = cluster
     status = rectime=1480000000,macaddr=00:00,ncpus=56,physmem=131906380kb,loadave=0.00,opsys=linux
     mom_service_port = 15002
     total_sockets = 2
     total_numa_nodes = 2
     total_cores = 28
     total_threads = 56
     gpus = 4

cn02
     state = down
     np = 28
     ntype = cluster
""",
}


def test_pbs(told):
    batch = pbs.read_pbs(told(answers=PBS))
    assert (batch.scheduler, batch.launcher, batch.default) == ("pbs", "mpiexec", "workq")
    workq, gpu = batch.queues
    assert (workq.name, workq.num_nodes, workq.max_nodes) == ("workq", 2, 2)
    assert (workq.max_seconds, workq.default_seconds) == (48 * 3600, 3600)
    assert [(kind.cores, kind.memory_gib, kind.num_gpus) for kind in workq.kinds] == [(68, 96, 0)]
    assert (gpu.name, gpu.num_nodes, gpu.max_seconds) == ("gpu", 1, None)
    assert [(kind.cores, kind.memory_gib, kind.num_gpus) for kind in gpu.kinds] == [(64, 512, 4)]
    assert workq.directives == ("-q workq",)


def test_torque(told):
    batch = pbs.read_pbs(told(answers=TORQUE | {"aprun": ""}))
    assert (batch.scheduler, batch.launcher, batch.default) == ("torque", "aprun", "batch")
    (queue,) = batch.queues
    assert (queue.num_nodes, queue.max_seconds) == (2, 28800)
    kind = queue.kinds[0]
    assert (kind.cores, kind.threads_per_core, kind.sockets, kind.num_gpus) == (28, 2, 2, 4)
    assert kind.memory_gib == pytest.approx(125.8, abs=0.01)


def test_a_value_that_goes_on_in_the_next_line():
    blocks = pbs.parse_blocks("Queue: long\n    acl_users = alice,bob,pe\n\tggy,trent\n    enabled = True\n")
    assert blocks == {"long": {"acl_users": "alice,bob,peggy,trent", "enabled": "True"}}


# IBM Spectrum LSF Command Reference 10.1: lsid, bparams, bqueues -l, lshosts -w.
LSF = {
    "lsid": "IBM Spectrum LSF Standard 10.1.0.13, Apr 15 2022\n\nMy cluster name is peak\nMy master name is batch5\n",
    "bparams": "Default Queues:  batch interactive\nMBD_SLEEP_TIME used for calculations:  20 seconds\n",
    "bqueues -l": """
QUEUE: batch
  -- The default queue

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
 30    0  Open:Active       -    -    -    -     4     0     4     0     0    0     0

DEFAULT LIMITS:
 RUNLIMIT
 10.0 min of batch5

MAXIMUM LIMITS:
 RUNLIMIT
 2160.0 min of batch5

USERS: all
HOSTS:  compute/
------------------------------------------------------------------------------

QUEUE: endless

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
 20    0  Open:Active       -    -    -    -     0     0     0     0     0    0     0

USERS: all
------------------------------------------------------------------------------

QUEUE: maintenance

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
 20    0  Closed:Inact     -    -    -    -     0     0     0     0     0    0     0
""",
    "lshosts -w": """HOST_NAME                       type       model  cpuf ncpus maxmem maxswp server RESOURCES
batch5                       LINUXPPC64LE  POWER9  25.0    32 251.1G      -    Yes (mg)
h36n01                       LINUXPPC64LE  POWER9  25.0    44 606.7G      -    Yes (cn)
h36n02                       LINUXPPC64LE  POWER9  25.0    44 606.7G      -    Dyn (cn)
login1                       LINUXPPC64LE  POWER9  25.0    40 251.1G      -     No ()
login2                       UNKNOWN   UNKNOWN_    1.0     -      -      -     No ()
""",
}


def test_lsf(told):
    batch = lsf.read_lsf(told(answers=LSF | {"jsrun": ""}))
    assert (batch.scheduler, batch.launcher, batch.default, batch.cluster) == (
        "lsf",
        "jsrun",
        "batch",
        "peak",
    )
    assert "LSF 10.1.0.13" in batch.told_by
    queue, endless = batch.queues
    assert (queue.max_seconds, queue.default_seconds, queue.num_nodes) == (2160 * 60, 600, 3)
    assert (endless.name, endless.max_seconds, endless.default_seconds) == ("endless", None, None)
    assert [(kind.cores, kind.memory_gib) for kind in queue.kinds] == [(44, 606.7), (32, 251.1)]
    assert lsf.read_lsf(told(answers=LSF)).launcher == "mpiexec"
    assert lsf.read_lsf(told(answers={"lsid": "Failed in an LSF library call"})) is None


# flux-queue(1): name with * for the default, submission, default and largest time, largest job, totals
FLUX = (
    "pdebug|enabled|30m|1h|2|8|768|32\n"
    "pbatch*|enabled|1.5h|1d|inf|100|9600|400\n"
    "pall|disabled|inf|inf|inf|108|10368|432\n"
    "none|enabled|inf|inf|inf|0|0|0\n"
)


def test_flux(told):
    command = f"flux queue list -n -o {flux.FORMAT}"
    batch = flux.read_flux(told(answers={command: FLUX}))
    debug, queue = batch.queues
    assert (batch.default, batch.queue.name) == ("pbatch", "pbatch")
    assert (debug.max_nodes, debug.max_seconds, debug.default_seconds) == (2, 3600, 1800)
    assert (queue.max_nodes, queue.max_seconds, queue.default_seconds) == (None, 86400, 5400)
    assert (queue.num_nodes, queue.kinds[0].cores, queue.kinds[0].num_gpus) == (100, 96, 4)
    assert queue.directives == ("--queue=pbatch",)
    assert flux.read_flux(told(answers={command: ""})) is None


def test_flux_without_named_queues():
    queues, default = flux.parse_queues("|enabled|inf|inf|inf|4|8|0\n")
    assert default == queues[0].name == "default"
    assert queues[0].directives == ()
    assert queues[0].max_seconds is None


# Cobalt's qstat(1); which columns there are depends on its version.
COBALT = """Name              Users  MinTime   MaxTime     MaxRunning  TotalNodes  State
===================================================================================
default           None   00:15:00  1-00:00:00  None        4392        running
debug-cache-quad  None   None      01:00:00    1           None        running
backfill          a:b    None      None        None        None        draining
"""


def test_cobalt(told):
    answers = {"qstat --version": "qstat 406\nCobalt version 1.0.32\n", "qstat -Q": COBALT, "aprun": ""}
    batch = cobalt.read_cobalt(told(answers=answers))
    assert (batch.scheduler, batch.launcher, batch.default) == ("cobalt", "aprun", "default")
    default, debug = batch.queues
    assert (default.num_nodes, debug.num_nodes, debug.max_seconds) == (4392, None, 3600)
    assert debug.directives == ("-q debug-cache-quad",)
    assert cobalt.read_cobalt(told(answers=PBS)) is None
    assert pbs.read_pbs(told(answers=answers)) is None


@pytest.mark.parametrize(
    "parse",
    [
        pbs.parse_nodes,
        pbs.parse_blocks,
        lsf.parse_hosts,
        lambda text: lsf.parse_queues(text, []),
        cobalt.parse_queues,
        lambda text: pbs.parse_queues(text, []),
        lambda text: flux.parse_queues(text)[0],
    ],
)
@pytest.mark.parametrize(
    "text", ["", "\n\n", "command not found\n", "qstat: illegal option -- Q\nusage:\n  qstat\n\t= ="]
)
def test_other_words_are_nothing(parse, text):
    assert not parse(text)
