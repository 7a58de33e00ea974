"""A server rank in TensorFlow: TensorFlow's own server, which does everything in threads of its own."""

from __future__ import annotations

from dlscale.collectives.grpc_ps._tensorflow_cluster import join
from dlscale.collectives.grpc_ps.options import Options
from dlscale.collectives.job import Job


def serve(*, options: Options, job: Job) -> None:
    """Serve until the workers have closed."""
    cluster = join(job, options)
    while job.next_order()["do"] != "close":
        pass
    del cluster  # TensorFlow's servers cannot be ended; this one idles until its process ends
