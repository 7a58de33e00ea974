"""The table of contrasts: a sentence for each, what was declared, the columns for the terminal and for `--json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.findings.contrast_declaration import STUDY_FACTOR, Side
from dlscale.analysis.findings.contrasts import CONTRAST_ALPHA, CONTRAST_BAND, MAX_EXACT, Contrast, Contrasts
from dlscale.analysis.records import options_text
from dlscale.analysis.render.text import Grid, backend_name, interval_columns
from dlscale.analysis.statistics import LEVEL, Interval

NAMED = 3  # of many


def declaration_text(found: Contrasts) -> str:
    """How many comparisons were made together, of what, and how many blocks they need."""
    num = len(found.found)
    many = f"{num} comparison{'s' * (num > 1)}"
    if found.factor == STUDY_FACTOR:
        return f"{many} of B with A"
    return (
        f"{many} of {found.factor}, declared together: {found.blocks_needed} blocks or more can carry a claim "
        f"(--launches {found.blocks_needed})"
    )


def contrast_title(side: Side, factor: str) -> str:
    """What the comparisons of one training have in common."""
    family = side.family
    what = [f"{family.workload} {family.preset}", *([family.framework] if factor != "framework" else [])]
    kind = "" if side.evidence == "measured" else f" ({side.evidence})"
    return f"{', '.join(what)}, {family.scaling_mode} scaling on {family.system}{kind}"


def contrast_sentences(found: Iterable[Contrast]) -> list[str]:
    """One for each that something is known of, and one for those that cannot be shown for the same reason."""
    told, hidden = [], dict[str, list[str]]()
    for one in found:
        if one.verdict == "cannot be shown":
            hidden.setdefault(one.reason, []).append(_subject(one))
        else:
            told.append(contrast_sentence(one))
    for reason, names in hidden.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        told.append(f"{', '.join(names[:NAMED])}{more} cannot be shown: {reason}.")
    return told


def contrast_sentence(one: Contrast) -> str:
    """The verdict in plain words."""
    name, reference = one.contender.name, one.reference.name
    if one.ratio is None:
        return f"{_subject(one)} cannot be shown: {one.reason}."
    without = _without_text(one)
    if one.verdict in ("faster", "slower"):
        return f"{name} is {_by(one.ratio)} than {reference}{_where(one)} ({chance_text(one)}){without}."
    if one.verdict == "alike":
        alike = f"{name} and {reference} are alike{_where(one)}, within {100 * CONTRAST_BAND:.0f} %"
        return f"{alike}: {name} is {_between(one.ratio)}{without}."
    if one.verdict == "not shown":
        unknown = f"{name} is not shown to be faster or slower than {reference}{_where(one)}"
        return f"{unknown}: it is {_between(one.ratio)} ({chance_text(one)}){without}."
    return f"{_subject(one)} cannot be shown: {one.reason}. What was seen: {_shown_text(one.ratio)}{without}."


def chance_text(one: Contrast) -> str:
    """`corrected p 0.031, 7 blocks`."""
    if one.p_adjusted is None:
        return "no block in common"
    return f"corrected p {probability_text(one.p_adjusted)}, {one.num_blocks} blocks"


def probability_text(p: float) -> str:
    """Two digits; never 0."""
    return f"{p:.2g}" if p >= 1e-4 else "< 0.0001"


def change_text(ratio: Interval) -> str:
    """`+8.1 [+6.9, +9.3]`, in percent more throughput; the centre alone without limits."""
    center, *ends = (
        f"{round(100 * (value - 1), 1) + 0.0:+.1f}"  # never -0.0
        for value in (ratio.center, ratio.low, ratio.high)
        if value is not None
    )
    return f"{center} [{', '.join(ends)}]" if ends else center


def effect_text(found: Interval | None) -> str:
    """`2.1 [0.5, 3.6]` standard deviations; "-" where there is none."""
    if found is None:
        return "-"
    if found.low is None or found.high is None:
        return f"{found.center:.1f}"
    return f"{found.center:.1f} [{found.low:.1f}, {found.high:.1f}]"


def over_text(one: Contrast) -> str:
    """` over ring`, where the backend is not what is compared."""
    name = backend_name(one.contender.cell)
    return "" if one.contender.name.startswith(name) else f" over {name}"


def _subject(one: Contrast) -> str:
    return f"{one.contender.name} against {one.reference.name}{_where(one)}"


def _where(one: Contrast) -> str:
    num_ranks = one.contender.cell.num_ranks
    return f"{over_text(one)} on {num_ranks} rank{'s' * (num_ranks > 1)}"


def _shown_text(ratio: Interval) -> str:
    """Whichever way of saying it is plainer."""
    if ratio.low is not None and ratio.high is not None and ratio.low < 1 < ratio.high:
        unpaired = ", unpaired" if "unpaired" in ratio.method else ""
        return f"{_between(ratio)}{unpaired}"
    return _by(ratio)


def _by(ratio: Interval) -> str:
    """`8.1 % [6.9, 9.3] faster`, in throughput."""
    side = "faster" if ratio.center >= 1 else "slower"
    sign = 1 if ratio.center >= 1 else -1
    text = f"{_effect_size(ratio.center)} %"
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
    size = _effect_size(value)
    return "equally fast" if size == "0.0" else f"{size} % {'faster' if value > 1 else 'slower'}"


def _effect_size(value: float) -> str:
    return f"{abs(100 * (value - 1)):.1f}"


def _without_text(one: Contrast) -> str:
    """What it would be without launches that stand out."""
    if one.without is None or one.ratio is None:
        return ""
    num = one.num_blocks - one.without.n
    which = "block" if num == 1 else f"{num} blocks"
    return f"; without the {which} with an outlying launch {_by(one.without)}"


CONTRAST_LEGEND = (
    f"Throughput: by how much that of the first is above that of the second, with its {100 * LEVEL:.0f} % t interval "
    "over n blocks of launches. Effect: mean over standard deviation of the log ratio between blocks, with its "
    "interval; how surely a difference shows, and not whether it matters. p: sign-flip test of the blocks, exact up to "
    f"{MAX_EXACT}; corrected: Holm's, over all comparisons here. Claimed is what is at most "
    f"{100 * CONTRAST_ALPHA:.0f} % then, "
    f"with an interval that leaves 0 out, and is not within {100 * CONTRAST_BAND:.0f} % for certain."
)
LEGEND_BETWEEN = (
    f"Throughput: by how much that of B is above that of A, with Welch's {100 * LEVEL:.0f} % interval. Unpaired: "
    "launches of two studies have no block in common, so what changed on the machine between them is in it, and "
    "nothing is claimed. To claim a difference, measure both in one study."
)


def render_contrasts(found: Contrasts) -> Iterator[RenderableType]:
    """For `rich.console.Console.print`."""
    yield escape(f"{declaration_text(found)}.")
    for heading, group in groupby(found.found, key=lambda one: contrast_title(one.contender, found.factor)):
        members = list(group)
        yield f"[bold]{escape(heading)}[/bold]"
        if found.factor == STUDY_FACTOR:
            yield Grid(_BETWEEN, [[_between_cells(one) for one in members]])
            continue
        yield Grid(_CONTRAST_COLUMNS, [[_contrast_cells(one) for one in members]])
        for told in contrast_sentences(members):
            yield escape(told)
        yield ""
    for what in found.left_out:
        yield escape(f"Not compared: {what}.")
    yield f"[dim]{escape(LEGEND_BETWEEN if found.factor == STUDY_FACTOR else CONTRAST_LEGEND)}[/dim]"


_CONTRAST_COLUMNS = (
    *("contrast", "ranks", "throughput\n[%]", "effect", "p", "corrected\np"),
    *("n", "verdict"),
)
_BETWEEN = ("backend", "ranks", "throughput\n[%]", "n of A", "n of B")


def _contrast_cells(one: Contrast) -> tuple[str, ...]:
    return (
        f"{one.contender.name} : {one.reference.name}{over_text(one)}",
        f"{one.contender.cell.num_ranks}",
        "-" if one.ratio is None else change_text(one.ratio),
        effect_text(one.standardised),
        "-" if one.p_value is None else probability_text(one.p_value),
        "-" if one.p_adjusted is None else probability_text(one.p_adjusted),
        f"{one.num_blocks}",
        one.verdict,
    )


def _between_cells(one: Contrast) -> tuple[str, ...]:
    cell, other = one.contender.cell, one.reference.cell
    return (
        " : ".join(dict.fromkeys([backend_name(cell), backend_name(other)])),
        " : ".join(dict.fromkeys([f"{cell.num_ranks}", f"{other.num_ranks}"])),
        "-" if one.ratio is None else change_text(one.ratio),
        f"{len(one.reference.rates)}",
        f"{len(one.contender.rates)}",
    )


CONTRASTS_SCHEMA = 1  # raised when a key changes its name or meaning; new keys may come at any time


def contrasts_json(found: Contrasts) -> dict[str, Any]:
    """`{"schema": 1, "factor": ..., "rows": [...]}`, ready for `json.dumps`."""
    return {
        "schema": CONTRASTS_SCHEMA,
        "factor": found.factor,
        "num_declared": len(found.found),
        "blocks_needed": found.blocks_needed,
        "left_out": list(found.left_out),
        "rows": contrast_rows(found),
    }


def contrast_rows(found: Contrasts) -> list[dict[str, Any]]:
    """One flat row per comparison. `ratio` is of throughputs, the contender's over the reference's."""
    return [_contrast_row(one, found.factor) for one in found.found]


def _contrast_row(one: Contrast, factor: str) -> dict[str, Any]:
    return {
        "factor": factor,
        "contender": one.contender.name,
        "reference": one.reference.name,
        **_setting(one.contender),
        "evidence": one.contender.evidence,
        "num_blocks": one.num_blocks,
        **interval_columns("ratio", one.ratio),
        **interval_columns("ratio_without_outliers", one.without),
        **interval_columns("effect", one.standardised),
        "p_value": one.p_value,
        "p_adjusted": one.p_adjusted,
        "verdict": one.verdict,
        "reason": one.reason or None,
        "text": contrast_sentence(one),
    }


def _setting(side: Side) -> dict[str, Any]:
    """The contender's cell, and where it ran."""
    cell = side.cell.model_dump(exclude={"control"})
    return {"system": side.family.system, **cell, "backend_options": options_text(side.cell)}
