"""Hosts on this machine for one launch: network namespaces joined by a switch, each by a link of limited rate.

    python -m dlscale.benchmarks.launch.hosts --hosts 4 --rate 25e6 mpiexec -n 4 -hosts 10.231.0.1,10.231.0.2 ...

builds the hosts h1, h2, ... and becomes that mpiexec (MPICH's or Intel's), which runs on the switch. Each rank sees the
name, the link, the loopback and the /dev/shm of its host.

Nothing of it is seen outside, and nothing can be left behind: no namespace has a name or a process of its own. They
live as long as the descriptors that mpiexec and its ranks inherit, hence no longer than these, however they end.

A process on them that was stopped, or that a debugger holds, may stay; it is told by the variable `OWNER`, which all
processes on hosts inherit (`leftovers`).

Imports nothing heavy: every launch on emulated hosts starts with it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dlscale.base.errors import UsageError

if TYPE_CHECKING:
    from dlscale.benchmarks.systems.system import System

SUBNET = "10.231.0"
LINK = "eth0"
PROGRAMS = ("ip", "tc", "unshare", "nsenter", "setpriv", "taskset", "mount")
# tbf lets a burst through at full speed: small beside every message that is timed, and larger than a packet of 64 KiB.
BURST_BYTES = 80 * 1024
QUEUE_BYTES = 1_000_000
CONGESTION_CONTROL = "reno"  # others may be refused in namespaces, and bbr's timers need an idle machine
SYSCTL = Path("/proc/sys/net/ipv4")
OWNER = (
    "EMULATED_HOSTS_OF"  # variable of all that runs on hosts: `owner` of the process that started the launch
)
END_SECONDS = 10.0  # in which a killed process must be gone
WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]  # whatever ends the parent ends this too

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWUTS, _CLONE_NEWNET = 0x04000000, 0x40000000

_TRIED = ("unshare", "--net", "--uts", "--mount", "sh", "-c")
_TRIAL = f"""
mount -t tmpfs none /dev/shm && mount --bind /dev/null /etc/hosts &&
ip link add {LINK} type bridge && ip link add h1 type veth peer name p1 &&
tc qdisc add dev h1 root tbf rate 100mbit burst {BURST_BYTES} limit 1000000
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsShape:
    """What hosts there are. Rates are per direction; `slow_links` has host -> share of the rate, hosts count from 1."""

    num_hosts: int
    bytes_per_second: float
    queue_bytes: int = QUEUE_BYTES
    congestion_control: str = CONGESTION_CONTROL
    slow_links: Mapping[int, float] = field(default_factory=dict)
    cores_per_host: int = 0  # 0: each host has all cores of this machine
    own_processes: bool = (
        False  # each host sees its own processes only, and they end with mpiexec without being asked
    )

    def prefix(self, python: str) -> list[str]:
        """The words in front of an mpiexec that is to run on these hosts."""
        words = ["--hosts", str(self.num_hosts), "--rate", f"{self.bytes_per_second:g}"]
        words += ["--queue", str(self.queue_bytes), "--congestion-control", self.congestion_control]
        for host, share in self.slow_links.items():
            words += ["--slow-link", f"{host}:{share:g}"]
        if self.cores_per_host:
            words += ["--cores-per-host", str(self.cores_per_host)]
        return [python, "-P", "-m", __spec__.name, *words, *["--own-processes"] * self.own_processes]


def hosts_of(system: System, *, num_hosts: int) -> HostsShape:
    """The first hosts of an emulated system, as its file describes them."""
    bandwidth, emulation = system.fabric.bandwidth if system.fabric else None, system.emulation
    if bandwidth is None or emulation is None:
        raise ValueError(f"{system.name} has no emulated hosts")
    return HostsShape(
        num_hosts=num_hosts,
        bytes_per_second=bandwidth.number,
        queue_bytes=round(emulation.queue.number),
        congestion_control=emulation.congestion_control,
        slow_links={host: share for host, share in emulation.slow_links.items() if host <= num_hosts},
        cores_per_host=system.num_cores(),
    )


def addresses(num_hosts: int) -> tuple[str, ...]:
    """The addresses of hosts 1, 2, ..., by which mpiexec names them."""
    return tuple(f"{SUBNET}.{host}" for host in range(1, num_hosts + 1))


