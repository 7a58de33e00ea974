"""What a node says of itself: files of /sys as the kernel documents them, and what commands print."""

import re

import pytest

from dlscale.base.launchers import mpi_title
from dlscale.benchmarks.systems.probe import node
from dlscale.benchmarks.systems.probe.node import Commands, read_cpu, read_gpus, read_network, read_node


@pytest.fixture
def write_files(tmp_path):
    """Writes {path: text} below a folder in place of /sys, and returns it."""

    def write(files):
        for path, text in files.items():
            place = tmp_path / path.removeprefix("/sys/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        return tmp_path

    return write


@pytest.fixture
def write_program(tmp_path, monkeypatch):
    """Writes a script that comes first on PATH."""

    def write(name, script):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    return write


@pytest.fixture
def lscpu(write_program):
    """lscpu of a machine with these (core, socket, domain) of its threads, and this line of its model."""

    def listed(threads, line="Model name:    AMD EPYC 7763  64-Core Processor"):
        rows = "".join(
            f"{number},{core},{socket},{domain}\\n" for number, (core, socket, domain) in enumerate(threads)
        )
        write_program("lscpu", f"[ $# = 0 ] && echo '{line}' || printf '# CPU,Core,Socket,Node\\n{rows}'")

    return listed


def values(table):
    return {name: fact and fact["value"] for name, fact in table.items()}


def test_cores_threads_and_numa_domains(lscpu):
    lscpu([(core % 128, core % 128 // 64, core % 128 // 16) for core in range(256)])
    node, num_threads = read_cpu(Commands())
    assert num_threads == 256
    assert values(node) == {
        "cores": 128,
        "threads_per_core": 2,
        "memory": node["memory"]["value"],
        "cpu_model": "AMD EPYC 7763 64-Core Processor",
        "numa_domains": 8,
    }
    assert re.fullmatch(r"\d+\.\d GiB", node["memory"]["value"])


def test_cores_with_different_numbers_of_threads_have_no_common_one(lscpu):
    lscpu([(0, 0, ""), (0, 0, ""), (1, 0, ""), (1, 0, ""), (2, 0, ""), (3, 0, "")], line="BIOS Model name: x")
    node, _ = read_cpu(Commands())
    assert (node["cores"]["value"], node["threads_per_core"], node["numa_domains"]) == (4, None, None)


def test_without_lscpu_threads_are_counted(write_program):
    commands = Commands()
    write_program("lscpu", "echo 'cannot open /sys' >&2; exit 1")
    node, num_threads = read_cpu(commands)
    assert (node["cores"]["value"], node["threads_per_core"], node["cpu_model"]) == (num_threads, None, None)
    assert commands.problems[0] == "lscpu -p=CPU,CORE,SOCKET,NODE: exit status 1, cannot open /sys"


@pytest.mark.parametrize(
    ("output", "expected", "note"),
    [
        ("NVIDIA A100-SXM4-40GB, 40960\n" * 4, (4, "NVIDIA A100-SXM4-40GB", "40.0 GiB"), ""),
        ("NVIDIA T1000, 4096\n" + "NVIDIA A100, 40960\n" * 2, (3, "NVIDIA A100", "40.0 GiB"), "NVIDIA T1000"),
        ("NVIDIA GB10, [N/A]\n", (1, "NVIDIA GB10", None), ""),
    ],
)
def test_gpus(write_program, output, expected, note):
    write_program("nvidia-smi", f"printf '{output}'")
    gpus = read_gpus(Commands())
    assert tuple(values(gpus).values()) == expected
    assert gpus["model"].get("note", "") == (f"counted with: {note}" if note else "")


@pytest.mark.parametrize(
    "line",
    [
        "Failed to initialize NVML: Driver/library version mismatch",
        "Unable to determine the device handle for GPU0000:41:00.0: GPU is lost. Reboot the system",
    ],
)
def test_gpus_that_cannot_be_asked_are_not_taken_for_none(write_program, line):
    commands = Commands()
    assert read_gpus(commands) == {}
    write_program("nvidia-smi", f"echo '{line}'; exit 18")
    assert read_gpus(commands) == {}
    (problem,) = commands.problems
    assert problem.startswith("nvidia-smi --query-gpu=name,memory.total")
    assert problem.endswith(f"exit status 18, {line}")


# Documentation/ABI/stable/sysfs-class-infiniband
def port(device, rate, *, state="4: ACTIVE", layer="InfiniBand"):
    folder = f"/sys/class/infiniband/{device}/ports/1"
    return {f"{folder}/rate": rate, f"{folder}/state": state, f"{folder}/link_layer": layer}


# Documentation/ABI/testing/sysfs-class-net: speed in Mb/s, -1 if not known
def interface(name, speed, *, state="up", real="device/vendor"):
    folder = f"/sys/class/net/{name}"
    return {f"{folder}/speed": speed, f"{folder}/operstate": state, f"{folder}/{real}": "1"}


@pytest.mark.parametrize(
    ("files", "name", "gigabits", "interfaces"),
    [
        (port("mlx5_0", "200 Gb/sec (4X HDR)"), "InfiniBand HDR", 200, ("mlx5_0",)),
        (
            port("mlx5_0", "100 Gb/sec (4X EDR)") | port("mlx5_1", "100 Gb/sec (4X EDR)"),
            "InfiniBand EDR",
            200,
            ("mlx5_0", "mlx5_1"),
        ),
        (
            port("mlx5_0", "56 Gb/sec (4X FDR)")
            | port("mlx5_1", "40 Gb/sec (4X QDR)", state="1: DOWN")
            | port("mlx5_2", "100 Gb/sec (4X EDR)", layer="Ethernet"),
            "InfiniBand FDR",
            56,
            ("mlx5_0",),
        ),
        (port("hfi1_0", "100 Gb/sec (4X EDR)"), "Omni-Path", 100, ("hfi1_0",)),
        (port("mlx5_0", "100 Gb/sec (4X EDR)", layer="Ethernet"), "RoCE", 100, ("mlx5_0",)),
        (
            port("rdmap0s6", "100 Gb/sec (4X EDR)", layer="Unknown")
            | port("rdmap1s6", "100 Gb/sec (4X EDR)", layer=""),
            "EFA",
            None,  # its driver prints this rate whatever it is
            ("rdmap0s6", "rdmap1s6"),
        ),
        (
            port("siw0", "10 Gb/sec (4X SDR)", layer="Unspecified"),
            "a network of an unknown kind",
            None,
            ("siw0",),
        ),
        (interface("eth0", "10000\n") | interface("eth1", "25000\n"), "Ethernet", 25, ("eth1",)),
        (
            interface("eth0", "-1\n") | interface("docker0", "10000", real="bridge/x"),
            "Ethernet",
            None,
            ("eth0",),
        ),
        (
            interface("eth0", "10000")
            | interface("eth1", "10000")
            | {
                "/sys/class/net/eth0/bonding_slave/state": "active",
                "/sys/class/net/eth1/bonding_slave/state": "active",
            }
            | interface("bond0", "20000", real="bonding/mode"),
            "Ethernet",
            20,
            ("bond0",),
        ),
        (
            interface("a0", "10000")
            | {"/sys/class/net/a0/bonding_slave/state": "backup"}
            | interface("bond0", "10000", real="bonding/mode"),
            "Ethernet",
            10,
            ("bond0",),
        ),
        ({"/sys/class/gni/kgni0/dev": "1"}, "Aries", None, ("kgni0",)),
        (
            {f"/sys/class/cxi/cxi{n}/device/net/hsn{n}/speed": "200000\n" for n in range(4)},
            "Slingshot",
            800,
            ("cxi0", "cxi1", "cxi2", "cxi3"),
        ),
        (
            {
                "/sys/class/cxi/cxi0/device/net/hsn0/speed": "200000\n",
                "/sys/class/cxi/cxi1/device/vendor": "0x17db",
            },
            "Slingshot",
            None,
            ("cxi0", "cxi1"),
        ),
    ],
)
def test_networks(write_files, files, name, gigabits, interfaces):
    if name != "Ethernet":
        write_files(interface("eno9", "1000"))
    network = read_network(write_files(files))
    assert values(network) == {
        "name": name,
        "bandwidth": gigabits and f"{gigabits} Gb/s",
        "nics_per_node": len(interfaces),
    }
    assert network["nics_per_node"]["note"] == f"interfaces: {', '.join(interfaces)}"


@pytest.mark.parametrize(
    "files", [{}, interface("eth0", "1000", state="down"), interface("lo", "", real="type")]
)
def test_no_network(write_files, files):
    assert read_network(write_files(files)) == {}


def test_mpi_and_modules_without_folders(write_program, monkeypatch, tmp_path):
    write_program("mpiexec", "echo 'mpiexec (Open MPI) 5.0.6'")
    monkeypatch.setattr(node.sys, "prefix", str(tmp_path / "none"))
    monkeypatch.setenv("LMOD_VERSION", "8.7.32")
    monkeypatch.setenv("LOADEDMODULES", "gcc/12.2.0:cray-mpich/8.1.28:/home/someone/modules/mine:")
    this = read_node(Commands())
    assert this.mpi == ("openmpi", "Open MPI 5.0.6")
    assert this.modules == ("gcc/12.2.0", "cray-mpich/8.1.28")
    monkeypatch.delenv("LMOD_VERSION")
    monkeypatch.setattr(node.sys, "prefix", str(tmp_path))
    write_program("mpiexec", "echo 'HYDRA build details:'; echo '    Version:    4.1.2'")
    this = read_node(Commands())
    assert this.mpi == ("mpich", "MPICH 4.1.2")
    assert this.modules is None


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("mpirun (Open MPI) 4.1.4\n", "Open MPI 4.1.4"),
        (
            "Intel(R) MPI Library for Linux* OS, Version 2021.14 Build 20241121 (id: e7829d6)\n",
            "Intel MPI 2021.14",
        ),
        ("aprun 2.0", None),
    ],
)
def test_names_of_mpis(text, title):
    assert mpi_title(text) == title


def test_commands_that_answer(write_program):
    commands = Commands()
    write_program("scontrol", 'echo "$1 $LC_ALL"')
    assert commands.run("scontrol", "show") == "show C\n"
    write_program("scontrol", "echo 'srun: pmi2' >&2")
    assert commands.run("scontrol") == "srun: pmi2\n"
    write_program("scontrol", "printf 'Gres=gpu:\\342\\200\\256x\\n'")
    assert commands.run("scontrol") == "Gres=gpu:\\u202ex\n"
    write_program("scontrol", "printf 'A100\\377\\n'")
    assert "A100" in commands.run("scontrol")
    assert commands.run("no-such-scheduler", "-a") == ""
    assert commands.problems == []


def test_commands_that_fail(write_program, monkeypatch):
    commands = Commands()
    write_program("scontrol", "echo first >&2; echo 'Unable to contact slurm controller' >&2; exit 1")
    assert commands.run("scontrol", "show", "config") == ""
    monkeypatch.setattr(node, "COMMAND_SECONDS", 0.3)
    write_program("scontrol", "exec sleep 20")
    assert commands.run("scontrol", "show") == ""
    assert commands.problems == [
        "scontrol show config: exit status 1, Unable to contact slurm controller",
        "scontrol show: no answer within 0 s",
    ]
