"""Programs as MPICH ranks on several hosts of this machine, joined by links of 1 Gbit/s (benchmarks/launch/hosts.py).

    python tests/network/hosts.py [--hosts 4] [--ranks-per-host 1] PROGRAM [ARGUMENT ...]

Needs root and iproute2. Ranks see the processes of their host only, and end with mpiexec however it ends.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlscale.benchmarks.launch.hosts import WITH_PARENT, HostsShape, addresses, missing

BYTES_PER_SECOND = 125e6
# Without these UCX sees that the hosts are one, and takes shared memory: the links carry nothing then.
OVER_TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "all"}


def run_on_hosts(
    command: Sequence[str],
    *,
    num_hosts: int,
    ranks_per_host: int = 1,
    limit_seconds: float = 120,
    slow_links: Mapping[int, float] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command` as MPICH ranks on that many hosts, host by host, with messages over TCP.

    Output is captured, both streams in one. Raises TimeoutExpired, and ends the ranks, after `limit_seconds`.
    """
    shape = HostsShape(
        num_hosts=num_hosts,
        bytes_per_second=BYTES_PER_SECOND,
        queue_bytes=6_000_000,
        slow_links=slow_links or {},
        own_processes=True,
    )
    full = [*WITH_PARENT, *shape.prefix(sys.executable), str(Path(sys.prefix) / "bin" / "mpiexec")]
    full += ["-hosts", ",".join(addresses(num_hosts)), "-ppn", str(ranks_per_host)]
    full += ["-n", str(ranks_per_host * num_hosts), *command]
    process = subprocess.Popen(
        full,
        env={**os.environ, **OVER_TCP},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=limit_seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return subprocess.CompletedProcess(full, process.returncode, said)


def main() -> int:
    """Run a program on the hosts; its output and exit status are passed on."""
    parser = argparse.ArgumentParser(
        description="Run a program as MPICH ranks on several hosts of one machine"
    )
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--limit-seconds", type=float, default=120)
    parser.add_argument("--missing", action="store_true", help="only say why there can be no hosts, if so")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    reason = missing()
    if reason:
        sys.stderr.write(f"{reason}\n")
        return 1
    if arguments.missing:
        return 0
    try:
        done = run_on_hosts(
            arguments.command,
            num_hosts=arguments.hosts,
            ranks_per_host=arguments.ranks_per_host,
            limit_seconds=arguments.limit_seconds,
        )
    except subprocess.TimeoutExpired as error:
        said = error.output or b""
        sys.stdout.write(said.decode() if isinstance(said, bytes) else said)
        sys.stderr.write(f"ended after {error.timeout:.0f} s\n")
        return 124
    sys.stdout.write(done.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
