"""Starting a program on a system: threads, devices and options of its partition and placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlscale.base.errors import UsageError, unknown
from dlscale.base.launchers import LAUNCHERS, Start
from dlscale.benchmarks.systems.system import Partition, System


def with_launcher(system: System, name: str | None) -> System:
    """The system with that launcher in place of its file's. Raises UsageError where it starts nothing."""
    if not name:
        return system
    if name not in LAUNCHERS:
        raise UsageError(unknown("launcher", name, LAUNCHERS))
    launcher = LAUNCHERS[name]
    fitting = launcher.schedulers
    starts = not fitting or system.scheduler in fitting if system.has_jobs else not launcher.needs_job
    if not starts:
        places = [f"in jobs of {scheduler}" for scheduler in fitting] or ["in jobs"]
        places = places if launcher.needs_job else ["on one machine", *places]
        raise UsageError(
            f"launcher={name} on {system.name}, whose scheduler is {system.scheduler}: it starts programs "
            f"{' and '.join(places)}; leave it out"
        )
    return system.model_copy(update={"launcher": name})


def cpus_per_rank(system: System, ranks_per_node: int) -> int:
    """A rank's share of a node's hardware threads: whole cores, rounded down, times threads per core.

    aprun's option -j says how many threads of each core are used, if not all.
    """
    cores = max(1, system.num_cores() // ranks_per_node)
    options = list(system.placement.launch_options) if system.placement else []
    if system.launcher == "aprun" and "-j" in options:
        return cores * int(options[options.index("-j") + 1])
    threads = system.node.threads_per_core
    return cores * (threads.value if threads else 1)


def start_on(
    system: System,
    partition: Partition,
    *,
    nodes: tuple[str, ...],
    num_ranks: int,
    variables: Mapping[str, str],
    program: Sequence[str],
    ranks_per_node: int | None = None,  # None: the system's placement
) -> Start:
    """A start with the threads, devices and options of the system's partition and placement."""
    placement = system.placement
    share = ranks_per_node or (placement.ranks_per_node if placement else num_ranks)
    devices = system.devices.per_node.value // share if system.devices else 0
    return Start(
        nodes=nodes,
        num_ranks=num_ranks,
        ranks_per_node=min(share, num_ranks),
        cpus_per_rank=cpus_per_rank(system, share),
        devices_per_rank=devices,
        launch_options=(*partition.launch_options, *(placement.launch_options if placement else ())),
        variables=variables,
        program=program,
    )
