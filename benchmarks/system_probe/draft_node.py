"""The draft's tables about one node: [node], [devices], [fabric]."""

from __future__ import annotations

from dlscale.benchmarks.system_probe.cpu import gib
from dlscale.benchmarks.system_probe.facts import FILL_IN, HERE, fact
from dlscale.benchmarks.system_probe.machine import Machine
from dlscale.benchmarks.system_probe.toml import Entry, Table


def node(machine: Machine) -> Table:
    """The nodes that jobs get, or without a scheduler this one."""
    cpu, kind = machine.cpu, machine.kind
    note = HERE if machine.batch else ""
    entries = []
    if cpu.num_allowed < cpu.num_cpus:
        entries.append(
            Entry(
                comment=f"The probe itself may run on {cpu.num_allowed} of this machine's {cpu.num_cpus} hardware "
                "threads, as in a container or a job; cores are those that the machine has."
                + ("" if machine.batch else ' cores = "detect" would take only the allowed ones.')
            )
        )
    if kind:
        entries.append(Entry("cores", fact(kind.cores, "scheduler")))
    else:
        entries.append(Entry("cores", fact(cpu.num_cores, "cpu", note)))
    threads = kind.threads_per_core if kind else None
    if threads:
        entries.append(Entry("threads_per_core", fact(threads, "scheduler")))
    if kind and kind.memory_gib:
        entries.append(Entry("memory", fact(gib(kind.memory_gib), "scheduler", "what jobs may have")))
    if kind and not machine.alike:
        entries.append(
            Entry(
                comment="Processor, frequency and NUMA domains are not known: this machine is not one of those nodes. "
                "The probe finds them when it is run in a job there."
            )
        )
        return Table(("node",), [*entries, _peaks()])
    if not threads:
        entries.append(
            _told("threads_per_core", cpu.threads_per_core, note, "cores differ, or /sys does not say it")
        )
    entries += [
        _told(
            "cpu_model", cpu.model, note, "neither /proc/cpuinfo nor lscpu tells it", source=cpu.model_source
        ),
        _told("cpu_frequency", cpu.frequency, note, "/sys does not say the base frequency"),
        _told("numa_domains", cpu.numa_domains, note, "/sys does not say them"),
    ]
    if not (kind and kind.memory_gib) and cpu.memory_gib:
        entries.append(
            Entry("memory", fact(gib(cpu.memory_gib), "memory", note or "less what the kernel keeps"))
        )
    return Table(("node",), [*entries, _peaks()])


def devices(machine: Machine) -> Table:
    """GPUs of the nodes that jobs get; by the scheduler, which knows their number, and the driver, if it is here."""
    gpus, kind = machine.gpus, machine.kind
    told = kind.num_gpus if kind else 0
    if told and not (gpus and gpus.count == told and machine.alike):
        model = kind.gpu_model if kind else None
        name = fact(model or "GPU", "scheduler", "" if model else "the scheduler does not say which")
        wanted = Entry(
            comment=f"{FILL_IN}: memory of one, and [devices.peak]; the probe finds the memory in a job."
        )
        return Table(("devices",), [Entry("per_node", fact(told, "scheduler")), Entry("model", name), wanted])
    if gpus and (told or not machine.kind):
        others = f"counted with: {', '.join(gpus.others)}" if gpus.others else ""
        note = others or (HERE if machine.batch else "")
        entries = [
            Entry("per_node", fact(gpus.count, "scheduler" if told else "gpus", note)),
            Entry("model", fact(gpus.gpu.model, "gpus", note)),
            _told(
                "memory", gib(gpus.gpu.memory_gib) if gpus.gpu.memory_gib else None, note, "", source="gpus"
            ),
            Entry(
                comment=f'{FILL_IN}, as {{ value = "312 TFLOP/s", source = "..." }}: [devices.peak] fp32, bf16.'
            ),
        ]
        return Table(("devices",), entries)
    why = "neither nvidia-smi nor rocm-smi lists a GPU"
    if machine.batch:
        why = "the scheduler tells of none on the nodes of the default queue"
    if gpus:
        why += f"; this machine has {gpus.count} of {gpus.gpu.model}"
    return Table((), [Entry(comment=f"[devices] is left out: {why}.")])


def fabric(machine: Machine) -> Table:
    """The network, as this machine is connected to it."""
    network = machine.network
    if not network:
        return Table((), [Entry(comment="[fabric] is left out: no network interface is up.")])
    note = HERE if machine.batch else ""
    bandwidth = f"{network.gigabits:g} Gb/s" if network.gigabits else None
    names = f"interfaces: {', '.join(network.interfaces)}"
    return Table(
        ("fabric",),
        [
            Entry("name", fact(network.name, "network", note)),
            _told("bandwidth", bandwidth, note, "the interfaces do not say their speed", source="network"),
            Entry("nics_per_node", fact(len(network.interfaces), "network", names)),
            Entry(
                comment=f"{FILL_IN} from the centre's pages: topology, latency, bisection and what groups there are."
            ),
        ],
    )


def _told(key: str, value: str | int | None, note: str, why_not: str, *, source: str = "cpu") -> Entry:
    if value is None:
        return Entry(comment=f"{key} is not known{': ' if why_not else ''}{why_not}.")
    return Entry(key, fact(value, source, note))


def _peaks() -> Entry:
    return Entry(
        comment=f'{FILL_IN}, as {{ value = "3 TFLOP/s", source = "vendor" }} with the page under [sources]: '
        "[node.peak] fp64, fp32, bf16, and memory_bandwidth."
    )
