"""Studies with planted losses: what the findings on losses should find is known."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dlscale.benchmarks.records.record import Record
from tests.made_records import Window, make_record, windows_of

DRIFT = (1.0, 0.82, 1.1, 0.95, 1.2, 0.9, 1.05, 0.85, 1.15, 1.0)  # of a block, common to all of its launches
MS = 1e-3
NUM_STEPS = 4


def launch(
    block: int,
    seconds: Any,
    *,
    stamps: bool = False,
    buckets: Any = None,
    applied: int | None = None,
    num_windows: int = 10,
    **cell: Any,
) -> Record:
    """A launch whose ranks take those seconds per step, [P] or [P][K], of which `buckets` are [P][buckets]."""
    seconds = np.atleast_1d(np.asarray(seconds, float))
    steps = np.broadcast_to(seconds.T, (NUM_STEPS, len(seconds))).T  # [P][K]
    window = Window(
        phase="steady",
        num_steps=NUM_STEPS,
        start_seconds=[0.0] * len(seconds),
        seconds=steps.sum(axis=1).tolist(),
        step_seconds=steps.tolist() if stamps else None,
        bucket_seconds=None if buckets is None else (NUM_STEPS * np.asarray(buckets)).tolist(),
        num_applied=applied,
    )
    record = make_record(block=block, **{"num_ranks": len(seconds), "data": "events.h5:0123456789ab", **cell})
    return record.model_copy(update={"windows": windows_of([window] * num_windows)})


def losses(
    *,
    compute: float = 8 * MS,  # of 1 rank at its local batch of N
    base_input: float = 0.8 * MS,  # what 1 rank waits for samples
    batch: float = 0.0,  # strong scaling: the smaller local batch costs so much
    sharing: float = 0.8 * MS,
    stall: float = 0.6 * MS,
    delays: Sequence[float] = (
        1.2 * MS,
        -0.4 * MS,
        -0.4 * MS,
        -0.4 * MS,
    ),  # of ranks from their mean, taking turns
    waiting: float = 1.5 * MS,
    fetching: float | None = None,  # what control `loader` measures on N ranks
    controls: Sequence[str] = ("synthetic", "alone"),
    num_blocks: int = 6,
    base_block: int = 0,  # of the first of the base case's blocks
    noise: float = 0.0,
    backends: Sequence[str] = ("ring",),
    **cell: Any,
) -> Iterator[Record]:
    """The launches of a training on 4 ranks, of its base case and of their controls, with what each part takes."""
    generator = np.random.default_rng(3)
    is_strong = cell.get("scaling_mode") == "strong"
    scale = 4 if is_strong else 1  # of the base case's work
    local = 2 if is_strong else 8
    resident = compute + batch + sharing
    mean = resident + base_input + stall
    turns = np.stack([np.roll(delays, step) for step in range(NUM_STEPS)], axis=1)
    many = {"local_batch": local, "global_batch": 4 * local, **cell}
    one = {"local_batch": 8, "global_batch": 8, **cell}
    alone = {"local_batch": local, "global_batch": local, "control": "alone", **cell}
    for block in range(num_blocks):

        def drift(block: int = block) -> float:
            return DRIFT[block % len(DRIFT)] * (1 + noise * generator.standard_normal())

        base = base_block + block
        yield launch(base, scale * (compute + base_input) * drift(base), **one)
        yield launch(block, (mean + turns) * drift(), stamps=True, **many)
        for number, backend in enumerate(backends):
            measured = mean + max(delays) + waiting * (1 + number)
            yield launch(block, [measured * drift()] * 4, backend=backend, **many)
        if "synthetic" in controls:
            yield launch(base, scale * compute * drift(base), control="synthetic", **one)
            yield launch(block, [resident * drift()] * 4, control="synthetic", **many)
        if fetching is not None:
            yield launch(base, scale * base_input * drift(base), control="loader", **one)
            yield launch(block, [fetching * drift()] * 4, control="loader", **many)
        if is_strong and "alone" in controls:
            yield launch(block, (compute + batch + base_input) * drift(), **alone)
            yield launch(block, (compute + batch) * drift(), **alone | {"data": "synthetic"})


def cluster(
    *,
    hosts: Sequence[str] = ("a", "a", "b", "b", "c", "c", "d", "d"),  # of each rank
    slow: dict[str, float] | None = None,  # host -> factor on its ranks' times
    slow_ranks: dict[int, float] | None = None,
    num_blocks: int = 6,
    noise: float = 0.005,
) -> Iterator[Record]:
    """`none` on all ranks of the hosts, in each block."""
    generator = np.random.default_rng(5)
    factors = np.array([(slow or {}).get(host, 1.0) for host in hosts])
    for rank, factor in (slow_ranks or {}).items():
        factors[rank] *= factor
    for block in range(num_blocks):
        wiggle = 1 + noise * generator.standard_normal(len(hosts))
        record = launch(block, 10 * MS * DRIFT[block] * factors * wiggle, num_nodes=len({*hosts}))
        places = zip(record.ranks, hosts, strict=True)
        ranks = [place.model_copy(update={"node": host, "boot_id": f"boot {host}"}) for place, host in places]
        yield record.model_copy(update={"ranks": ranks})
