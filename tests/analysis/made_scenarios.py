"""Made-up scenarios of predictions: one network, one profile, and what a test changes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dlscale.analysis.predict.backends import rule_of
from dlscale.analysis.predict.network import Network
from dlscale.analysis.predict.noise import Noise
from dlscale.analysis.predict.profile import Gradient, Profile
from dlscale.analysis.predict.scenario import Scenario
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, Samples
from dlscale.benchmarks.records.record import Record
from tests.made_records import Window, windows_of

STARTED = "2026-11-23T10:00:00+00:00"
NETWORK = Network(
    name="switch",
    num_nodes=4096,
    node_bytes_per_second=1e9,
    latency_seconds=10e-6,
    node_memory_bytes_per_second=1e10,
    reduce_seconds_per_byte=0.0,
)
PROFILE = Profile(
    workload="hep_cnn",
    preset="paper",
    framework="torch",
    local_batch=10,
    forward_seconds=0.1,
    backward_seconds=0.3,
    update_seconds=0.02,
    gradients=(Gradient(name="all", num_bytes=100_000_000, ready_seconds=0.3),),
    step_seconds=(0.32,),
    evidence="published",
    source="a test",
)


def scenario(
    backend: str = "gloo", *, options: dict[str, Any] | None = None, num_servers: int = 1, **changes: Any
) -> Scenario:
    """Weak scaling of the profile over a backend on the network, without noise."""
    rule = rule_of(backend, options or {}, framework="torch", num_servers=1, spare_core=True)
    plain = Scenario(
        network=NETWORK,
        profile=PROFILE,
        noise=Noise(),
        rule=rule,
        scaling_mode="weak",
        batch=PROFILE.local_batch,
        num_servers=lambda _: num_servers,
        num_replicates=200,
    )
    return replace(plain, **changes)


def with_exchange(record: Record, sizes: Sequence[int], seconds: Sequence[float]) -> Record:
    """A record of control `exchange` whose buckets of these sizes took so long each, in steps of five."""
    if record.failure:
        return record
    count, each = record.case.cell.num_ranks, [5 * own for own in seconds]
    window = Window(
        phase="steady",
        num_steps=5,
        start_seconds=[0.0] * count,
        seconds=[sum(each)] * count,
        bucket_seconds=[each] * count,
    )
    return record.model_copy(update={"windows": windows_of([window] * 3), "bucket_bytes": list(sizes)})


def allreduces(
    num_nodes: int,
    calls: dict[int, Sequence[float]],
    *,
    operation: str = "ring",
    per_node: int = 1,
    **fields: Any,
) -> MessageSizeLaunch:
    """A launch of `dlscale collectives` with the seconds of the calls of each size."""
    samples = [
        Samples(
            operation=operation,
            message_bytes=size,
            num_warmup=1,
            round=0,
            nanoseconds=[[round(1e9 * own) for own in seconds]] * (num_nodes * per_node),
        )
        for size, seconds in calls.items()
    ]
    known = {
        "purpose": "measured",
        "block": 0,
        "position": num_nodes,
        "backend": operation,
        "setting": "default",
        "variables": {},
        "thread_level": "single",
        "num_ranks": num_nodes * per_node,
        "num_nodes": num_nodes,
        "program": "dlscale",
        "command": "mpiexec",
        "started": STARTED,
        "seconds": 1.0,
        "samples": samples,
    }
    return MessageSizeLaunch.model_validate(known | fields)
