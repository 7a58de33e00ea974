"""Numbers in words: at least three digits, never an exponent, an interval in brackets after its number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd

from dlscale.base.strings import plural as plural
from dlscale.models import NAMES, load_workload

CONTROL_NAMES = {
    "train": "",
    "synthetic": "synthetic data",
    "loader": "loader only",
    "alone": "alone",
    "whole_machine": "whole machine",
    "exchange": "communication only",
    "halos": "halos only",
    "profile": "profile",
}
EVIDENCE = {
    "measured": "measured",
    "emulated": "emulated: real ranks, but nodes that share a machine",
    "simulated": "simulated: predicted by a model, nothing was run",
    "published": "published: taken from a paper",
}


def number(value: float) -> str:
    """0.0123, 4.56, 78.9, 1234; inf."""
    if not math.isfinite(value):
        return str(float(value))
    if value and abs(value) < 1:
        return f"{value:.3g}" if abs(value) >= 1e-4 else f"{value:.6f}"
    return f"{value:.{max(0, 3 - len(str(int(abs(value)))))}f}" if value % 1 else f"{value:.0f}"


def digits(count: int, *, sign: str = "") -> Callable[[float], str]:
    """A writer of that many decimals, never -0."""
    return lambda value: f"{round(value, count) + 0.0:{sign}.{count}f}"


def with_limits(
    center: float, low: float, high: float, *, write: Callable[[float], str] = number, unit: str = ""
) -> str:
    """`12.3 ms [12.0, 12.6]`; empty without a number."""
    if pd.isna(center):
        return ""
    text = write(center) + unit
    return text if pd.isna(low) or pd.isna(high) else f"{text} [{write(low)}, {write(high)}]"


def interval(
    row: Mapping[str, Any],
    name: str,
    *,
    factor: float = 1.0,
    write: Callable[[float], str] = number,
    unit: str = "",
) -> str:
    """The interval in the columns `name`, `name_low` and `name_high` of a row."""
    center, low, high = (factor * row[name + end] for end in ("", "_low", "_high"))
    return with_limits(center, low, high, write=write, unit=unit)


def percent(row: Mapping[str, Any], name: str, *, unit: str = " %") -> str:
    """`91 % [89, 93]`; one decimal where the interval is narrower than one percent; what it lacks, in brackets."""
    narrow = row[f"{name}_high"] - row[f"{name}_low"] < 0.01
    text = interval(row, name, factor=100, write=digits(int(narrow)), unit=unit)
    method = str(row.get(f"{name}_method", ""))
    if not text or method == "base case":
        return text
    flaws = ["no interval"] if pd.isna(row[f"{name}_low"]) else []
    flaws += ["unpaired"] if "unpaired" in method else []
    return f"{text} ({', '.join(flaws)})" if flaws else text


def listed(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    words = list(words)
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def size_text(num_bytes: float) -> str:
    """`4 KiB`, `25 MiB`, `100 B`."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes >= factor:
            return f"{number(num_bytes / factor)} {unit}"
    return f"{num_bytes:.0f} B"


def seconds_text(seconds: float) -> str:
    """`5.12 s`, `40.0 ms`."""
    return f"{number(seconds)} s" if seconds >= 1 else f"{number(1e3 * seconds)} ms"


def days(seconds: float) -> str:
    """`2.5 hours`, from two days on `4.0 days`."""
    hours = seconds / 3600
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def settings_text(settings: Mapping[str, Any]) -> str:
    """`a=1, b=2`, sorted by name."""
    return ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))


def workload_title(name: str) -> str:
    """`ResNet-50` for `resnet50`; unknown names are unchanged."""
    return load_workload(name).title if name in NAMES else name


def printable(text: str) -> str:
    """The text on one line: unprintable characters become Python escapes, which XML and PNG can hold."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def error_text(what: str, error: Exception) -> str:
    """What went wrong and its error, on one line."""
    return " ".join(f"{what}: {type(error).__name__}: {error}".split())


_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{mark: "\\" + mark for mark in "{}#$%&_"},
}
_PATTERN = re.compile("|".join(map(re.escape, _SPECIAL)))


def escape_latex(text: str) -> str:
    """Text on one line with all commands escaped. Characters that pdfTeX cannot print become "?"."""
    shown = _PATTERN.sub(lambda match: _SPECIAL[match[0]], " ".join(text.split()))
    # Keep a number and its percent sign together.
    return re.sub(r"(?<=\d) (?=\\%)", r"\\,", shown).encode("ascii", "replace").decode()
