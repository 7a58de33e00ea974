"""Hosts on this machine for one launch: network namespaces joined by a switch, each by a link of limited rate.

    python -m tests.network.hosts 4 mpiexec -n 4 -hosts 10.231.0.1,10.231.0.2 ...

builds the hosts h1, h2, ... and becomes that mpiexec (MPICH's or Intel's), which runs on the switch. Each rank sees the
name, the link, the loopback, the processes and the /dev/shm of its host.

Nothing of it is seen outside, and nothing can be left behind: no namespace has a name or a process of its own. They
live as long as the descriptors that mpiexec and its ranks inherit, hence no longer than these, however they end.
"""

import ctypes
import os
import shlex
import shutil
import socket
import subprocess
import sys

SUBNET = "10.231.0"
LINK = "eth0"
PROGRAMS = ("ip", "tc", "unshare", "nsenter", "setpriv", "mount")
BYTES_PER_SECOND = 125e6  # of a link, in each direction
# tbf lets a burst through at full speed: small beside every message that is timed, and larger than a packet of 64 KiB.
LIMIT = f"root tbf rate {round(8 * BYTES_PER_SECOND)}bit burst {80 * 1024} limit 6000000"
WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]  # whatever ends the parent ends this too

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWUTS, _CLONE_NEWNET = 0x04000000, 0x40000000

_TRIAL = f"""
mount -t tmpfs none /dev/shm && mount --bind /dev/null /etc/hosts &&
ip link add {LINK} type bridge && ip link add h1 type veth peer name p1 && tc qdisc add dev h1 {LIMIT}
"""


def addresses(num_hosts):
    """The addresses of hosts 1, 2, ..., by which mpiexec names them."""
    return tuple(f"{SUBNET}.{host}" for host in range(1, num_hosts + 1))


def missing():
    """Why there can be no such hosts here; None if there can."""
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    for program in PROGRAMS:
        if not shutil.which(program):
            return f"no {program}: apt-get install iproute2 util-linux"
    words = ["unshare", "--net", "--uts", "--mount", "sh", "-c", _TRIAL]
    trial = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    reason = (trial.stderr.strip().splitlines() or [f"status {trial.returncode}"])[0]
    return f"no network namespaces with shaped links: {reason}" if trial.returncode else None


def main():
    """Make hosts and become the command."""
    launcher = _build(int(sys.argv[1]))
    program, *rest = sys.argv[2:]
    # Hydra would start ranks on its own host in its own way; all hosts are others to it, as it runs on the switch.
    os.execvp(program, [program, "-launcher", "ssh", "-launcher-exec", launcher, "-iface", LINK, *rest])  # noqa: S606


def _build(num_hosts):
    """Make the hosts, leave this process on their switch, and return the path of the program that reaches them."""
    spaces = [_new_host("switch" if host == 0 else f"h{host}") for host in range(num_hosts + 1)]
    _enter(spaces[0])
    pid, links = os.getpid(), range(1, num_hosts + 1)
    _batch(
        "ip", [f"link add {LINK} type bridge", f"address add {SUBNET}.254/24 dev {LINK}", "link set lo up"]
    )
    for host in links:
        net = f"/proc/{pid}/fd/{spaces[host][0]}"
        joined = [
            f"link add h{host} type veth peer name {LINK} netns {net}",
            f"link set h{host} master {LINK} up",
        ]
        _batch("ip", joined)
    _batch("tc", [f"qdisc add dev h{host} {LIMIT}" for host in links])
    _batch("ip", [f"link set {LINK} up"])
    for host, address in zip(links, addresses(num_hosts), strict=True):
        _enter(spaces[host])
        _batch("ip", ["link set lo up", f"address add {address}/24 dev {LINK}", f"link set {LINK} up"])
        _batch("tc", [f"qdisc add dev {LINK} {LIMIT}"])
    _enter(spaces[0])
    return _launcher(num_hosts, pid, spaces)


def _new_host(name):
    """Descriptors of a new network and of a new name, which the programs that follow inherit."""
    if _LIBC.unshare(_CLONE_NEWNET | _CLONE_NEWUTS):
        raise OSError(ctypes.get_errno(), "unshare")
    socket.sethostname(name)
    spaces = tuple(os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in ("net", "uts"))
    for descriptor in spaces:
        os.set_inheritable(descriptor, True)
    return spaces


def _enter(spaces):
    for descriptor in spaces:
        if _LIBC.setns(descriptor, 0):
            raise OSError(ctypes.get_errno(), "setns")


def _batch(program, lines):
    subprocess.run([program, "-batch", "-"], input="\n".join(lines), text=True, check=True)


def _launcher(num_hosts, pid, spaces):
    """A script in memory that Hydra calls in place of ssh: [options] address command ..."""
    hosts = list(enumerate(addresses(num_hosts), start=1))
    names = "".join(f"{address} h{host}\\n" for host, address in hosts)
    own = f"mount -t tmpfs -o mode=1777 none /dev/shm && printf '127.0.0.1 localhost\\n{names}' > /dev/shm/hosts"
    own += ' && mount --bind /dev/shm/hosts /etc/hosts && exec sh -c "$1"'
    lines = ["#!/bin/sh", 'while [ "${1#-}" != "$1" ]; do shift; done', "address=$1", "shift"]
    lines.append("case $address in")
    for host, address in hosts:
        net, uts = (f"/proc/{pid}/fd/{descriptor}" for descriptor in spaces[host])
        words = [*WITH_PARENT, "nsenter", f"--net={net}", f"--uts={uts}"]
        # A process namespace ends with its first process, that one with unshare, and unshare with mpiexec.
        words += ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        lines.append(f'  {address}) exec {shlex.join([*words, "sh", "-c", own, "sh"])} "$*" ;;')
    script = os.memfd_create("launcher", 0)  # inherited, and no file that somebody must remove
    os.write(script, "\n".join([*lines, "esac", ""]).encode())
    os.fchmod(script, 0o500)
    return f"/proc/{pid}/fd/{script}"


if __name__ == "__main__":
    main()
