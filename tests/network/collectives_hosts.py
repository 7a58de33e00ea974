"""`dlscale collectives` between emulated hosts that have all cores each, joined by links of 1 Gbit/s; needs root.

python tests/network/collectives_hosts.py [--hosts 2] [OPTION ...]      options of dlscale collectives
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SYSTEM = """
name = "hosts"
title = "{num_hosts} emulated hosts"
scheduler = "emulated"
launcher = "mpiexec"
partition = "all"
sources.own = "this file"
node.cores = {{ value = {cores}, source = "own" }}
emulation.queue = {{ value = "6 MB", source = "own" }}
partitions.all.num_nodes = {{ value = {num_hosts}, source = "own" }}

[fabric]
name = {{ value = "veth", source = "own" }}
bandwidth = {{ value = "1 Gb/s", source = "own" }}

[placement]
ranks_per_node = 1
# Without these UCX sees that the hosts are one, and Gloo looks for an address by their names.
variables = {{ UCX_TLS = "tcp,self", UCX_NET_DEVICES = "all", GLOO_SOCKET_IFNAME = "eth0" }}

[environments.current]
prefix = "current"
setup = "none"
"""


def write_system(folder: Path, *, num_hosts: int) -> Path:
    """The file of the system that the hosts are."""
    path = folder / "hosts.toml"
    path.write_text(SYSTEM.format(num_hosts=num_hosts, cores=len(os.sched_getaffinity(0))))
    return path


def main() -> int:
    """One run on all hosts."""
    parser = argparse.ArgumentParser(description="dlscale collectives between emulated hosts", add_help=False)
    parser.add_argument("--hosts", type=int, default=2)
    arguments, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as name:
        system = write_system(Path(name), num_hosts=arguments.hosts)
        words = ["collectives", "--system", str(system), "--nodes", str(arguments.hosts), *options]
        return subprocess.run([str(Path(sys.prefix) / "bin" / "dlscale"), *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
