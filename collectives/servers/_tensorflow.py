"""Backend `grpc_ps` in TensorFlow: between-graph replication over TensorFlow's own runtime.

Every rank runs one of TensorFlow's servers, which does everything in threads of its own. A worker's trainer has one
graph and one session; the variables lie on the servers. Worker 0 has a thread that makes the updates of
SyncReplicasOptimizer, which must be ended before its session is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from dlscale.base.errors import UsageError
from dlscale.collectives.addresses import (
    check_free,
    hold_port,
    machine,
    own_address,
    port_of,
    refuse_machines,
)
from dlscale.collectives.backend import Backend, KeptByServers, ReplicaTrainer, Setting, Trainer
from dlscale.collectives.job import ServerSplit, agree
from dlscale.models.workload import ReplicaFactory, Shard, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """TensorFlow's view of the job; `server` is this rank's."""

    spec: Any  # tf.train.ClusterSpec with the jobs "ps" and "worker"
    server: Any  # tf.distribute.Server
    config: Any  # tf.compat.v1.ConfigProto of sessions
    device: str  # of this rank's computations
    num_threads: int


def join(job: ServerSplit, options: Any) -> Cluster:
    """Start this rank's server, which listens on all interfaces; collective over all ranks of `job`.

    Raises UsageError on all ranks if one of them cannot.
    """
    machines = job.tell(machine())
    one_machine = len(set(machines)) == 1
    refuse_machines(one_machine, backend="grpc_ps", allowed=options.allow_open_ports)
    address = problem = ""
    with closing(hold_port()) as held:
        try:
            host = own_address(one_machine=one_machine)
            fixed = options.port + job.index if job.is_server and options.port else 0
            if fixed:
                check_free(host, fixed, backend="grpc_ps")
            address = f"{host}:{fixed or port_of(held)}"
        except UsageError as error:
            problem = str(error)
        addresses = agree(job, address, problem)
    spec = tf.train.ClusterSpec({"ps": addresses[job.num_workers :], "worker": addresses[: job.num_workers]})
    num_threads = tf.config.threading.get_intra_op_parallelism_threads()
    gpu = None if job.is_server else own_gpu()
    config = session_config(job, num_threads, gpu=gpu)
    server = None
    name = "ps" if job.is_server else "worker"
    try:
        server = tf.distribute.Server(spec, job_name=name, task_index=job.index, config=config)
    except tf.errors.OpError as error:
        problem = f"TensorFlow's server at {address} could not start: {str(error).splitlines()[0]}"
    agree(job, address, problem)
    device = f"/job:{name}/task:{job.index}/device:{'CPU' if gpu is None else 'GPU'}:0"
    return Cluster(spec=spec, server=server, config=config, device=device, num_threads=num_threads)


def own_gpu() -> str | None:
    """The number, in CUDA's order, of the GPU that this process computes on; None on cores."""
    gpus = tf.config.get_visible_devices("GPU")
    return gpus[0].name.rpartition(":")[2] if gpus else None


def session_config(job: ServerSplit, num_threads: int, *, gpu: str | None) -> Any:
    """A worker sees the servers and itself: other workers may come and go.

    On a GPU its memory is taken as it is needed, as by `prepare`, and what has no kernel there is computed on the host.
    """
    filters = [] if job.is_server else ["/job:ps", f"/job:worker/task:{job.index}"]
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=num_threads,
        inter_op_parallelism_threads=max(num_threads, 1),
        device_filters=filters,
    )
    if gpu is None:
        config.device_count["GPU"] = 0
    else:
        config.allow_soft_placement = True
        config.gpu_options.visible_device_list = gpu
        config.gpu_options.allow_growth = True
    return config


def serve(*, options: Any, job: ServerSplit) -> None:
    """Serve until the workers have closed."""
    cluster = join(job, options)
    while job.next_order()["do"] != "close":
        pass
    del cluster  # TensorFlow's servers cannot be ended; this one idles until its process ends


def on_servers(spec: Any, *, device: str, placement: str) -> AbstractContextManager[Any]:
    """A device scope: variables go to servers as `placement` says, everything else to this worker's `device`."""
    num_servers = spec.num_tasks("ps")
    strategy = FewestBytes(num_servers) if placement == "size" else None
    setter = tf.compat.v1.train.replica_device_setter(
        cluster=spec, worker_device=device, ps_strategy=strategy
    )
    scope: AbstractContextManager[Any] = tf.compat.v1.device(setter)
    return scope


class FewestBytes:
    """Gives each variable to the server that has the fewest bytes so far; the setter's `ps_strategy`."""

    def __init__(self, num_servers: int) -> None:
        self._bytes = [0] * num_servers
        self._placed: dict[str, int] = {}

    def __call__(self, operation: Any) -> int:
        """The server of the variable that `operation` makes."""
        if operation.name not in self._placed:
            shape = tf.TensorShape(operation.get_attr("shape")).as_list()
            size = int(np.prod(shape)) * tf.as_dtype(operation.get_attr("dtype")).size
            server = int(np.argmin(self._bytes))
            self._bytes[server] += size
            self._placed[operation.name] = server
        return self._placed[operation.name]


