"""A worker's trainer over TensorFlow's servers: one graph, one session, variables elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from dlscale.collectives.grpc_ps._tensorflow_chief import ChiefHook
from dlscale.collectives.grpc_ps._tensorflow_cluster import Cluster
from dlscale.collectives.grpc_ps._tensorflow_placement import local_statistics, on_servers
from dlscale.collectives.grpc_ps.options import KEPT_BY_SERVERS, Options
from dlscale.collectives.job import POLL_SECONDS, Job
from dlscale.models.errors import UsageError
from dlscale.models.workload import State, Weights

Setting = str | int | float | bool

PATIENCE_SECONDS = 0.5


class ServedTrainer:
    """`CountingTrainer` whose weights are on servers.

    Synchronous training is SyncReplicasOptimizer's, without tokens to begin with: a step ends when its update is made.
    """

    def __init__(
        self,
        make_replica: Callable[[], Any],
        *,
        options: Options,
        cluster: Cluster,
        job: Job,
        control: Any,
        container: str,
    ) -> None:
        self._options, self._cluster, self._job, self._control = options, cluster, job, control
        self._container = container
        self._values: Sequence[Any] = ()
        self._num_accepted = job.num_workers - options.backup_workers
        self._hook: ChiefHook | None = None
        self._token: Any = None  # the operation that lets one waiting worker go on
        with tf.Graph().as_default() as graph, graph.container(container):
            with on_servers(cluster.spec, worker=job.index, placement=options.placement):
                with tf.variable_creator_scope(local_statistics(job.index)):
                    self._replica = make_replica()
                if self._replica.compiled:
                    raise UsageError(
                        "backend grpc_ps keeps TensorFlow's variables on other hosts, where XLA cannot read them; "
                        "leave --compiled out"
                    )
                self._fed, _ = self._replica.placeholders()
                self._global_step = tf.compat.v1.train.get_or_create_global_step()
                self._step, self._losses = self._make_step()
            self._session = self._open()

    def step(self) -> None:
        """Train on one local batch."""
        feeds = dict(zip(self._fed, self._replica.next_batch(), strict=True))
        self._values, _ = self._session.run((self._losses, self._step), feeds)

    def synchronize(self) -> None:
        """A step is done when it returns; but with backup workers the last ones' steps may need help to return.

        An update takes the first gradients to come, and gives every worker a token to go on with. A fast worker can
        take two of them, another's gradient comes too late, and whoever is last then waits for gradients of workers
        that have no more to give. They give it a token instead. Collective with backup workers.
        """
        if self._token is None:
            return
        arrived = self._control.Ibarrier()
        next_token = time.monotonic() + PATIENCE_SECONDS
        while not arrived.Test():
            time.sleep(POLL_SECONDS)
            if time.monotonic() > next_token:
                self._session.run(self._token)
                next_token = time.monotonic() + PATIENCE_SECONDS

    def num_applied(self) -> int:
        """Local batches that the weights have taken up."""
        updates = int(self._session.run(self._global_step))
        return updates if self._options.asynchronous else updates * self._num_accepted

    def losses(self) -> list[float]:
        """This rank's losses of the last step, one per objective; none before the first."""
        return [float(loss) for loss in self._values]

    def loss(self) -> float:
        """This rank's loss of the last step, summed over objectives."""
        return sum(self.losses()) if self._values else float("nan")

    def weights(self) -> Weights:
        """Copies of the trainable weights, from the servers."""
        weights: Weights = self._replica.weights()
        return weights

    def state(self) -> State:
        """Raises UsageError: the servers keep what optimizers do."""
        raise UsageError(KEPT_BY_SERVERS)

    def restore(self, state: State) -> None:  # noqa: ARG002
        """Raises UsageError: the servers keep what optimizers do."""
        raise UsageError(KEPT_BY_SERVERS)

    def settings(self) -> dict[str, Setting]:
        """How the variables are placed and updated; gradients leave as they are computed."""
        return {
            "overlap": True,
            "num_servers": self._job.num_servers,
            "placement": self._options.placement,
            "asynchronous": self._options.asynchronous,
            "replicas_to_aggregate": 1 if self._options.asynchronous else self._num_accepted,
        }

    def close(self) -> None:
        """End all workers' sessions together, and free the variables."""
        self._control.Barrier()  # a chief that leaves first takes along the thread that makes the updates
        if self._hook:
            self._hook.close(self._session)
        else:
            self._session.close()
        self._control.Barrier()

    def _make_step(self) -> tuple[Any, list[Any]]:
        """(the operation that trains, the losses that it computes)."""
        losses, gradients, updates = self._replica.differentiate(*self._fed)
        objectives = self._replica.objectives
        optimizer: Any = Together(objectives)
        if not self._options.asynchronous:
            optimizer = tf.compat.v1.train.SyncReplicasOptimizer(
                optimizer,
                replicas_to_aggregate=self._num_accepted,
                total_num_replicas=self._job.num_workers,
            )
            self._hook = ChiefHook(optimizer, is_chief=self._job.index == 0)
        variables = [variable for objective in objectives for variable in objective.parameters]
        flat = [gradient for group in gradients for gradient in group]
        train = optimizer.apply_gradients(list(zip(flat, variables, strict=True)), self._global_step)
        if self._num_accepted < self._job.num_workers and not self._options.asynchronous:
            self._token = optimizer.get_init_tokens_op(1)
        return tf.group(train, *(variable.assign(value) for variable, value in updates)), losses

    def _open(self) -> Any:
        """The session. Worker 0 makes the variables and gives them their values before others look for them."""
        is_chief = self._job.index == 0
        if not is_chief:
            self._control.Barrier()
        session = tf.compat.v1.train.MonitoredTrainingSession(
            master=self._cluster.server.target,
            is_chief=is_chief,
            hooks=[self._hook] if self._hook else [],
            config=self._cluster.config,
            save_checkpoint_secs=None,
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=None,
        )
        self._replica.run_in(session, first=is_chief)
        if is_chief:
            self._control.Barrier()
        self._control.Barrier()
        return session


class Together(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """All objectives' optimizers as one, so that their gradients are aggregated, and counted, as one update."""

    def __init__(self, objectives: Iterable[Any]) -> None:
        super().__init__(use_locking=False, name="together")
        self._objectives = tuple(objectives)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Each objective's optimizer applies its own part."""
        pairs = iter(list(grads_and_vars))
        made = [
            objective.optimizer.apply_gradients([next(pairs) for _ in objective.parameters])
            for objective in self._objectives
        ]
        with tf.control_dependencies(made):
            return global_step.assign_add(1, name=name, read_value=False)
