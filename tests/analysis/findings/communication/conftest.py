"""Studies with a planted exchange: known latency and bandwidth, and a training that hides a known share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.benchmarks.records.nodes import NodeFacts
from dlscale.benchmarks.records.record import Record
from tests.made_records import Window, make_record, rows_of, windows_of

DRIFT = (1.0, 0.82, 1.1, 0.95, 1.2, 0.9, 1.05, 0.85, 1.15, 1.0)
MS = 1e-3
SIZES = (1 << 20, 4 << 20, 4 << 20, 64 << 10)


@dataclass(frozen=True, kw_only=True)
class Link:
    """An exchange of S bytes takes latency + 2 (P - 1) / P x S / bandwidth seconds."""

    latency: float = 20e-6
    bandwidth: float = 4e9
    num_ranks: int = 4
    sizes: Sequence[int] = SIZES

    def seconds(self, size: int) -> float:
        return self.latency + 2 * (self.num_ranks - 1) / self.num_ranks * size / self.bandwidth

    @property
    def step(self) -> float:
        return sum(map(self.seconds, self.sizes))


def node(name: str = "n", **facts: object) -> NodeFacts:
    return NodeFacts.model_validate(
        dict.fromkeys(NodeFacts.model_fields)
        | {"rank": 0, "node": name, "num_cpus": 4, "memory_bytes": 1 << 34, **facts}
    )


def exchange_record(
    link: Link, *, drift: float = 1.0, copy_rate: float = 5e9, num_windows: int = 10, **fields: object
) -> Record:
    """A launch of control `exchange` over a link; `drift` multiplies all times."""
    ranks, steps = link.num_ranks, 5
    # The last rank is the slowest by a tenth of all it does, which counts; rank 0 looks better than it is.
    spread = np.linspace(0.9, 1.0, ranks)
    each = drift * steps * spread[:, None] * np.array([link.seconds(size) for size in link.sizes])
    window = Window(
        phase="steady",
        num_steps=steps,
        start_seconds=[0.0] * ranks,
        seconds=each.sum(axis=1).tolist(),
        bucket_seconds=each.tolist(),
    )
    record = make_record(**{"num_ranks": ranks, "control": "exchange", "backend": "ring", **fields})
    failed = record.failure is not None
    return record.model_copy(
        update={
            "windows": record.windows
            if failed
            else windows_of([rows_of(record.windows)[0], *[window] * num_windows]),
            "bucket_bytes": list(link.sizes),
            "copy_rates": [copy_rate] * ranks,
        }
    )


def plant(
    link: Link = Link(),
    *,
    hidden: float = 0.0,
    computation: float = 40 * MS,
    backend: str = "ring",
    overlap: bool | None = None,
    num_blocks: int = 6,
    noise: float = 0.0,
    stamps: bool = True,
    drift: bool = True,
    seed: int = 3,
    **fields: object,
) -> list[Record]:
    """1 rank and P ranks of `none`, P ranks over a backend and its exchange alone, in common blocks that drift.

    The training takes computation + (1 - `hidden`) x exchange. `stamps` are those of `none`, whose ranks are all alike.
    """
    generator = np.random.default_rng(seed)
    ranks, found = link.num_ranks, []
    drifts = [DRIFT[block % len(DRIFT)] if drift else 1.0 for block in range(num_blocks)]

    def trained(block: int, seconds: float, *, num_ranks: int, **cell: object) -> Record:
        wobble = drifts[block] * (1 + noise * generator.standard_normal())
        rate = 8 * num_ranks / (seconds * wobble)
        one = make_record(block=block, num_ranks=num_ranks, samples_per_second=rate, **{**fields, **cell})
        if not (stamps and num_ranks > 1 and "backend" not in cell):
            return one
        steady = [
            window._replace(
                step_seconds=[[total / window.num_steps] * window.num_steps for total in window.seconds]
            )
            for window in rows_of(one.windows)
        ]
        return one.model_copy(update={"windows": windows_of(steady)})

    for block in range(num_blocks):
        found.append(trained(block, computation, num_ranks=1))
        found.append(trained(block, computation, num_ranks=ranks))
        step = computation + (1 - hidden) * link.step
        found.append(trained(block, step, num_ranks=ranks, backend=backend, overlap=overlap))
        wobble = drifts[block] * (1 + noise * generator.standard_normal())
        found.append(exchange_record(link, drift=wobble, block=block, backend=backend, **fields))
    return found