def local_statistics(device: str) -> Callable[..., Any]:
    """A variable creator: what is not trained stays on the worker's device, which reads what is trained once per step.

    Without the second, every use of a variable in a step fetches it from its server again. The variable's value is
    then that copy everywhere: what updates a variable on its server must read it by its handle.
    """

    def create(next_creator: Callable[..., Any], **arguments: Any) -> Any:
        if arguments.get("trainable") is not False:
            return next_creator(**{**arguments, "caching_device": device})
        with tf.device(device):
            made = next_creator(**arguments)
        of_graph = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        if any(variable is made for variable in of_graph):
            of_graph[:] = [variable for variable in of_graph if variable is not made]
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.LOCAL_VARIABLES, made)
        return made

    return create


CHIEF_STOP_SECONDS = 10


class ChiefHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """SyncReplicasOptimizer's own hook, whose thread belongs to a coordinator of ours.

    When the session closes, the thread is waiting for gradients, and what it then raises is no error.
    """

    def __init__(self, optimizer: Any, *, is_chief: bool) -> None:
        # Without tokens to begin with, a step ends when its update is made, and not one update too early.
        self._hook = optimizer.make_session_run_hook(is_chief, num_tokens=0)
        self._coordinator = tf.train.Coordinator(clean_stop_exception_types=(tf.errors.OpError, RuntimeError))

    def begin(self) -> None:
        """Add the operations that it needs to the graph."""
        self._hook.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:  # noqa: ARG002
        """Initialise, and start the thread on worker 0."""
        self._hook.after_create_session(session, self._coordinator)

    def close(self, session: Any) -> None:
        """Close the session, and return when the thread has ended."""
        self._coordinator.request_stop()
        session.close()
        self._coordinator.join(stop_grace_period_secs=CHIEF_STOP_SECONDS, ignore_live_threads=True)


class ServedTrainer(KeptByServers, ReplicaTrainer):
    """`CountingTrainer` whose weights are on servers.

    Synchronous training is SyncReplicasOptimizer's, without tokens to begin with: a step ends when its update is made.
    """

    backend = "grpc_ps"

    def __init__(
        self,
        make_replica: Callable[[], Any],
        *,
        options: Any,
        cluster: Cluster,
        job: ServerSplit,
        control: Any,
        container: str,
    ) -> None:
        self._options, self._cluster, self._job, self._control = options, cluster, job, control
        self._container = container
        self._hook: ChiefHook | None = None
        with tf.Graph().as_default() as graph, graph.container(container):
            with on_servers(cluster.spec, device=cluster.device, placement=options.placement):
                with tf.variable_creator_scope(local_statistics(cluster.device)):
                    super().__init__(make_replica())
                self._fed = self._replica.placeholders()
                self._global_step = tf.compat.v1.train.get_or_create_global_step()
                self._step, self._loss_tensors = self._make_step()
            self._session = self._open()

    def step(self) -> None:
        feeds = dict(zip(self._fed, self._replica.next_batch(), strict=True))
        self._losses, _ = self._session.run((self._loss_tensors, self._step), feeds)

    def synchronize(self) -> None:
        """A step is done when it returns."""

    def num_applied(self) -> int:
        updates = int(self._session.run(self._global_step))
        return updates if self._options.asynchronous else updates * self._job.num_workers

    def served_weights(self) -> Weights:
        """The servers' weights: variables are nowhere else."""
        return self.weights()

    def staleness(self) -> dict[int, int]:
        """Nothing: TensorFlow's servers do not count what a gradient had missed."""
        return {}

    def settings(self) -> dict[str, Setting]:
        """How the variables are placed and updated; gradients leave as they are computed."""
        return {
            "overlap": True,
            "num_servers": self._job.num_servers,
            "placement": self._options.placement,
            "asynchronous": self._options.asynchronous,
            "replicas_to_aggregate": 1 if self._options.asynchronous else self._job.num_workers,
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
                optimizer, replicas_to_aggregate=self._job.num_workers
            )
            self._hook = ChiefHook(optimizer, is_chief=self._job.index == 0)
        variables = [variable for objective in objectives for variable in objective.parameters]
        flat = [gradient for group in gradients for gradient in group]
        train = optimizer.apply_gradients(list(zip(flat, variables, strict=True)), self._global_step)
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


def connect(*, control: Any, options: Any, job: ServerSplit) -> TensorFlowServers:
    """Join TensorFlow's cluster; collective over all ranks of `job`."""
    return TensorFlowServers(options, join(job, options), job, control)


class TensorFlowServers(Backend):
    """Variables on TensorFlow's servers (`Backend`)."""

    name = "grpc_ps"

    def __init__(self, options: Any, cluster: Cluster, job: ServerSplit, control: Any) -> None:
        self._options, self._cluster, self._job, self._control = options, cluster, job, control
        self._num_trainers = 0

    @property
    def asynchronous(self) -> bool:
        return bool(self._options.asynchronous)

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

    def close(self) -> None:
        self._control.Barrier()
        self._job.order(do="close")