def missing(congestion_control: str = CONGESTION_CONTROL) -> str | None:
    """Why there can be no such hosts here; None if there can."""
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    for program in PROGRAMS:
        if not shutil.which(program):
            return f"no {program}: apt-get install iproute2 util-linux"
    allowed = (SYSCTL / "tcp_allowed_congestion_control").read_text(encoding="ascii").split()
    if congestion_control not in allowed:
        return f"the kernel allows no congestion control {congestion_control} in namespaces, only {', '.join(allowed)}"
    trial = subprocess.run([*_TRIED, _TRIAL], capture_output=True, text=True, errors="replace", check=False)
    reason = (trial.stderr.strip().splitlines() or [f"status {trial.returncode}"])[0]
    return (
        f"this machine permits no network namespaces with shaped links: {reason}"
        if trial.returncode
        else None
    )


def check_possible(system: System) -> None:
    """Raises UsageError where this machine cannot be the hosts of an emulated system."""
    if reason := missing(system.emulation.congestion_control if system.emulation else CONGESTION_CONTROL):
        raise UsageError(
            f"--system {system.name}: {reason}; use --system local, or run it as root on a Linux machine of your own"
        )


def owner(pid: int) -> str:
    """`PID:TICKS`, a process and when it started since the machine did: numbers of processes come again.

    Raises OSError if there is no such process.
    """
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return f"{pid}:{fields[19]}"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that outlived its study; `command` is its program without arguments, which may hold paths of users."""

    pid: int
    command: str


def leftovers() -> Iterator[Leftover]:
    """Processes of this user, of all users for root, on hosts whose study no longer runs."""
    import psutil  # not where a launch starts

    for process in psutil.process_iter():
        try:
            mark = process.environ().get(OWNER)
            if mark and process.status() != psutil.STATUS_ZOMBIE and not _lives(mark):
                yield Leftover(process.pid, process.name())
        except psutil.Error:
            continue  # ended meanwhile, or another user's


def end_leftovers(found: Sequence[Leftover]) -> None:
    """Kill these processes and wait until they are gone. Raises UsageError if one stays."""
    import psutil

    living = []
    for leftover in found:
        try:
            process = psutil.Process(leftover.pid)
            process.kill()
            living.append(process)
        except psutil.NoSuchProcess:
            continue
    if stuck := psutil.wait_procs(living, timeout=END_SECONDS)[1]:
        raise UsageError(
            f"process {stuck[0].pid} is still there {END_SECONDS:g} s after it was killed: the kernel waits for a "
            "device or a file system; see ps and dmesg"
        )


def _lives(mark: str) -> bool:
    try:
        return owner(int(mark.partition(":")[0])) == mark
    except (OSError, ValueError):
        return False


def main() -> None:
    """Make hosts and become the command; exit status 1 with one line if they cannot be made."""
    parser = argparse.ArgumentParser(description="Run an mpiexec on emulated hosts of this machine")
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="bytes per second of a link, per direction")
    parser.add_argument("--queue", type=int, default=QUEUE_BYTES, help="bytes that a link holds back")
    parser.add_argument("--congestion-control", default=CONGESTION_CONTROL)
    parser.add_argument("--slow-link", action="append", default=[], help="HOST:SHARE of the rate, e.g. 3:0.5")
    parser.add_argument(
        "--cores-per-host", type=int, default=0, help="cores of a host; 0: all of the machine's"
    )
    parser.add_argument("--own-processes", action="store_true", help="a namespace of processes for each host")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    pairs = (word.split(":") for word in asked.slow_link)
    shape = HostsShape(
        num_hosts=asked.hosts,
        bytes_per_second=asked.rate,
        queue_bytes=asked.queue,
        congestion_control=asked.congestion_control,
        slow_links={int(host): float(share) for host, share in pairs},
        cores_per_host=asked.cores_per_host,
        own_processes=asked.own_processes,
    )
    try:
        if reason := missing(shape.congestion_control):
            raise UsageError(reason)
        launcher = _build(shape)
    except (UsageError, OSError) as error:
        sys.exit(f"dlscale: no emulated hosts: {error}")
    program, *rest = asked.command
    os.environ[OWNER] = owner(os.getppid())
    # Hydra would start ranks on its own host in its own way; all hosts are others to it, as it runs on the switch.
    os.execvp(program, [program, "-launcher", "ssh", "-launcher-exec", launcher, "-iface", LINK, *rest])  # noqa: S606


def _build(shape: HostsShape) -> str:
    """Make the hosts, leave this process on their switch, and return the path of the program that reaches them."""
    spaces = [_new_host("switch" if host == 0 else f"h{host}") for host in range(shape.num_hosts + 1)]
    _enter(spaces[0])
    pid = os.getpid()
    links = range(1, shape.num_hosts + 1)
    _batch(
        "ip", [f"link add {LINK} type bridge", f"address add {SUBNET}.254/24 dev {LINK}", "link set lo up"]
    )
    for host in links:
        net = f"/proc/{pid}/fd/{spaces[host][0]}"
        _batch("ip", [
            f"link add h{host} type veth peer name {LINK} netns {net}",
            f"link set h{host} master {LINK} up",
        ])  # fmt: skip
    _batch("tc", [_limit(f"h{host}", host, shape) for host in links])
    _batch("ip", [f"link set {LINK} up"])
    for host, address in zip(links, addresses(shape.num_hosts), strict=True):
        _enter(spaces[host])
        _batch("ip", ["link set lo up", f"address add {address}/24 dev {LINK}", f"link set {LINK} up"])
        _batch("tc", [_limit(LINK, host, shape)])
        (SYSCTL / "tcp_congestion_control").write_text(shape.congestion_control, encoding="ascii")
    _enter(spaces[0])
    return _launcher(shape, pid, spaces)


def _new_host(name: str) -> tuple[int, int]:
    """Descriptors of a new network and of a new name, which the programs that follow inherit."""
    if _LIBC.unshare(_CLONE_NEWNET | _CLONE_NEWUTS):
        raise UsageError(f"unshare: {os.strerror(ctypes.get_errno())}")
    socket.sethostname(name)
    spaces = tuple(os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in ("net", "uts"))
    for descriptor in spaces:
        os.set_inheritable(descriptor, True)
    return spaces[0], spaces[1]


def _enter(spaces: tuple[int, int]) -> None:
    for descriptor in spaces:
        if _LIBC.setns(descriptor, 0):
            raise UsageError(f"setns: {os.strerror(ctypes.get_errno())}")


def _batch(program: str, lines: Sequence[str]) -> None:
    done = subprocess.run(
        [program, "-batch", "-"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise UsageError(f"{program}: {' '.join((done.stderr or done.stdout).split())}")


def _limit(device: str, host: int, shape: HostsShape) -> str:
    """What makes a device send at the rate of the host's link."""
    bits = round(8 * shape.bytes_per_second * shape.slow_links.get(host, 1.0))
    return f"qdisc add dev {device} root tbf rate {bits}bit burst {BURST_BYTES} limit {shape.queue_bytes}"


