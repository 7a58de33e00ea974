"""Processors and memory, GPUs, networks, MPI and modules, from files and texts as the kernel and tools write them."""

import json

import pytest

from dlscale.benchmarks.systems.probe.node import (
    AMD,
    NVIDIA,
    count_processors,
    gib,
    memory_in,
    model_in,
    parse_amd,
    parse_list,
    parse_mpi,
    parse_nvidia,
    parse_rate,
    read_cpu,
    read_gpus,
    read_interconnect,
    read_modules,
    read_mpi,
)

# proc(5); POWER and ARM write other lines (Documentation/arch, lscpu(1)).
X86 = "processor\t: 0\ncpu family\t: 6\nmodel name\t: Intel(R) Xeon Phi(TM)  CPU 7250\ncpu MHz\t: 1400\n"
POWER = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\n"
ARM = "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
LSCPU = (
    "Architecture:            aarch64\nCPU(s):                  288\nModel name:              Neoverse-V2\n"
)
MEMINFO = "MemTotal:       263842692 kB\nMemFree:         1000000 kB\n"


def topology(*cores):
    """Files of /sys/devices/system/cpu (Documentation/admin-guide/cputopology.rst): [(threads, package), ...]."""
    files, cpus = {}, []
    for threads, package in cores:
        for cpu in parse_list(threads):
            cpus.append(cpu)
            folder = f"/sys/devices/system/cpu/cpu{cpu}/topology"
            files |= {
                f"{folder}/thread_siblings_list": threads,
                f"{folder}/physical_package_id": f"{package}\n",
            }
    return files | {"/sys/devices/system/cpu/online": f"0-{max(cpus)}\n"}


def test_cores_are_physical_and_of_the_whole_node(told):
    files = topology(("0,4", 0), ("1,5", 0), ("2,6", 1), ("3,7", 1)) | {
        "/proc/cpuinfo": X86,
        "/proc/meminfo": MEMINFO,
        "/sys/devices/system/node/has_cpu": "0-1\n",
        "/sys/devices/system/node/online": "0-3\n",  # two of them are memory alone
        "/sys/devices/system/cpu/cpu0/cpufreq/base_frequency": "1400000\n",
    }
    cpu = read_cpu(told(files, num_allowed=2))
    assert (cpu.num_cores, cpu.threads_per_core, cpu.num_sockets, cpu.num_cpus) == (4, 2, 2, 8)
    assert cpu.num_allowed == 2
    assert cpu.numa_domains == 2
    assert cpu.frequency == "1.4 GHz"
    assert cpu.model == "Intel(R) Xeon Phi(TM) CPU 7250"
    assert cpu.memory_gib == pytest.approx(251.62, abs=0.01)


def test_cores_with_different_numbers_of_threads_have_no_common_one(told):
    cpu = read_cpu(told(topology(("0-1", 0), ("2-3", 0), ("4", 0), ("5", 0))))
    assert (cpu.num_cores, cpu.threads_per_core, cpu.num_cpus) == (4, None, 6)


def test_without_sys_every_processor_is_a_core(told):
    cpu = read_cpu(told({"/proc/cpuinfo": "processor\t: 0\n\nprocessor\t: 1\n"}))
    assert (cpu.num_cores, cpu.threads_per_core, cpu.num_sockets, cpu.numa_domains) == (2, None, None, None)
    assert cpu.frequency is cpu.model is cpu.memory_gib is None


def test_lscpu_knows_names_that_proc_does_not(told):
    cpu = read_cpu(told({"/proc/cpuinfo": ARM}, {"lscpu": LSCPU}))
    assert (cpu.model, cpu.model_source) == ("Neoverse-V2", "lscpu")
    assert model_in(POWER) == "POWER9, altivec supported"
    assert model_in(ARM) is None


def test_amd_tells_its_base_frequency_elsewhere(told):
    files = topology(("0", 0)) | {"/sys/devices/system/cpu/cpu0/acpi_cppc/nominal_freq": "2450\n"}
    assert read_cpu(told(files)).frequency == "2.45 GHz"


@pytest.mark.parametrize(
    ("text", "numbers"), [("0-3,8", [0, 1, 2, 3, 8]), ("5\n", [5]), ("", []), ("(null)", []), ("3-", [])]
)
def test_lists_of_the_kernel(text, numbers):
    assert parse_list(text) == numbers


def test_counts_and_sizes():
    assert count_processors(X86 * 3) == 3
    assert memory_in("MemFree: 1 kB") is None
    assert gib(251.62) == "251.6 GiB"


# nvidia-smi --help-query-gpu
A100 = "NVIDIA A100-SXM4-40GB, 40960\n"
# rocm-smi --json, of ROCm 5 and of ROCm 6
MI250X = {
    "Card series": "AMD INSTINCT MI250X",
    "Card model": "0x0b0c",
    "VRAM Total Memory (B)": "68702699520",
}
MI300A = {
    "Card Series": "AMD Instinct MI300A",
    "Card Model": "0x74a0",
    "VRAM Total Memory (B)": "137438953472",
}


