"""The two lines that site harnesses look for in a benchmark's output.

`total images/sec: X` is tf_cnn_benchmarks' last line, `Total img/sec on N GPU(s): X +-Y` that of Horovod's synthetic
benchmarks. Our samples are images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlscale.benchmarks.record import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """A cell's images per second over all ranks, in the slowest rank's time; `low` and `high` are its interval."""

    cell: Cell
    evidence: str
    samples_per_second: float
    low: float | None
    high: float | None

    @property
    def sort_key(self) -> tuple[object, ...]:
        """Most ranks first and what does not communicate last: several harnesses take the first line they find."""
        cell = self.cell
        return (-cell.num_ranks, cell.backend == "none", cell.workload, cell.framework, cell.backend, cell.id)


def compatibility_lines(found: Throughput) -> list[str]:
    """What it is, after a `#`, and the two lines.

    Y is half the length of the interval; without an interval the second line ends after X.
    """
    cell, rate = found.cell, found.samples_per_second
    half = "" if found.low is None or found.high is None else f" +-{_text((found.high - found.low) / 2, 1)}"
    return [
        f"# {_title(cell)}, {found.evidence}",
        f"total images/sec: {_text(rate, 2)}",
        f"Total img/sec on {cell.num_ranks} {cell.device.upper()}(s): {_text(rate, 1)}{half}",
    ]


def _title(cell: Cell) -> str:
    options = " ".join(f"{name}={value}" for name, value in sorted(cell.backend_options.items()))
    backend = f"{cell.backend} ({options})" if options else cell.backend
    servers = f" and {_count(cell.num_servers, 'server')}" if cell.num_servers else ""
    return (
        f"{cell.workload} ({cell.preset}) in {cell.framework} over {backend}, "
        f"{_count(cell.num_ranks, 'rank')}{servers} on {_count(cell.num_nodes, 'node')}"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _text(value: float, decimals: int) -> str:
    """With the decimals that the format is known for; below 1 with two digits at least, so that it is not 0.0."""
    if 0 < value < 1:
        decimals = max(decimals, 1 - math.floor(math.log10(value)))
    return f"{value:.{decimals}f}"
