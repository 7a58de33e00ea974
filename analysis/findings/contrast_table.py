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
from dlscale.analysis.render.tables import (
    NOTHING,
    Column,
    Shown,
    TableOf,
    Tags,
    Value,
    render_legend,
    render_table,
    shown_interval,
    training_columns,
)
from dlscale.analysis.render.text import backend_name, interval_columns, points
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


Compared = tuple[Contrasts, Contrast]


def too_few(contrast: Contrast) -> bool:
    """Whether nothing but more blocks is missing."""
    return contrast.verdict == "cannot be shown" and contrast.ratio is not None and contrast.num_blocks > 0


def compared(found: Contrasts) -> list[Compared]:
    """The rows of the table."""
    return [(found, contrast) for contrast in found.found]


def tags_of_pair(contender: Side, reference: Side) -> Tags:
    """Both sides': who asks for one of them sees what it was compared with."""
    sides = (contender.cell, reference.cell)
    return Tags(
        workload=contender.cell.workload,
        framework=" ".join(dict.fromkeys(cell.framework for cell in sides)),
        backend=" ".join(dict.fromkeys(cell.backend for cell in sides)),
    )


def _contrast_name(pair: Compared) -> str:
    _, contrast = pair
    side = contrast.contender
    kind = "" if side.evidence == "measured" else f", {side.evidence}"
    return f"{side.name} : {contrast.reference.name}{over_text(contrast)}{kind}"


def _throughput(pair: Compared) -> Shown:
    ratio = pair[1].ratio
    return shown_interval(ratio and ratio.excess(), lambda change: points(change, sign="+"))


def _probability(p: float | None) -> Value:
    return NOTHING if p is None else Value(text=probability_text(p), order=p)


def _why(pair: Compared) -> str:
    found, contrast = pair
    return f"needs {found.blocks_needed} blocks" if too_few(contrast) else contrast.reason


CONTRASTS = TableOf[Compared](
    name="contrasts",
    caption="Comparisons",
    columns=(
        *training_columns(lambda pair: pair[1].contender.family),
        Column("contrast", _contrast_name, numeric=False),
        Column("ranks", lambda pair: pair[1].contender.cell.num_ranks),
        Column("throughput", _throughput, unit="%"),
        Column("effect", lambda pair: shown_interval(pair[1].standardised, "{:.1f}".format)),
        Column("p", lambda pair: _probability(pair[1].p_value)),
        Column("corrected p", lambda pair: _probability(pair[1].p_adjusted)),
        Column("blocks", lambda pair: pair[1].num_blocks),
        Column("verdict", lambda pair: pair[1].verdict, numeric=False),
        Column("why", _why, numeric=False, detail=True),
    ),
    data=lambda pair: _contrast_row(pair[1], pair[0].factor),
    legend=(
        "Throughput: by how much that of the first is above that of the second, with its "
        f"{100 * LEVEL:.0f} % t interval over blocks of launches. Effect: mean over standard deviation of the log "
        "ratio between blocks, with its interval; it says how consistent a difference is, not how large. p: sign-flip "
        f"test of the blocks, exact up to {MAX_EXACT}; corrected: Holm's, over all comparisons here. Claimed is a "
        f"difference whose corrected p is at most {100 * CONTRAST_ALPHA:.0f} %, "
        f"with an interval that leaves 0 out, and that is not within {100 * CONTRAST_BAND:.0f} % for certain."
    ),
    tags=lambda pair: tags_of_pair(pair[1].contender, pair[1].reference),
    strong=lambda pair: pair[1].verdict in ("faster", "slower"),
)


def _both(of: str, and_of: str) -> str:
    return " : ".join(dict.fromkeys([of, and_of]))


BETWEEN_STUDIES = TableOf[Compared](
    name="contrasts",
    caption="Comparison of two studies",
    columns=(
        Column(
            "backend",
            lambda pair: _both(backend_name(pair[1].contender.cell), backend_name(pair[1].reference.cell)),
            numeric=False,
        ),
        Column(
            "ranks",
            lambda pair: _both(str(pair[1].contender.cell.num_ranks), str(pair[1].reference.cell.num_ranks)),
        ),
        Column("throughput", _throughput, unit="%"),
        Column("n of A", lambda pair: len(pair[1].reference.rates)),
        Column("n of B", lambda pair: len(pair[1].contender.rates)),
    ),
    data=CONTRASTS.data,
    legend=(
        f"Throughput: by how much that of B is above that of A, with Welch's {100 * LEVEL:.0f} % interval. Unpaired: "
        "launches of two studies have no block in common, so what changed on the machine between them is in it, and "
        "nothing is claimed. To claim a difference, measure both in one study."
    ),
)


def render_contrasts(found: Contrasts) -> Iterator[RenderableType]:
    """For `rich.console.Console.print`."""
    yield escape(f"{declaration_text(found)}.")
    declared = BETWEEN_STUDIES if found.factor == STUDY_FACTOR else CONTRASTS
    for heading, group in groupby(
        compared(found), key=lambda pair: contrast_title(pair[1].contender, found.factor)
    ):
        members = list(group)
        yield f"[bold]{escape(heading)}[/bold]"
        yield from render_table(declared.of(members), caption=False, legend=False)
        if declared is CONTRASTS:
            for sentence in contrast_sentences(contrast for _, contrast in members):
                yield escape(sentence)
            yield ""
    for reason in found.left_out:
        yield escape(f"Not compared: {reason}.")
    yield from render_legend(declared.legend)


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
