"""Made-up launches of the message-size benchmark, with known times."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from dlscale.benchmarks.records.message_sizes import (
    CellFailure,
    MessageSizeLaunch,
    MessageSizeRun,
    PeerState,
    ReferenceTime,
    Samples,
)

KIB, MIB = 2**10, 2**20
TITLES = {"mpich": "MPICH", "openmpi": "Open MPI", "intelmpi": "Intel MPI", "gloo": "Gloo"}


def _launch(
    microseconds: Mapping[str, Mapping[int, float]] | None = None,
    *,
    backend: str = "mpich",
    setting: str = "default",
    block: int = 0,
    num_ranks: int = 2,
    purpose: str = "measured",
    noise: float = 1.0,
    failure: str | None = None,
    cell_failures: Mapping[str, str] | None = None,
    references: Mapping[int, float] | None = None,
    operations: Sequence[str] = (),
    together: int | None = None,
    rounds: Mapping[int, float] | None = None,
) -> MessageSizeLaunch:
    """`microseconds[operation][size]` is the time of the slowest rank; others take a third. All times `noise`.

    `rounds` are two, or those given, in which everything takes so many times as long.
    """
    rounds = rounds or {0: 1.0, 1: 1.0}
    return MessageSizeLaunch(
        purpose=purpose,
        block=block,
        position=0,
        together=together,
        backend=backend,
        setting=setting,
        variables={} if setting == "default" else {"SOME_SETTING": setting},
        thread_level="single",
        num_ranks=num_ranks,
        program="IMB-MPI1" if references else "dlscale",
        operations=list(operations),
        command="mpiexec",
        started="2026-11-20T10:00:00+00:00",
        seconds=1.0,
        failure=failure,
        samples=[
            Samples(
                operation=operation,
                message_bytes=size,
                round=index,
                num_warmup=5,
                nanoseconds=[
                    [round(1000 * time * noise * longer * (1 if rank == index % num_ranks else 1 / 3))] * 4
                    for rank in range(num_ranks)
                ],
                spread_nanoseconds=[20] * 4,
                round_trip_nanoseconds=[60, 70],
            )
            for operation, by_size in (microseconds or {}).items()
            for size, time in by_size.items()
            for index, longer in rounds.items()
        ],
        failures=[
            CellFailure(operation=operation, message_bytes=4 * KIB, reason=reason)
            for operation, reason in (cell_failures or {}).items()
        ],
        references=[
            ReferenceTime(message_bytes=size, num_calls=8, seconds=1e-6 * time * noise)
            for size, time in (references or {}).items()
        ],
    )


def _campaign(**changes: object) -> MessageSizeRun:
    fields: dict[str, object] = {
        "started": "2026-11-20T10:00:00+00:00",
        "commit": "c" * 40,
        "sizes": [4 * KIB, MIB],
        "rank_counts": [2],
        "num_blocks": 3,
        "cpus": [0, 1],
        "budget_seconds": 60.0,
        "seed": 1,
        "node": {"cpu_model": "A CPU"},
        "peers": [
            PeerState(
                name=name, title=title, kind="torch" if name == "gloo" else "mpi", versions={}, unusable=None
            )
            for name, title in TITLES.items()
        ],
    }
    return MessageSizeRun.model_validate({**fields, **changes})


@pytest.fixture
def make_launch() -> Callable[..., MessageSizeLaunch]:
    return _launch


@pytest.fixture
def make_campaign() -> Callable[..., MessageSizeRun]:
    return _campaign
