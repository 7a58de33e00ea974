"""Records as the supervisor writes them, made up."""

from collections.abc import Callable

import pytest

from dlscale.benchmarks.records.record import Failure, Record
from tests import made_records

MakeRecord = Callable[..., Record]


def _make_record(
    block: int = 0, *, attempt: int = 1, failure: str | None = None, backend: str = "ring"
) -> Record:
    """An attempt at a case on 2 ranks with windows of its own; one with a `failure` was killed."""
    made = made_records.make_record(
        backend=backend,
        num_ranks=2,
        block=block,
        attempt=attempt,
        study="weak-scaling-00000000",
        started_at="2026-11-22T03:47:20+00:00",
        samples_per_second=500 + block + attempt / 10,
        window_factors=[1 + index / 7 for index in range(10)],
    )
    killed = Failure(kind="killed", rank=1, message=failure) if failure else None
    return made.model_copy(update={"failure": killed})


@pytest.fixture
def make_record() -> MakeRecord:
    return _make_record