def _launcher(shape: HostsShape, pid: int, spaces: Sequence[tuple[int, int]]) -> str:
    """A script in memory that Hydra calls in place of ssh: [options] address command ..."""
    names = "".join(
        f"{address} h{host}\\n" for host, address in enumerate(addresses(shape.num_hosts), start=1)
    )
    own = f"mount -t tmpfs -o mode=1777 none /dev/shm && printf '127.0.0.1 localhost\\n{names}' > /dev/shm/hosts"
    own += ' && mount --bind /dev/shm/hosts /etc/hosts && exec sh -c "$1"'
    lines = ["#!/bin/sh", 'while [ "${1#-}" != "$1" ]; do shift; done', "address=$1", "shift"]
    lines.append("case $address in")
    for host, address in enumerate(addresses(shape.num_hosts), start=1):
        net, uts = (f"/proc/{pid}/fd/{descriptor}" for descriptor in spaces[host])
        words = [*WITH_PARENT, *_on_cores(host, shape), "nsenter", f"--net={net}", f"--uts={uts}"]
        # A process namespace ends with its first process, that one with unshare, and unshare with mpiexec.
        apart = ["--pid", "--fork", "--kill-child", "--mount-proc"] if shape.own_processes else []
        words += ["unshare", "--mount", *apart, "sh", "-c", own, "sh"]
        lines.append(f'  {address}) exec {shlex.join(words)} "$*" ;;')
    script = os.memfd_create("launcher", 0)  # inherited, and no file that somebody must remove
    os.write(script, "\n".join([*lines, "esac", ""]).encode())
    os.fchmod(script, 0o500)
    return f"/proc/{pid}/fd/{script}"


def _on_cores(host: int, shape: HostsShape) -> list[str]:
    """Host after host takes the next cores that this process may use, from the first one again at the end."""
    if not shape.cores_per_host:
        return []
    allowed = sorted(os.sched_getaffinity(0))
    first = (host - 1) * shape.cores_per_host
    own = {allowed[(first + offset) % len(allowed)] for offset in range(shape.cores_per_host)}
    return ["taskset", "--cpu-list", ",".join(map(str, sorted(own)))]


if __name__ == "__main__":
    main()
