"""TensorFlow's cluster of parameter servers and workers: who listens where, and one server per rank.

A server rank runs TensorFlow's own server, which does everything in threads of its own.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from typing import Any

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
from dlscale.collectives.grpc_ps.options import Options
from dlscale.collectives.job import ServerSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """TensorFlow's view of the job; `server` is this rank's."""

    spec: Any  # tf.train.ClusterSpec with the jobs "ps" and "worker"
    server: Any  # tf.distribute.Server
    config: Any  # tf.compat.v1.ConfigProto of sessions
    device: str  # of this rank's computations
    num_threads: int


def join(job: ServerSplit, options: Options) -> Cluster:
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
        addresses = [entry["address"] for entry in _agree(job, address=address, problem=problem)]
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
    _agree(job, address=address, problem=problem)
    device = f"/job:{name}/task:{job.index}/device:{'CPU' if gpu is None else 'GPU'}:0"
    return Cluster(spec=spec, server=server, config=config, device=device, num_threads=num_threads)


def own_gpu() -> str | None:
    """The number, in CUDA's order, of the GPU that this process computes on; None on cores."""
    gpus = tf.config.get_visible_devices("GPU")
    return gpus[0].name.rpartition(":")[2] if gpus else None


def _agree(job: ServerSplit, *, address: str, problem: str) -> list[dict[str, str]]:
    entries: list[dict[str, str]] = [
        json.loads(text) for text in job.tell(json.dumps({"address": address, "problem": problem}))
    ]
    for entry in entries:
        if entry["problem"]:
            raise UsageError(entry["problem"])
    return entries


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


def serve(*, options: Options, job: ServerSplit) -> None:
    """Serve until the workers have closed."""
    cluster = join(job, options)
    while job.next_order()["do"] != "close":
        pass
    del cluster  # TensorFlow's servers cannot be ended; this one idles until its process ends
