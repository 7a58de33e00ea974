"""Launches on several hosts, with planted slow hosts and ranks."""

from collections.abc import Mapping, Sequence

import numpy as np

from dlscale.benchmarks.records.record import RankFacts, Record
from tests.made_records import Window, make_record, windows_of


def cluster(
    *,
    hosts: Sequence[str] | Sequence[Sequence[str]] = ("a", "b", "c", "d"),  # of all blocks, or of each
    per_host: int = 2,
    slow: Mapping[str, float] | None = None,  # host -> factor on its ranks' times
    slow_ranks: Mapping[int, float] | None = None,
    noise: float = 0.005,
    num_blocks: int = 6,
    num_windows: int = 10,
    backend: str = "ring",
    seed: int = 5,
    evidence: str = "measured",
) -> list[Record]:
    """`none` and a backend on all ranks of the hosts, in each block; the backend's ranks end together."""
    generator = np.random.default_rng(seed)
    found = []
    for block in range(num_blocks):
        names = hosts if isinstance(hosts[0], str) else hosts[block]
        nodes = [name for name in names for _ in range(per_host)]
        factors = np.array([(slow or {}).get(node, 1.0) for node in nodes])
        for rank, factor in (slow_ranks or {}).items():
            factors[rank] *= factor
        ranks = [
            RankFacts(
                rank=rank,
                local_rank=rank % per_host,
                node=node,
                boot_id=f"boot {node}",
                affinity=[rank],
                num_threads=1,
                peak_rss_bytes=1,
            )
            for rank, node in enumerate(nodes)
        ]

        def record(seconds, block=block, ranks=ranks, names=names, **cell):
            windows = [
                Window(
                    phase="steady",
                    num_steps=10,
                    start_seconds=[0.0] * len(ranks),
                    seconds=one.tolist(),
                )
                for one in seconds
            ]
            made = make_record(
                block=block, num_ranks=len(ranks), num_nodes=len(names), evidence=evidence, **cell
            )
            return made.model_copy(update={"windows": windows_of(windows), "ranks": ranks})

        own = factors * (1 + noise * generator.standard_normal(len(nodes)))
        wiggle = 1 + noise * generator.standard_normal((num_windows, len(nodes)))
        found.append(record(own * wiggle, backend="none"))
        each = 1 + noise * generator.standard_normal((num_windows, 1))
        seconds = np.broadcast_to(own.max() * each, wiggle.shape)
        found.append(record(seconds, backend=backend))
    return found
