"""From a program and its ranks to the exact command line, and from a launcher's output to who died.

Imports nothing heavy: ranks bind themselves with it before anything starts a thread (`affinity.py`).
"""

from __future__ import annotations

from dlscale.benchmarks.launching.cluster import command_line, one_per_node
from dlscale.benchmarks.launching.deaths import Death, who_died
from dlscale.benchmarks.launching.machine import flavour_of, mpiexec
from dlscale.benchmarks.launching.start import (
    LOCAL_RANK_VARIABLES,
    SIZE_VARIABLES,
    Flavour,
    Start,
    cpus_per_rank,
    start_on,
)

__all__ = [
    "LOCAL_RANK_VARIABLES",
    "SIZE_VARIABLES",
    "Death",
    "Flavour",
    "Start",
    "command_line",
    "cpus_per_rank",
    "flavour_of",
    "mpiexec",
    "one_per_node",
    "start_on",
    "who_died",
]
