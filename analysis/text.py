"""Text of numbers, intervals, percent and bytes, and the names of cells, trainings and kinds of evidence.

Numbers have at least three digits and never an exponent; an interval follows its number in brackets.
`interval_columns` is the same number for programs. `escape_latex` is for what LaTeX typesets.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dlscale.analysis.families import Family
from dlscale.analysis.records import NamedCell, settings_text
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.benchmarks.records.cell import Cell
from dlscale.models import NAMES, load_workload


def interval_columns(name: str, interval: Interval | None) -> dict[str, Any]:
    """An interval as columns whose names begin with `name`; all None without an interval."""
    return {
        name: interval and interval.center,
        f"{name}_low": interval and interval.low,
        f"{name}_high": interval and interval.high,
        f"{name}_level": interval and interval.level,
        f"{name}_method": interval and interval.method,
        f"{name}_n": interval and interval.n,
    }


def backend_name(cell: Cell) -> str:
    """The backend with its options, as a legend shows it: `ring (chunk_bytes=65536)`, or as it was named.

    An algorithm beside synchronous SGD stands behind it: `ring easgd (interval=4)`.
    """
    if isinstance(cell, NamedCell):
        return cell.curve
    return f"{cell.method} ({settings_text(cell.options)})" if cell.options else cell.method


def number(value: float) -> str:
    """A number with at least three digits and no exponent: 0.0123, 4.56, 78.9, 1234."""
    if value and abs(value) < 1:
        return f"{value:.3g}" if abs(value) >= 1e-4 else f"{value:.6f}"
    return f"{value:.{max(0, 3 - len(str(int(abs(value)))))}f}" if value % 1 else f"{value:.0f}"


def with_limits(interval: Interval | None, write: Callable[[float], str] = number, *, unit: str = "") -> str:
    """`12.3 ms [12.0, 12.6]`; the number alone without limits, "-" without an interval.

    Every interval in text is formatted here; `write` chooses the digits.
    """
    if interval is None:
        return "-"
    center = f"{write(interval.center)}{unit}"
    if interval.low is None or interval.high is None:
        return center
    return f"{center} [{write(interval.low)}, {write(interval.high)}]"


def rate(interval: Interval | None) -> str:
    """`812 [805, 820]`, three digits."""
    return with_limits(interval)


def ratio_text(interval: Interval | None) -> str:
    """`1.03 [1.01, 1.05]`, two decimals."""
    return with_limits(interval, "{:.2f}".format)


def percent(efficiency: Interval | None, *, unit: str = " %") -> str:
    """`91 % [89, 93]`, or `91.3 % [91.0, 91.6]` where the interval is narrower than one percent."""
    narrow = (
        efficiency is not None
        and efficiency.low is not None
        and efficiency.high is not None
        and efficiency.high - efficiency.low < 0.01
    )
    return with_limits(efficiency, lambda value: f"{100 * value:.{int(narrow)}f}", unit=unit)


RATIO_LIMITS = f"{100 * LEVEL:.0f} % t intervals of typical launches"  # as `statistics.block_ratio` has them


def efficiency_text(efficiency: Interval | None) -> str:
    """`93 % [91, 95]`, with `unpaired` or `no interval` where they apply."""
    return "-" if efficiency is None else percent(efficiency) + flaws_text(efficiency)


def flaws_text(interval: Interval) -> str:
    """` (no interval, unpaired)`; empty for a paired interval with limits."""
    flaws = ["no interval"] if interval.low is None else []
    flaws += ["unpaired"] if "unpaired" in interval.method else []
    return f" ({', '.join(flaws)})" if flaws else ""


def points(share: float, *, sign: str = "") -> str:
    """`4.1`: a share in percent with one decimal, never -0.0; `sign` "+" writes `+4.1`."""
    return f"{round(100 * share, 1) + 0.0:{sign}.1f}"


def share_text(share: Interval | None, *, unit: str = " %", sign: str = "") -> str:
    """`4.1 % [3.0, 5.2]`: a share near 0, with one decimal."""
    return with_limits(share, lambda value: points(value, sign=sign), unit=unit)


def gibibytes(num_bytes: int | None) -> str:
    """`0.41`, in units of 2^30 bytes; "-" if unknown."""
    return "-" if num_bytes is None else f"{num_bytes / 2**30:.2f}"


def plural(count: int, noun: str) -> str:
    """`1 rank`, `8 ranks`, `2 launches`."""
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('ch') else 's'}"


def days(seconds: float) -> str:
    """`2.5 hours`, from two days on `4.0 days`."""
    hours = seconds / 3600
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def listed(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def size_text(num_bytes: int) -> str:
    """`4 KiB`, `25 MiB`, `100 B`."""
    for factor, unit in _UNITS:
        if num_bytes >= factor:
            return f"{number(num_bytes / factor)} {unit}"
    return f"{num_bytes} B"


def ratio_at_size(num_bytes: int, interval: Interval) -> str:
    """`1.34 [1.30, 1.39] at 4 MiB`."""
    return f"{rate(interval)} at {size_text(num_bytes)}"


def seconds_text(seconds: float) -> str:
    """`5.12 s`, `40.0 ms`."""
    return f"{number(seconds)} s" if seconds >= 1 else f"{number(1e3 * seconds)} ms"


def microseconds(seconds: float | None) -> str:
    """`12.3`; "-" if unknown."""
    return "-" if seconds is None else number(1e6 * seconds)


_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{mark: "\\" + mark for mark in "{}#$%&_"},
}
_PATTERN = re.compile("|".join(re.escape(mark) for mark in _SPECIAL))


def escape_latex(text: str) -> str:
    """Text with all commands escaped, on one line. Characters that pdfTeX cannot print become "?"."""
    shown = _PATTERN.sub(lambda match: _SPECIAL[match[0]], " ".join(text.split()))
    # Keep a number and its percent sign together.
    return re.sub(r"(?<=\d) (?=\\%)", r"\\,", shown).encode("ascii", "replace").decode()


CONTROL_NAMES = {
    "train": "",
    "synthetic": "synthetic data",
    "loader": "loader only",
    "exchange": "communication only",
    "halos": "halos only",
    "alone": "alone",
    "profile": "profile",
    "whole_machine": "whole machine",
    "canary": "canary",
}


def cell_name(cell: Cell, evidence: str | None) -> str:
    """The backend, with its control and kind of evidence where unusual."""
    kind = "" if evidence in (None, "measured") else str(evidence)
    return ", ".join(filter(None, (backend_name(cell), CONTROL_NAMES[cell.control], kind)))


def workload_title(name: str) -> str:
    """`ResNet-50` for `resnet50`; unknown names are unchanged."""
    return load_workload(name).title if name in NAMES else name


EVIDENCE = {
    "measured": "measured",
    "emulated": "emulated: real ranks, but nodes that share a machine",
    "simulated": "simulated: predicted by a model, nothing was run",
    "published": "published: taken from a paper",
}


def training_title(family: Family) -> str:
    """`HEP-CNN tiny, torch, weak scaling on local`."""
    return family.title.replace(family.workload, workload_title(family.workload), 1)


def interval_note(interval: Interval, unit: str) -> str:
    """Level, method and n of an interval, or why there is none; `unit` is what n counts: `launch` or `block`."""
    if interval.method == "base case":
        return f"the base case: 1 by definition, n = {plural(interval.n, 'launch')}"
    count = plural(interval.n, unit)
    if interval.low is None:
        return f"no interval, {count} are too few" if interval.n != 1 else f"no interval, {count} is too few"
    digits = 0 if interval.level == LEVEL else 1
    return f"{100 * interval.level:.{digits}f} % interval, {interval.method}, n = {count}"
