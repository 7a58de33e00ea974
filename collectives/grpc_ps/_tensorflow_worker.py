"""Backend `grpc_ps` in TensorFlow: between-graph replication over TensorFlow's own servers."""

from __future__ import annotations

from typing import Any

from dlscale.collectives.backend import Capabilities, Collective, Trainer
from dlscale.collectives.capabilities import capabilities
from dlscale.collectives.grpc_ps._tensorflow_cluster import Cluster, join
from dlscale.collectives.grpc_ps._tensorflow_trainer import ServedTrainer
from dlscale.collectives.grpc_ps.options import Options
from dlscale.collectives.in_step import InStep
from dlscale.collectives.job import Job
from dlscale.models.errors import UsageError
from dlscale.models.workload import ReplicaFactory, Shard


def connect(*, control: Any, options: Options, job: Job) -> TensorFlowServers:
    """Join TensorFlow's cluster; collective over all ranks of `job`."""
    return TensorFlowServers(options, join(job, options), job, control)


class TensorFlowServers(InStep):
    """Variables on TensorFlow's servers (`Backend`)."""

    def __init__(self, options: Options, cluster: Cluster, job: Job, control: Any) -> None:
        self._options, self._cluster, self._job, self._control = options, cluster, job, control
        self._num_trainers = 0

    @property
    def capabilities(self) -> Capabilities:
        """This backend's row of the table."""
        return capabilities("grpc_ps")

    @property
    def asynchronous(self) -> bool:
        """Whether gradients are applied as they come."""
        return self._options.asynchronous

    @property
    def num_accepted(self) -> int | None:
        """All workers' but those of the backup workers."""
        backups = self._options.backup_workers
        return self._job.num_workers - backups if backups else None

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica whose variables are on the servers, with the weights of worker 0."""
        self._num_trainers += 1
        return ServedTrainer(
            lambda: factory(shard=shard, seed=seed, gate=gate),
            options=self._options,
            cluster=self._cluster,
            job=self._job,
            control=self._control,
            container=f"trainer-{self._num_trainers}",
        )

    def collective(self) -> Collective:
        """There is none."""
        raise UsageError("backend grpc_ps has no collective operations: workers talk to servers only")

    def close(self) -> None:
        """Let the servers end."""
        self._control.Barrier()
        self._job.order(do="close")
