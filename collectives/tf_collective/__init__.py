"""Backend `tf_collective`: TensorFlow's own collectives over gRPC, under MultiWorkerMirroredStrategy.

TensorFlow configures its collectives once per process, before it has computed anything.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.collectives.addresses import (
    LOOPBACK,
    check_free,
    free_port,
    own_address,
    refuse_machines,
    refuse_open_ports,
)
from dlscale.collectives.backend import Backend, Setup, Trainer
from dlscale.collectives.option_kinds import read_options
from dlscale.models.workload import ReplicaFactory, Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`bytes_per_pack_mib`: gradients travel in packs of that size; 0 leaves it to TensorFlow, which packs them all.

    `port`: of rank 0, the others take the next ones; 0 means any that is free. `allow_open_ports`: use TensorFlow's
    servers, which listen unauthenticated on all interfaces, between machines too.
    """

    bytes_per_pack_mib: float = 0.0
    port: int = 0
    allow_open_ports: bool = False


def preload(framework: str) -> None:
    """TensorFlow itself is all it needs."""
    importlib.import_module(framework)


def check_setup(options: dict[str, Any], setup: Setup) -> None:
    """Returns if the ranks may start TensorFlow's servers. Raises UsageError."""
    chosen = read_options(Options, options, backend="tf_collective")
    refuse_machines(setup.one_machine, backend="tf_collective", allowed=chosen.allow_open_ports)


def connect(*, control: Any, framework: str, options: dict[str, Any]) -> TensorFlowCollective:  # noqa: ARG001
    """Form TensorFlow's cluster over the ranks of `control`; collective."""
    chosen = read_options(Options, options, backend="tf_collective")
    return join("tf_collective", control, chosen, implementation="ring", title="ring over gRPC")


def join(
    name: str, control: Any, options: Options, *, implementation: str, title: str
) -> TensorFlowCollective:
    """TensorFlow's cluster over the ranks of `control`, under that name; collective. Raises UsageError.

    `implementation` carries its collectives, by TensorFlow's name of it, and by `title` in the record.
    """
    addresses = _agree_on_addresses(control, options, backend=name)
    if all(address.startswith(LOOPBACK) for address in addresses):
        os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    strategies = importlib.import_module("dlscale.collectives.tf_collective._tensorflow")
    strategy = strategies.multi_worker(addresses, index=control.Get_rank(), implementation=implementation)
    return TensorFlowCollective(name, options, strategy, control, implementation=title)


def _agree_on_addresses(control: Any, options: Options, *, backend: str) -> list[str]:
    """host:port of every rank of `control`, in order; collective. Raises UsageError on all ranks if one has none."""
    one_machine = refuse_open_ports(control, backend=backend, allowed=options.allow_open_ports)
    own, problem = "", ""
    try:
        host = own_address(one_machine=one_machine)
        port = options.port + control.Get_rank() if options.port else free_port()
        check_free(host, port, backend=backend)
        own = f"{host}:{port}"
    except UsageError as error:
        problem = str(error)
    addresses, problems = zip(*control.allgather((own, problem)), strict=True)
    if any(problems):
        raise UsageError(next(filter(None, problems)))
    return list(addresses)


class TensorFlowCollective(Backend):
    """A training loop of one's own under MultiWorkerMirroredStrategy (`Backend`).

    `implementation` is what carries its collectives, in words for the record.
    """

    def __init__(
        self, name: str, options: Options, strategy: Any, control: Any, *, implementation: str
    ) -> None:
        self.name, self._options, self._strategy, self._control = name, options, strategy, control
        self._implementation = implementation

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica made in the strategy's scope, with the weights of rank 0."""
        integration = importlib.import_module("dlscale.collectives.tf_collective._tensorflow")
        trainer: Trainer = integration.over(
            lambda: factory(shard=shard, seed=seed, gate=gate),
            self._strategy,
            bytes_per_pack=int(self._options.bytes_per_pack_mib * 2**20),
            implementation=self._implementation,
        )
        return trainer

    def close(self) -> None:
        """Wait for the others: TensorFlow's servers end with their processes, and a peer may still ask."""
        self._control.Barrier()
