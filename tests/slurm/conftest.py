"""A real Slurm on this machine: one controller and two node daemons, which the tests start and end.

Everything lies in one folder of the test: keys, sockets, states and logs. Munge and Slurm come from Debian's packages
`munge` and `slurm-wlm`; nothing in /etc is read or written, and only loopback is listened on.
"""

import os
import secrets
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

NUM_NODES = 2
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
MinJobAge=30
KillWait=2
MpiDefault=pmi2
NodeName=nid0000[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs={cpus} RealMemory=1000
PartitionName=regular Nodes=ALL Default=YES MaxTime=60 State=UP OverSubscribe=EXCLUSIVE
"""
SYSTEM = """
name = "testbed"
title = "a Slurm on one machine"
scheduler = "slurm"
launcher = "srun"
partition = "regular"
[recognised]
variables = {{ SLURM_CONF = "{folder}/slurm.conf" }}
[sources]
test = "the test that wrote this file"
[node]
cores = {{ value = 1, source = "test" }}  # so that two nodes do not ask for more threads than there are
threads_per_core = {{ value = 1, source = "test" }}
[filesystem]
results = "$DLSCALE_TEST_RESULTS"
[partitions.regular]
num_nodes = {{ value = {nodes}, source = "test" }}
max_walltime = {{ value = "1 h", source = "test" }}
directives = ["--partition=regular"]
[placement]
ranks_per_node = 1
launch_options = ["--mpi=pmi2", "--oversubscribe"]
[environments.site]
prefix = "{prefix}"
mpi = "mpich"
setup = "make .venv"
"""


def free_ports(count: int) -> int:
    """The first of `count` ports in a row that nobody uses, below those that the kernel gives to connections."""
    for _ in range(100):
        first = 20_000 + secrets.randbelow(12_000)
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError(f"no {count} free ports in a row")


@dataclass
class Cluster:
    """The daemons, by name, and how a user reaches them."""

    folder: Path
    daemons: dict[str, subprocess.Popen] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        return {
            **os.environ,
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "DLSCALE_TEST_RESULTS": str(self.folder / "results"),
        }

    @property
    def system(self) -> Path:
        return self.folder / "testbed.toml"

    def start(self, name: str, *command: str) -> None:
        log = (self.folder / f"{name}.out").open("ab")
        self.daemons[name] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.variables
        )
        log.close()

    def start_controller(self) -> None:
        self.start("slurmctld", "slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))

    def start_node(self, number: int) -> None:
        name = f"nid{number:05d}"
        self.start(name, "slurmd", "-D", "-N", name, "-f", str(self.folder / "slurm.conf"))

    def end(self, name: str, *, politely: bool = True) -> None:
        daemon = self.daemons.pop(name)
        daemon.terminate() if politely else daemon.kill()
        try:
            daemon.wait(timeout=10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def slurm(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.variables, capture_output=True, text=True, check=False, timeout=30
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def wait_until_idle(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            done = subprocess.run(
                ["sinfo", "--noheader", "--format=%t %D"],
                env=self.variables,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.stdout.split() == ["idle", str(NUM_NODES)]:
                return
            time.sleep(0.2)
        logs = "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.out"))
        raise AssertionError(f"Slurm did not come up: {done.stdout} {done.stderr}\n{logs}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    found = Cluster(tmp_path_factory.mktemp("slurm"))
    folder = found.folder
    host = os.uname().nodename.partition(".")[0]
    cpus = os.cpu_count() or 1
    port = free_ports(1 + NUM_NODES)
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    (folder / "munge.key").chmod(0o600)
    values = {"folder": folder, "host": host, "port": port, "nodes": NUM_NODES, "cpus": cpus}
    (folder / "slurm.conf").write_text(CONFIG.format(first=port + 1, last=port + NUM_NODES, **values))
    found.system.write_text(SYSTEM.format(folder=folder, prefix=sys.prefix, nodes=NUM_NODES))
    try:
        found.start(
            "munged",
            *("munged", "--foreground", "--force", f"--socket={folder}/munge.socket"),
            *(
                f"--key-file={folder}/munge.key",
                f"--pid-file={folder}/munge.pid",
                f"--seed-file={folder}/munge.seed",
            ),
            f"--log-file={folder}/munge.log",
        )
        deadline = time.monotonic() + 10
        while not (folder / "munge.socket").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        found.start_controller()
        for number in range(1, NUM_NODES + 1):
            found.start_node(number)
        found.wait_until_idle()
        yield found
    finally:
        if found.daemons.get("slurmctld"):
            subprocess.run(["scancel", "--user=root"], env=found.variables, check=False, capture_output=True)
        for name in reversed(list(found.daemons)):
            found.end(name)
