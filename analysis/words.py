"""Numbers and findings in plain words: three digits, percent where people think in percent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlscale.analysis.frame import options_text
from dlscale.analysis.statistics import Interval
from dlscale.benchmarks.record import Cell

if TYPE_CHECKING:
    from dlscale.analysis.scaling import Row  # whose notes are such words, too


def backend_name(cell: Cell) -> str:
    """The backend with its options, as a legend shows it: `ring (chunk_bytes=65536)`."""
    return f"{cell.backend} ({options_text(cell)})" if cell.backend_options else cell.backend


def number(value: float) -> str:
    """At least three digits, never an exponent: 0.0123, 4.56, 78.9, 1234."""
    if value and abs(value) < 1:
        return f"{value:.3g}" if abs(value) >= 1e-4 else f"{value:.6f}"
    return f"{value:.{max(0, 3 - len(str(int(abs(value)))))}f}" if value % 1 else f"{value:.0f}"


def rate(interval: Interval | None) -> str:
    """`812 [805, 820]`; without limits only the number, "-" without a number."""
    if interval is None:
        return "-"
    if interval.low is None or interval.high is None:
        return number(interval.center)
    return f"{number(interval.center)} [{number(interval.low)}, {number(interval.high)}]"


def percent(efficiency: Interval, *, unit: str = " %") -> str:
    """`91 % [89, 93]`, or `91.3 % [91.0, 91.6]` where the interval is narrower than one percent."""
    low, high = efficiency.low, efficiency.high
    if low is None or high is None:
        return f"{100 * efficiency.center:.0f}{unit}"
    digits = 1 if high - low < 0.01 else 0
    center, lower, upper = (f"{100 * value:.{digits}f}" for value in (efficiency.center, low, high))
    return f"{center}{unit} [{lower}, {upper}]"


def gibibytes(num_bytes: int | None) -> str:
    """`0.41`, in 2^30 bytes; "-" where it is not known."""
    return "-" if num_bytes is None else f"{num_bytes / 2**30:.2f}"


def input_cost(row: Row) -> str:
    """What fetching batches costs the training of a row, in a sentence; empty where no control says it."""
    said = []
    if row.input_stall:
        said.append(f"fetching a batch takes {_share(row.input_stall)} of a step")
    if row.input_loss:
        said.append(f"training on resident tensors saves {_share(row.input_loss)} of a step")
    if not said:
        return ""
    ranks = f"{row.cell.num_ranks} rank{'s' * (row.cell.num_ranks > 1)}"
    kind = "" if row.evidence == "measured" else f" ({row.evidence})"
    return f"input on {ranks}{kind}: {'; '.join(said)}."


def summary(rows: Sequence[Row]) -> str:
    """What a backend's largest measured number of ranks keeps of one rank's speed; empty for controls."""
    scaled = [row for row in rows if row.cell.control == "train" and row.cell.num_ranks > 1]
    if not scaled:
        return ""
    row = max(scaled, key=lambda row: (row.throughput is not None, row.cell.num_ranks))
    name, ranks = backend_name(row.cell), f"{row.cell.num_ranks} ranks"
    if row.evidence not in (None, "measured"):
        name += f" ({row.evidence})"
    if row.throughput is None:
        return f"{name}: no number on more than 1 rank ({row.num_launches} of {row.num_planned} launches)."
    against_none, against_backend = row.efficiency_none, row.efficiency_backend
    if against_none is None and against_backend is None:
        return f"{name}: {rate(row.throughput)} samples/s on {ranks}; no base case, so no efficiency."
    if against_none is None:
        return f"{name} keeps {_kept(against_backend)} at {ranks} of its own 1 rank; none on 1 rank missing."
    if row.cell.backend == "none":
        return (
            f"{name}: {ranks} that do not communicate keep {_kept(against_none)} of what one alone does; "
            "sharing the machine costs the rest."
        )
    own = f" ({_kept(against_backend)} of its own 1 rank)" if against_backend else ""
    return (
        f"{name} keeps {_kept(against_none)} at {ranks} of what one rank does without a communication layer"
        f"{own}."
    )


def _kept(efficiency: Interval | None) -> str:
    if efficiency is None:
        return "-"
    return percent(efficiency) + _flaws(efficiency)


def _share(share: Interval) -> str:
    """`3.21 % [3.10, 3.32]`: a share near 0, which `percent` would round away."""
    center, *ends = (
        number(100 * value) for value in (share.center, share.low, share.high) if value is not None
    )
    return f"{center} %" + (f" [{', '.join(ends)}]" if ends else "") + _flaws(share)


def _flaws(interval: Interval) -> str:
    flaws = [] if interval.low is not None else ["no interval"]
    flaws += ["unpaired"] if "unpaired" in interval.method else []
    return f" ({', '.join(flaws)})" if flaws else ""
