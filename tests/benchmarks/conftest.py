"""Records as the supervisor writes them, made up."""

from collections.abc import Callable

import pytest

from dlscale.benchmarks.records.assemble import LaunchMetadata, assemble
from dlscale.benchmarks.records.record import Case, Cell, Failure, Fingerprint, Record
from dlscale.benchmarks.records.spool import CaseEnd, CaseResult, MeasuredWindow, RankSpool

MakeRecord = Callable[..., Record]


def _make_record(
    block: int = 0, *, attempt: int = 1, failure: str | None = None, backend: str = "ring"
) -> Record:
    """An attempt at a case on 2 ranks with windows of its own; one with a `failure` was killed."""
    cell = Cell(
        workload="hep_cnn",
        preset="tiny",
        framework="torch",
        backend=backend,
        environment="default",
        scaling_mode="weak",
        num_ranks=2,
        cores_per_rank=1,
        threads_per_rank=1,
        local_batch=8,
        global_batch=16,
        precision="fp32",
        data="synthetic",
    )
    spools = [RankSpool(rank) for rank in range(2)]
    for spool in spools:
        spool.events = [
            (0, MeasuredWindow("steady", 5, index * 0.2, 0.15 + block * 1e-6 + attempt * 1e-7 + index / 7))
            for index in range(10)
        ]
        spool.events.append((0, CaseResult(steady=True, settings={}, loss=0.5, skipped=0)))
        spool.events += [] if failure else [(0, CaseEnd(peak_rss_bytes=1 << 20, load=None))]
    metadata = LaunchMetadata(
        study="weak-scaling-00000000",
        system="local",
        fingerprint=Fingerprint(digest="f", code_digest="c", commit="0", versions={}, node={}),
        started_at="2026-11-22T03:47:20+00:00",
        order_seed=1,
        command="mpiexec",
        oversubscribed=False,
        environment_variables={},
    )
    return assemble(
        Case(cell=cell, block=block, position=0),
        0,
        spools,
        attempt=attempt,
        metadata=metadata,
        failure=Failure(kind="killed", rank=1, message=failure) if failure else None,
    )


@pytest.fixture
def make_record() -> MakeRecord:
    return _make_record
