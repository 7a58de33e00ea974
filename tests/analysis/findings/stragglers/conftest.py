"""Launches on several hosts, with planted slow hosts, ranks and links."""

from collections.abc import Mapping, Sequence

import numpy as np

from dlscale.benchmarks.records.nodes import Allocation
from dlscale.benchmarks.records.record import RankFacts, Record
from dlscale.benchmarks.records.windows import Window
from tests.made_records import make_record


def cluster(
    *,
    hosts: Sequence[str] | Sequence[Sequence[str]] = ("a", "b", "c", "d"),  # of all blocks, or of each
    per_host: int = 2,
    slow: Mapping[str, float] | None = None,  # host -> factor on its ranks' times
    slow_ranks: Mapping[int, float] | None = None,
    links: Mapping[str, float] | None = None,  # host -> factor on everybody's step if it takes part
    noise: float = 0.005,
    num_blocks: int = 6,
    num_windows: int = 10,
    backend: str = "ring",
    steps: Mapping[str, float] | None = None,  # host -> share of its steps that it takes, asynchronously
    jobs: Sequence[str] = (),  # of each block
    one_machine: bool = False,
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
                boot_id="one" if one_machine else f"boot {node}",
                affinity=[rank],
                num_threads=1,
                peak_rss_bytes=1,
            )
            for rank, node in enumerate(nodes)
        ]

        def record(seconds, rank_steps=None, block=block, ranks=ranks, names=names, **cell):
            windows = [
                Window(
                    phase="steady",
                    num_steps=10,
                    num_applied=None if rank_steps is None else sum(rank_steps),
                    rank_steps=rank_steps,
                    start_seconds=[0.0] * len(ranks),
                    seconds=one.tolist(),
                )
                for one in seconds
            ]
            made = make_record(
                block=block, num_ranks=len(ranks), num_nodes=len(names), evidence=evidence, **cell
            )
            job = {"scheduler": "slurm", **dict.fromkeys(("partition", "num_nodes", "nodes"))}
            allocation = Allocation(job_id=jobs[block], **job) if jobs else None
            return made.model_copy(update={"windows": windows, "ranks": ranks, "allocation": allocation})

        own = factors * (1 + noise * generator.standard_normal(len(nodes)))
        wiggle = 1 + noise * generator.standard_normal((num_windows, len(nodes)))
        found.append(record(own * wiggle, backend="none"))
        together = np.prod([(links or {}).get(name, 1.0) for name in names])
        each = 1 + noise * generator.standard_normal((num_windows, 1))
        seconds = np.broadcast_to(own.max() * together * each, wiggle.shape)
        taken = [round(10 * (steps or {}).get(node, 1.0)) for node in nodes] if steps else None
        found.append(record(seconds, taken, backend=backend))
    return found
