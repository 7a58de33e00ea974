"""Several hosts on one machine: network namespaces joined by a bridge whose links carry 1 Gbit/s.

    with Hosts(4) as hosts:
        hosts.mpiexec(["./program"], ranks_per_host=1, limit_seconds=60)

    python tests/network/hosts.py [--hosts 4] [--ranks-per-host 1] PROGRAM [ARGUMENT ...]

Needs root and iproute2. Nothing of it is seen outside: the bridge lies in a namespace too, and no namespace has a
name. Each lives as long as a process that waits for its standard input to close, hence no longer than this one,
however this one ends.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

SUBNET = "10.231.0"
# tbf lets a burst through at full speed: small beside every message that is timed, large beside a packet.
SHAPE = ["tbf", "rate", "1gbit", "burst", "256kb", "latency", "50ms"]

# Without these UCX sees that the hosts are one, and takes shared memory: the links carry nothing then.
OVER_TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "all"}

WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]  # whatever ends the parent ends this too


def missing() -> str | None:
    """Why there can be no hosts here; None if there can."""
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    for program in ("ip", "tc", "unshare", "nsenter", "setpriv"):
        if not shutil.which(program):
            return f"no {program}: apt-get install iproute2 util-linux"
    with subprocess.Popen(["unshare", "--net", "true"], stderr=subprocess.PIPE, text=True) as trial:
        _, said = trial.communicate()
    return said.strip() if trial.returncode else None


class Hosts:
    """Hosts h1, h2, ... with a network of their own, from entering to leaving the context.

    Every rank that `mpiexec` starts sees the name, the link, the loopback and the processes of its host, no more.
    """

    def __init__(self, num_hosts: int) -> None:
        self.addresses = [f"{SUBNET}.{i}" for i in range(1, num_hosts + 1)]
        self._holders: list[subprocess.Popen[bytes]] = []  # the switch, then the hosts

    def __enter__(self) -> Hosts:
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def inside(self, host: int, command: Sequence[str]) -> list[str]:
        """`command` on host 1, 2, ...; host 0 is the switch."""
        pid = self._holders[host].pid
        return ["nsenter", f"--net=/proc/{pid}/ns/net", f"--uts=/proc/{pid}/ns/uts", *command]

    def mpiexec(
        self,
        command: Sequence[str],
        *,
        ranks_per_host: int = 1,
        limit_seconds: float = 120,
        environment: dict[str, str] | None = None,
        mpiexec: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` as MPICH ranks on all hosts, host by host, with messages over TCP.

        Output is captured, both streams in one. Raises TimeoutExpired, and ends the ranks, after `limit_seconds`.
        """
        with tempfile.TemporaryDirectory() as folder:
            # Started on the switch: hydra would start ranks on its own host in its own way.
            full = [*WITH_PARENT, *self.inside(0, [])]
            full += [mpiexec or str(Path(sys.prefix) / "bin" / "mpiexec")]
            full += self.launch_options(Path(folder))
            full += ["-hosts", ",".join(self.addresses), "-ppn", str(ranks_per_host)]
            full += ["-n", str(ranks_per_host * len(self.addresses)), *command]
            process = subprocess.Popen(
                full,
                env={**os.environ, **OVER_TCP, **(environment or {})},
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

    def launch_options(self, folder: Path) -> list[str]:
        """Options by which MPICH's mpiexec reaches the hosts; a program that it needs is written into `folder`."""
        launcher = folder / "launcher"
        launcher.write_text(self._launcher())
        launcher.chmod(0o700)
        return ["-launcher", "ssh", "-launcher-exec", str(launcher), "-iface", "eth0"]

    def _build(self) -> None:
        for _ in range(len(self.addresses) + 1):
            holder = subprocess.Popen(
                ["unshare", "--net", "--uts", "sh", "-c", "echo; exec cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            self._holders.append(holder)
            assert holder.stdout is not None
            if not holder.stdout.readline():  # it is in its namespace from this line on
                raise RuntimeError("unshare made no network namespace")
        self._ip(0, "link", "add", "eth0", "type", "bridge")
        self._ip(0, "address", "add", f"{SUBNET}.254/24", "dev", "eth0")
        self._ip(0, "link", "set", "eth0", "up")
        for host, address in enumerate(self.addresses, start=1):
            self._connect(host, address)

    def _connect(self, host: int, address: str) -> None:
        pid = str(self._holders[host].pid)
        self._run(host, "hostname", f"h{host}")
        self._ip(0, "link", "add", f"h{host}", "type", "veth", "peer", "name", "eth0", "netns", pid)
        self._ip(0, "link", "set", f"h{host}", "master", "eth0", "up")
        self._ip(host, "link", "set", "lo", "up")
        self._ip(host, "address", "add", f"{address}/24", "dev", "eth0")
        self._ip(host, "link", "set", "eth0", "up")
        for where, device in ((0, f"h{host}"), (host, "eth0")):
            self._run(where, "tc", "qdisc", "add", "dev", device, "root", *SHAPE)
        # Others (bbr) pace by timers that a busy machine misses, and only reno is allowed in every namespace.
        self._run(host, "sh", "-c", "echo reno > /proc/sys/net/ipv4/tcp_congestion_control")

    def _ip(self, host: int, *arguments: str) -> None:
        self._run(host, "ip", *arguments)

    def _run(self, host: int, *command: str) -> None:
        done = subprocess.run(self.inside(host, command), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")

    def _launcher(self) -> str:
        """What hydra calls in place of ssh: [options] address command ..."""
        lines = ["#!/bin/sh", 'while [ "${1#-}" != "$1" ]; do shift; done', "address=$1", "shift"]
        lines.append("case $address in")
        for host, address in enumerate(self.addresses, start=1):
            # A process namespace ends with its first process, that one with unshare, and unshare with mpiexec.
            fall = [
                *WITH_PARENT,
                *self.inside(host, ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]),
            ]
            lines.append(f'  {address}) exec {" ".join(fall)} sh -c "$*" ;;')
        return "\n".join([*lines, "esac", ""])

    def _remove(self) -> None:
        for holder in self._holders:
            assert holder.stdin is not None
            assert holder.stdout is not None
            holder.stdin.close()
            holder.wait()
            holder.stdout.close()
        self._holders = []


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
    with Hosts(arguments.hosts) as hosts:
        try:
            done = hosts.mpiexec(
                arguments.command,
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