def test_nvidia(told):
    gpus = read_gpus(told(answers={" ".join(NVIDIA): A100 * 4}))
    assert (gpus.count, gpus.gpu.model, gpus.gpu.memory_gib) == (4, "NVIDIA A100-SXM4-40GB", 40.0)
    assert gpus.others == ()
    assert gpus.told_by.startswith("nvidia-smi --query-gpu")


def test_the_model_of_most_gpus_and_the_others(told):
    gpus = read_gpus(told(answers={" ".join(NVIDIA): f"NVIDIA T1000, 4096\n{A100}{A100}"}))
    assert (gpus.count, gpus.gpu.model, gpus.others) == (3, "NVIDIA A100-SXM4-40GB", ("NVIDIA T1000",))


def test_memory_that_nvidia_does_not_tell():
    assert parse_nvidia("NVIDIA GB10, [N/A]\n")[0].memory_gib is None
    assert parse_nvidia("No devices were found\n") == []


@pytest.mark.parametrize(
    ("card", "model", "size"), [(MI250X, "AMD INSTINCT MI250X", 63.98), (MI300A, "AMD Instinct MI300A", 128)]
)
def test_amd(told, card, model, size):
    cards = json.dumps({f"card{number}": card for number in range(8)} | {"system": {"Driver version": "6.7"}})
    gpus = read_gpus(
        told(answers={" ".join(AMD): f"WARNING: AMD GPU device(s) is/are in a low-power state\n{cards}\n"})
    )
    assert (gpus.count, gpus.gpu.model) == (8, model)
    assert gpus.gpu.memory_gib == pytest.approx(size, abs=0.01)


@pytest.mark.parametrize("output", ["", "ERROR: no AMD GPUs\n", "{broken", '{"card0": "no"}'])
def test_nothing_that_amd_lists(output):
    assert parse_amd(output) == []


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
def test_networks(told, files, name, gigabits, interfaces):
    network = read_interconnect(
        told(files | interface("eno9", "1000")) if name != "Ethernet" else told(files)
    )
    assert (network.name, network.gigabits, network.interfaces) == (name, gigabits, interfaces)


@pytest.mark.parametrize(
    "files", [{}, interface("eth0", "1000", state="down"), interface("lo", "", real="type")]
)
def test_no_network(told, files):
    assert read_interconnect(told(files)) is None


def test_rates():
    assert parse_rate("2.5 Gb/sec (1X SDR)") == (2.5, "SDR")
    assert parse_rate("100 Gb/sec") == (100, "")
    assert parse_rate("unknown") is None


# What each prints for --version: pages of MPICH's hydra, Open MPI's mpirun(1), Intel MPI's mpiexec.hydra.
HYDRA = "HYDRA build details:\n    Version:                                 4.1.2\n    CC:    gcc\n"
OPEN_MPI = "mpiexec (Open MPI) 5.0.6\n\nReport bugs to https://www.open-mpi.org/community/help/\n"
INTEL = (
    "Intel(R) MPI Library for Linux* OS, Version 2021.14 Build 20241121 (id: e7829d6)\nCopyright 2003-2024\n"
)


@pytest.mark.parametrize(
    ("text", "flavour", "title"),
    [
        (HYDRA, "mpich", "MPICH 4.1.2"),
        (OPEN_MPI, "openmpi", "Open MPI 5.0.6"),
        ("mpirun (Open MPI) 4.1.4\n", "openmpi", "Open MPI 4.1.4"),
        (INTEL, "intelmpi", "Intel MPI 2021.14"),
    ],
)
def test_mpi(text, flavour, title):
    mpi = parse_mpi(text)
    assert (mpi.flavour, mpi.title) == (flavour, title)


def test_mpi_of_the_environment_comes_before_that_on_path(told, tmp_path):
    own = f"{tmp_path}/bin/mpiexec"
    answers = {"mpiexec --version": OPEN_MPI, f"{own} --version": HYDRA}
    assert read_mpi(told(answers=answers), tmp_path).flavour == "mpich"
    del answers[f"{own} --version"]
    assert read_mpi(told(answers=answers), tmp_path).flavour == "openmpi"
    assert read_mpi(told(), tmp_path) is None
    assert parse_mpi("aprun 2.0") is None


def test_modules_that_name_no_folder(told):
    variables = {
        "LMOD_VERSION": "8.7.32",
        "LOADEDMODULES": "gcc/12.2.0:cray-mpich/8.1.28:/home/someone/modules/mine:",
    }
    modules = read_modules(told(variables=variables))
    assert modules.title == "Lmod 8.7.32"
    assert modules.loaded == ("gcc/12.2.0", "cray-mpich/8.1.28")
    assert read_modules(told(variables={"MODULESHOME": "/opt/modules"})).title == "Environment Modules"
    assert read_modules(told()) is None
