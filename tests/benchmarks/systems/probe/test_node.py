"""What a node says of itself: files of /sys as the kernel documents them, and the libraries' answers."""

import pynvml
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
def processors(monkeypatch):
    """What psutil and py-cpuinfo answer."""

    def answer(*, threads, cores, model="AMD EPYC 7763 64-Core Processor"):
        monkeypatch.setattr(node.psutil, "cpu_count", lambda logical: threads if logical else cores)
        monkeypatch.setattr(node.cpuinfo, "get_cpu_info", lambda: {"brand_raw": model} if model else {})

    return answer


def test_cores_threads_and_numa_domains(processors, write_files):
    processors(threads=256, cores=128)
    folder = "/sys/devices/system/node"
    files = {f"{folder}/node{n}/cpu{n}/uevent": "" for n in range(8)} | {f"{folder}/node8/memory8/uevent": ""}
    cpu = read_cpu(write_files(files))
    assert (cpu.num_cores, cpu.num_threads, cpu.threads_per_core, cpu.numa_domains) == (128, 256, 2, 8)
    assert cpu.model == "AMD EPYC 7763 64-Core Processor"
    assert cpu.memory_gib > 0.25


def test_cores_with_different_numbers_of_threads_have_no_common_one(processors, tmp_path):
    processors(threads=6, cores=4)
    assert read_cpu(tmp_path).threads_per_core is None


def test_what_the_libraries_do_not_know(processors, tmp_path):
    processors(threads=2, cores=None, model=None)
    cpu = read_cpu(tmp_path)
    assert (cpu.num_cores, cpu.threads_per_core, cpu.numa_domains, cpu.model) == (2, None, None, None)


class Memory:
    def __init__(self, size):
        self.total = size * 2**30


@pytest.fixture
def nvml(monkeypatch):
    """NVML lists GPUs of these models and GiB; None: it does not know."""

    def listed(*gpus):
        def memory(index):
            if gpus[index][1] is None:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return Memory(gpus[index][1])

        monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(gpus))
        monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda index: gpus[index][0])
        monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", memory)

    return listed


def test_gpus(nvml):
    nvml(*[("NVIDIA A100-SXM4-40GB", 40)] * 4)
    gpus = read_gpus()
    assert (gpus.count, gpus.gpu.model, gpus.gpu.memory_gib) == (4, "NVIDIA A100-SXM4-40GB", 40)
    assert gpus.others == ()


def test_the_model_of_most_gpus_and_the_others(nvml):
    nvml(("NVIDIA T1000", 4), ("NVIDIA A100", 40), ("NVIDIA A100", 40))
    gpus = read_gpus()
    assert (gpus.count, gpus.gpu.model, gpus.others) == (3, "NVIDIA A100", ("NVIDIA T1000",))


def test_memory_that_nvml_does_not_know(nvml):
    nvml(("NVIDIA GB10", None))
    assert read_gpus().gpu.memory_gib is None


def test_no_gpus(nvml, monkeypatch):
    nvml()
    assert read_gpus() is None

    def no_driver():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    assert read_gpus() is None


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
    assert (network.name, network.gigabits, network.interfaces) == (name, gigabits, interfaces)


@pytest.mark.parametrize(
    "files", [{}, interface("eth0", "1000", state="down"), interface("lo", "", real="type")]
)
def test_no_network(write_files, files):
    assert read_network(write_files(files)) is None


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
