"""What is predicted of trainings, for `dlscale predict` and for rehearsals: the machine, a scenario per backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from dlscale.analysis.predict.assumptions import with_assumed
from dlscale.analysis.predict.exchange import Algorithm
from dlscale.analysis.predict.network import network_of
from dlscale.analysis.predict.profile import Profile, checked
from dlscale.analysis.predict.scenario import Scenario, scenario_of
from dlscale.benchmarks.study.servers import num_servers
from dlscale.benchmarks.systems.system import System

Mode = Literal["weak", "strong"]


class Machine(NamedTuple):
    """A system with all that predictions need, and in words what of it is assumed."""

    system: System
    assumed: tuple[str, ...]


def machine_of(system: System, given: Mapping[str, str] | None = None) -> Machine:
    """The system, and what stands for what its file does not state. Raises UsageError where too little is known."""
    machine = Machine(*with_assumed(system, given))
    network_of(machine.system)  # before anything is computed
    return machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainings:
    """What trainings have in common, whichever verb asks for them; None is the system's or the preset's own."""

    mode: Mode
    servers: str = "1"  # a number, or a ratio to the ranks
    ranks_per_node: int | None = None
    batch: int | None = None
    algorithm: Algorithm | None = None
    backend_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def scenario(self, machine: Machine, profile: Profile, backend: str, *, shard: str) -> Scenario:
        """One training over one backend. Raises UsageError for what cannot be predicted."""
        return scenario_of(
            machine.system,
            checked(profile),
            backend,
            scaling_mode=self.mode,
            backend_options=self.backend_options.get(backend, {}),
            num_servers=lambda num_ranks: num_servers(self.servers, num_ranks),
            ranks_per_node=self.ranks_per_node,
            batch=self.batch,
            algorithm=self.algorithm,
            assumed=machine.assumed,
            shard=shard,
        )
