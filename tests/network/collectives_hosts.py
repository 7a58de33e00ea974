"""`dlscale collectives` between emulated hosts (hosts.py), each of one CPU, joined by links of 1 Gbit/s; needs root.

    python tests/network/collectives_hosts.py [--hosts 2] [OPTION ...]      options of dlscale collectives

The hosts are described as a system whose jobs have them all, and the command runs as in such a job.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WIRE = "1 Gb/s"
SYSTEM = """
name = "hosts"
title = "{num_hosts} emulated hosts"
scheduler = "pbs"
launcher = "mpiexec"
partition = "all"
sources.own = "tests/network/hosts.py"
node.cores = {{ value = {cores}, source = "own", kind = "text" }}
filesystem.results = "results"
partitions.all.num_nodes = {{ value = {num_hosts}, source = "own", kind = "text" }}

[fabric]
name = {{ value = "veth", source = "own", kind = "text" }}
bandwidth = {{ value = "{wire}", source = "own", kind = "text" }}

[placement]
ranks_per_node = 1
launch_options = {options}
# Without these UCX sees that the hosts are one, and Gloo looks for an address by their names.
variables = {{ UCX_TLS = "tcp,self", UCX_NET_DEVICES = "all", GLOO_SOCKET_IFNAME = "eth0" }}

[environments.current]
prefix = "current"
setup = "none"
"""


def write_system(folder: Path, *, num_hosts: int, launch_options: list[str]) -> Path:
    """The file of the system that the hosts are."""
    path = folder / "hosts.toml"
    cores, options = len(os.sched_getaffinity(0)), json.dumps(launch_options)
    path.write_text(SYSTEM.format(num_hosts=num_hosts, cores=cores, options=options, wire=WIRE))
    return path


def main() -> int:
    """One run on all hosts."""
    from hosts import Hosts, missing

    parser = argparse.ArgumentParser(description="dlscale collectives between emulated hosts", add_help=False)
    parser.add_argument("--hosts", type=int, default=2)
    arguments, options = parser.parse_known_args()
    if reason := missing():
        sys.stderr.write(f"no hosts can be made here: {reason}\n")
        return 1
    with tempfile.TemporaryDirectory() as name, Hosts(arguments.hosts) as hosts:
        folder = Path(name)
        system = write_system(folder, num_hosts=arguments.hosts, launch_options=hosts.launch_options(folder))
        nodes = folder / "nodes"
        nodes.write_text("".join(f"{address}\n" for address in hosts.addresses))
        words = ["collectives", "--system", str(system), "--nodes", str(arguments.hosts), *options]
        done = subprocess.run(
            hosts.inside(0, [str(Path(sys.prefix) / "bin" / "dlscale"), *words]),
            env={**os.environ, "PBS_NODEFILE": str(nodes)},
            check=False,
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
