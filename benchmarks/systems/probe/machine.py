"""Everything that the probe reads, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from dlscale.benchmarks.systems.probe.batch import Batch, NodeKind
from dlscale.benchmarks.systems.probe.cobalt import read_cobalt
from dlscale.benchmarks.systems.probe.flux import read_flux
from dlscale.benchmarks.systems.probe.lsf import read_lsf
from dlscale.benchmarks.systems.probe.node import (
    Cpu,
    Gpus,
    Host,
    InstalledMpi,
    Interconnect,
    Modules,
    read_cpu,
    read_gpus,
    read_interconnect,
    read_modules,
    read_mpi,
)
from dlscale.benchmarks.systems.probe.pbs import read_pbs
from dlscale.benchmarks.systems.probe.slurm import read_slurm
from dlscale.benchmarks.systems.system import Flavour


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What was read on `host`; None: there is no such thing, or nothing told of it."""

    host: Host
    cpu: Cpu
    gpus: Gpus | None
    network: Interconnect | None
    mpi: InstalledMpi | None
    modules: Modules | None
    batch: Batch | None

    @property
    def kind(self) -> NodeKind | None:
        """The nodes that most jobs get: those of the default queue, if the scheduler describes them."""
        kinds = self.batch.queue.kinds if self.batch else ()
        return kinds[0] if kinds else None

    @property
    def alike(self) -> bool:
        """Whether this machine can be one of those nodes, by its cores: the probe often runs on a log-in node."""
        kind, cpu = self.kind, self.cpu
        if kind is None:
            return self.batch is None
        return kind.cores == cpu.num_cores and kind.threads_per_core in (None, cpu.threads_per_core)


def read_machine(host: Host) -> Machine:
    """Read all of it. Nothing is started on other nodes, and nothing is submitted."""
    mpi = read_mpi(host)
    return Machine(
        host=host,
        cpu=read_cpu(host),
        gpus=read_gpus(host),
        network=read_interconnect(host),
        mpi=mpi,
        modules=read_modules(host),
        batch=_read_batch(host, mpi.flavour if mpi else None),
    )


def _read_batch(host: Host, flavour: Flavour | None) -> Batch | None:
    """The first scheduler that answers. Cobalt comes before PBS, because both call their command qstat."""
    return (
        read_slurm(host, flavour) or read_flux(host) or read_lsf(host) or read_cobalt(host) or read_pbs(host)
    )
