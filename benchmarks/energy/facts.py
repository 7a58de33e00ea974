"""What records keep of energy."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from dlscale.benchmarks.frozen import Frozen

Source = Literal["rapl", "pm_counters", "nvml"]


class NodeEnergy(Frozen):
    """What one counter of one node said over the windows after the warm-up, what lay between them included.

    `joules` is None where it could not be read, and `reason` says why. It is of the whole part of the machine that is
    counted, whoever else used it.
    """

    rank: NonNegativeInt  # who read it
    node: str
    source: Source | None  # None: nobody on that node could read any
    parts: str  # what it counts: "2 packages, 2 dram"; empty where it could not be read
    joules: NonNegativeFloat | None
    seconds: NonNegativeFloat | None  # from the first reading to the last, on the node's clock
    reason: str | None
