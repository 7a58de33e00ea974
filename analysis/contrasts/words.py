"""Contrasts in plain words: a sentence each, and what was declared."""

from __future__ import annotations

from collections.abc import Iterable

from dlscale.analysis.contrasts.between import STUDY
from dlscale.analysis.contrasts.contrast import BAND, Contrast, Contrasts
from dlscale.analysis.contrasts.declare import Side
from dlscale.analysis.statistics import Interval
from dlscale.analysis.words import backend_name

NAMED = 3  # of many


def declared(found: Contrasts) -> str:
    """How many comparisons were made together, of what, and how many blocks they need."""
    num = len(found.found)
    many = f"{num} comparison{'s' * (num > 1)}"
    if found.factor == STUDY:
        return f"{many} of B with A"
    return (
        f"{many} of {found.factor}, declared together: {found.blocks_needed} blocks or more can carry a claim "
        f"(--launches {found.blocks_needed})"
    )


def title(side: Side, factor: str) -> str:
    """What the comparisons of one training have in common."""
    family = side.family
    what = [f"{family.workload} {family.preset}", *([family.framework] if factor != "framework" else [])]
    kind = "" if side.evidence == "measured" else f" ({side.evidence})"
    return f"{', '.join(what)}, {family.scaling_mode} scaling on {family.system}{kind}"


def sentences(found: Iterable[Contrast]) -> list[str]:
    """One for each that something is known of, and one for those that cannot be shown for the same reason."""
    told, hidden = [], dict[str, list[str]]()
    for one in found:
        if one.verdict == "cannot be shown":
            hidden.setdefault(one.reason, []).append(_subject(one))
        else:
            told.append(sentence(one))
    for reason, names in hidden.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        told.append(f"{', '.join(names[:NAMED])}{more} cannot be shown: {reason}.")
    return told


def sentence(one: Contrast) -> str:
    """The verdict in plain words."""
    name, reference = one.contender.name, one.reference.name
    if one.ratio is None:
        return f"{_subject(one)} cannot be shown: {one.reason}."
    without = _without(one)
    if one.verdict in ("faster", "slower"):
        return f"{name} is {_by(one.ratio)} than {reference}{_where(one)} ({chance(one)}){without}."
    if one.verdict == "alike":
        alike = f"{name} and {reference} are alike{_where(one)}, within {100 * BAND:.0f} %"
        return f"{alike}: {name} is {_between(one.ratio)}{without}."
    if one.verdict == "not shown":
        unknown = f"{name} is not shown to be faster or slower than {reference}{_where(one)}"
        return f"{unknown}: it is {_between(one.ratio)} ({chance(one)}){without}."
    return f"{_subject(one)} cannot be shown: {one.reason}. What was seen: {_seen(one.ratio)}{without}."


def chance(one: Contrast) -> str:
    """`corrected p 0.031, 7 blocks`."""
    if one.p_adjusted is None:
        return "no block in common"
    return f"corrected p {probability(one.p_adjusted)}, {one.num_blocks} blocks"


def probability(p: float) -> str:
    """Two digits; never 0."""
    return f"{p:.2g}" if p >= 1e-4 else "< 0.0001"


def change(ratio: Interval) -> str:
    """`+8.1 [+6.9, +9.3]`, in percent more throughput; the centre alone without limits."""
    center, *ends = (
        f"{round(100 * (value - 1), 1) + 0.0:+.1f}"  # never -0.0
        for value in (ratio.center, ratio.low, ratio.high)
        if value is not None
    )
    return f"{center} [{', '.join(ends)}]" if ends else center


def effect(found: Interval | None) -> str:
    """`2.1 [0.5, 3.6]` standard deviations; "-" where there is none."""
    if found is None:
        return "-"
    if found.low is None or found.high is None:
        return f"{found.center:.1f}"
    return f"{found.center:.1f} [{found.low:.1f}, {found.high:.1f}]"


def over(one: Contrast) -> str:
    """` over ring`, where the backend is not what is compared."""
    name = backend_name(one.contender.cell)
    return "" if one.contender.name.startswith(name) else f" over {name}"


def _subject(one: Contrast) -> str:
    return f"{one.contender.name} against {one.reference.name}{_where(one)}"


def _where(one: Contrast) -> str:
    num_ranks = one.contender.cell.num_ranks
    return f"{over(one)} on {num_ranks} rank{'s' * (num_ranks > 1)}"


def _seen(ratio: Interval) -> str:
    """Whichever way of saying it is plainer."""
    if ratio.low is not None and ratio.high is not None and ratio.low < 1 < ratio.high:
        unpaired = ", unpaired" if "unpaired" in ratio.method else ""
        return f"{_between(ratio)}{unpaired}"
    return _by(ratio)


def _by(ratio: Interval) -> str:
    """`8.1 % [6.9, 9.3] faster`, in throughput."""
    side = "faster" if ratio.center >= 1 else "slower"
    sign = 1 if ratio.center >= 1 else -1
    text = f"{_size(ratio.center)} %"
    if ratio.low is not None and ratio.high is not None:
        ends = sorted(sign * 100 * (value - 1) for value in (ratio.low, ratio.high))
        text += f" [{ends[0] + 0.0:.1f}, {ends[1] + 0.0:.1f}]"
    unpaired = ", unpaired" if "unpaired" in ratio.method else ""
    return f"{text} {side}{unpaired}"


def _between(ratio: Interval) -> str:
    """`between 0.4 % slower and 1.1 % faster`."""
    low, high = (_side(value) for value in (ratio.low, ratio.high) if value is not None)
    return f"between {low} and {high}"


def _side(value: float) -> str:
    size = _size(value)
    return "equally fast" if size == "0.0" else f"{size} % {'faster' if value > 1 else 'slower'}"


def _size(value: float) -> str:
    return f"{abs(100 * (value - 1)):.1f}"


def _without(one: Contrast) -> str:
    """What it would be without launches that stand out."""
    if one.without is None or one.ratio is None:
        return ""
    num = one.num_blocks - one.without.n
    which = "block" if num == 1 else f"{num} blocks"
    return f"; without the {which} with an outlying launch {_by(one.without)}"
