"""Which sizes of a study share a job.

A job on the largest number of nodes is billed for all of them while one node works. So sizes that lie far apart get
jobs of their own, and neighbouring jobs have one size in common, by which their curves can be joined:

    nodes   1  2  4  8  16  32  64  128
    tier 0  x  x  x  x
    tier 1           x  x   x   x
    tier 2                      x   x
"""

from __future__ import annotations

from collections.abc import Sequence

from dlscale.benchmarks.sizes import Size
from dlscale.benchmarks.system import Policy


def tiers(sizes: Sequence[Size], policy: Policy) -> list[list[Size]]:
    """The sizes, ascending, cut as the policy says; sizes on equally many nodes stay together."""
    nodes = sorted({size.num_nodes for size in sizes})
    alone = policy.jobs == "chained" or policy.max_sizes == 1
    cuts = [[count] for count in nodes] if alone else _shared(nodes, policy)
    return [[size for size in sorted(sizes) if size.num_nodes in cut] for cut in cuts]


def _shared(nodes: Sequence[int], policy: Policy) -> list[list[int]]:
    cuts = [[nodes[0]]]
    for count in nodes[1:]:
        current = cuts[-1]
        if len(current) < policy.max_sizes and count <= current[0] * policy.max_factor:
            current.append(count)
        else:
            last = current[-1]
            # A neighbour further away than the factor shares nothing that would be worth its price.
            cuts.append([last, count] if count <= last * policy.max_factor else [count])
    return cuts
