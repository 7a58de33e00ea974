"""The table of contrasts: a sentence for each, the declaration, the columns for the terminal and for `--json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from dlscale.analysis.declare import NOTHING, Column, Sentence, Shown, TableOf, Tags, Value, shown_interval
from dlscale.analysis.families import environment_text
from dlscale.analysis.finding import Finding, training_columns
from dlscale.analysis.findings.contrast_declaration import STUDY_FACTOR
from dlscale.analysis.findings.contrasts import (
    CONTRAST_ALPHA,
    CONTRAST_BAND,
    MAX_EXACT,
    Contrast,
    Contrasts,
    study_contrasts,
    undecided_text,
)
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Block
from dlscale.analysis.records import attributes, method_columns
from dlscale.analysis.statistics import LEVEL, Interval, disagree
from dlscale.analysis.text import RATIO_LIMITS, backend_name, interval_columns, plural, points, workload_title

NAMED = 3  # comparisons named in one sentence


def lead_text(declared: Contrasts) -> str:
    """How many comparisons were declared together, what a claim needs, and whether there is enough of it."""
    many = f"{plural(len(declared.found), 'comparison')} of "
    if declared.factor == STUDY_FACTOR:
        return f"{many}B with A."
    needed = declared.blocks_needed
    lead = (
        f"{many}{declared.factor}, fixed in advance; {'each' if len(declared.found) > 1 else 'it'} needs "
        f"{plural(needed, 'launch')} of both sides"
    )
    short = [contrast.num_blocks for contrast in declared.found if contrast.too_few]
    if not short:
        return f"{lead} (--launches {needed})."
    return f"{lead}; {undecided_text(max(short), len(short), needed)}."


def contrast_title(contrast: Contrast) -> str:
    """The title of a training's comparisons: workload, framework, scaling and system."""
    side, family = contrast.contender, contrast.contender.family
    what = [
        f"{family.workload} {family.preset}",
        *([family.framework] if contrast.factor != "framework" else []),
    ]
    kind = "" if side.evidence == "measured" else f" ({side.evidence})"
    return f"{', '.join(what)}, {family.scaling_mode} scaling on {family.system}{kind}"


def contrast_sentences(contrasts: Iterable[Contrast]) -> list[str]:
    """A sentence for each comparison with a result, and one for all that cannot be shown for the same reason."""
    sentences, hidden = [], dict[str, list[str]]()
    for contrast in contrasts:
        if contrast.verdict == "cannot be shown":
            hidden.setdefault(contrast.reason, []).append(_subject(contrast))
        else:
            sentences.append(contrast_sentence(contrast))
    for reason, names in hidden.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        sentences.append(f"{', '.join(names[:NAMED])}{more} cannot be shown: {reason}.")
    return sentences


def contrast_sentence(contrast: Contrast) -> str:
    """The verdict in plain words."""
    name, reference = contrast.contender.name, contrast.reference.name
    if contrast.ratio is None:
        return f"{_subject(contrast)} cannot be shown: {contrast.reason}."
    median = _median_text(contrast)
    if contrast.verdict in ("faster", "slower"):
        return f"{name} is {_by(contrast.ratio)} than {reference}{_where(contrast)} ({chance_text(contrast)}){median}."
    if contrast.verdict == "alike":
        alike = f"{name} and {reference} are alike{_where(contrast)}, within {100 * CONTRAST_BAND:.0f} %"
        return f"{alike}: {name} is {_between(contrast.ratio)}{median}."
    if contrast.verdict == "not shown":
        unknown = f"{name} is not shown to be faster or slower than {reference}{_where(contrast)}"
        return f"{unknown}: it is {_between(contrast.ratio)} ({chance_text(contrast)}){median}."
    seen = f"{_shown_text(contrast.ratio)}{median}"
    return f"{_subject(contrast)} cannot be shown: {contrast.reason}. What was seen: {seen}."


def chance_text(contrast: Contrast) -> str:
    """`corrected p 0.031, 7 blocks`."""
    if contrast.p_adjusted is None:
        return "no block in common"
    return f"corrected p {probability_text(contrast.p_adjusted)}, {contrast.num_blocks} blocks"


def probability_text(p: float) -> str:
    """Two digits; never 0."""
    return f"{p:.2g}" if p >= 1e-4 else "< 0.0001"


def over_text(contrast: Contrast) -> str:
    """` over ring`, if the backend is not the factor that is compared."""
    cell = contrast.contender.cell
    return "" if contrast.contender.name.startswith(cell.backend) else f" over {backend_name(cell)}"


def _subject(contrast: Contrast) -> str:
    return f"{contrast.contender.name} against {contrast.reference.name}{_where(contrast)}"


def _where(contrast: Contrast) -> str:
    num_ranks = contrast.contender.cell.num_ranks
    return f"{over_text(contrast)} on {num_ranks} rank{'s' * (num_ranks > 1)}"


def _shown_text(ratio: Interval) -> str:
    """The ratio as a range if its interval contains 1, else as a difference."""
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


def _median_text(contrast: Contrast) -> str:
    """The result of the median block where that differs."""
    median = contrast.median_ratio
    if contrast.ratio is None or median is None or not disagree(contrast.ratio, median):
        return ""
    return f"; in the median block {_side(median)}"


def _tags(contrast: Contrast) -> Tags:
    """The tags of both sides, so that a filter for one of them keeps the comparison."""
    sides = (contrast.contender.cell, contrast.reference.cell)
    return Tags(
        workload=contrast.contender.cell.workload,
        framework=" ".join(dict.fromkeys(cell.framework for cell in sides)),
        backend=" ".join(dict.fromkeys(cell.backend for cell in sides)),
    )


def _contrast_name(contrast: Contrast) -> str:
    side = contrast.contender
    kind = "" if side.evidence == "measured" else f", {side.evidence}"
    return f"{side.name} : {contrast.reference.name}{over_text(contrast)}{kind}"


def _throughput(contrast: Contrast) -> Shown:
    ratio = contrast.ratio
    return shown_interval(ratio and ratio.excess(), lambda change: points(change, sign="+"))


def _probability(p: float | None) -> Value:
    return NOTHING if p is None else Value(text=probability_text(p), order=p)


def _why(contrast: Contrast) -> str:
    return f"needs {contrast.blocks_needed} blocks" if contrast.too_few else contrast.reason


def _row(contrast: Contrast) -> dict[str, Any]:
    """One flat row. `ratio` is of throughputs, the contender's over the reference's."""
    side = contrast.contender
    return {
        "factor": contrast.factor,
        "contender": side.name,
        "reference": contrast.reference.name,
        "system": side.family.system,
        **side.cell.model_dump(exclude={"control", "variables"}),
        **method_columns(side.cell),
        "environment": environment_text(side.cell),
        "evidence": side.evidence,
        "num_blocks": contrast.num_blocks,
        **interval_columns("ratio", contrast.ratio),
        "ratio_median": contrast.median_ratio,
        **interval_columns("effect", contrast.standardised),
        **attributes(contrast, "p_value p_adjusted verdict"),
        "reason": contrast.reason or None,
        "text": contrast_sentence(contrast),
    }


CONTRASTS = TableOf[Contrast](
    name="contrasts",
    caption="Comparisons",
    columns=(
        *training_columns(lambda contrast: contrast.contender.family),
        Column("contrast", _contrast_name, numeric=False),
        Column("ranks", lambda contrast: contrast.contender.cell.num_ranks),
        Column("throughput", _throughput, unit="%"),
        Column("effect", lambda contrast: shown_interval(contrast.standardised, "{:.1f}".format)),
        Column("p", lambda contrast: _probability(contrast.p_value)),
        Column("corrected p", lambda contrast: _probability(contrast.p_adjusted)),
        Column("blocks", lambda contrast: contrast.num_blocks),
        Column("verdict", lambda contrast: contrast.verdict, numeric=False),
        Column("why", _why, numeric=False, detail=True),
    ),
    data=_row,
    legend=(
        "Throughput: by how much that of the first is above that of the second, with "
        f"{RATIO_LIMITS} over blocks. Effect: mean over standard deviation of the log "
        "ratio between blocks, with its interval; it says how consistent a difference is, not how large. p: sign-flip "
        f"test of the blocks, exact up to {MAX_EXACT}; corrected: Holm's, over all comparisons here. Claimed is a "
        f"difference whose corrected p is at most {100 * CONTRAST_ALPHA:.0f} %, "
        f"with an interval that leaves 0 out, and that is not within {100 * CONTRAST_BAND:.0f} % for certain."
    ),
    tags=_tags,
    strong=lambda contrast: contrast.verdict in ("faster", "slower"),
)


def _both(of: str, and_of: str) -> str:
    return " : ".join(dict.fromkeys([of, and_of]))


BETWEEN_STUDIES = TableOf[Contrast](
    name="contrasts",
    caption="Comparison of two studies",
    columns=(
        Column(
            "backend",
            lambda contrast: _both(
                backend_name(contrast.contender.cell), backend_name(contrast.reference.cell)
            ),
            numeric=False,
        ),
        Column(
            "ranks",
            lambda contrast: _both(
                str(contrast.contender.cell.num_ranks), str(contrast.reference.cell.num_ranks)
            ),
        ),
        Column("throughput", _throughput, unit="%"),
        Column("n of A", lambda contrast: len(contrast.reference.rates)),
        Column("n of B", lambda contrast: len(contrast.contender.rates)),
    ),
    data=CONTRASTS.data,
    legend=(
        f"Throughput: by how much that of B is above that of A, with Welch's {100 * LEVEL:.0f} % interval of typical "
        "launches. Unpaired: "
        "launches of two studies have no block in common, so what changed on the machine between them is in it, and "
        "nothing is claimed. To claim a difference, measure both in one study."
    ),
)


CONTRASTS_SCHEMA = 1  # raised when a key changes its name or meaning; new keys may come at any time


def contrasts_json(contrasts: Contrasts) -> dict[str, Any]:
    """`{"schema": 1, "factor": ..., "rows": [...]}`, ready for `json.dumps`."""
    return {
        "schema": CONTRASTS_SCHEMA,
        "factor": contrasts.factor,
        "num_declared": len(contrasts.found),
        "blocks_needed": contrasts.blocks_needed,
        "left_out": list(contrasts.left_out),
        "rows": [CONTRASTS.data(contrast) for contrast in contrasts.found],
    }


MOST_SENTENCES = 4  # on one screen


def contrast_texts(contrasts: Iterable[Contrast]) -> Iterator[Sentence]:
    """A sentence for each comparison on the most ranks of its training, in the order of the table.

    Comparisons that only need more blocks have no sentence: `lead_text` counts them.
    """
    trainings = [list(group) for _, group in groupby(contrasts, key=contrast_title)]
    for group in trainings:
        most = max(contrast.contender.cell.num_ranks for contrast in group)
        family = group[0].contender.family
        what = contrast_title(group[0]).removeprefix(family.workload)
        name = f"{workload_title(family.workload)}{what}: " if len(trainings) > 1 else ""
        framework = "" if group[0].factor == "framework" else family.framework
        shown = [one for one in group if one.contender.cell.num_ranks == most and not one.too_few]
        for sentence in contrast_sentences(shown):
            yield Sentence(text=f"{name}{sentence}", tags=Tags(workload=family.workload, framework=framework))


def _screen(study: Measured) -> Iterator[Block]:
    """Sentences about a factor in which two families differ, such as the framework."""
    declared = study.once(study_contrasts)
    if declared is None or declared.factor == "backend":
        return
    sentences = list(contrast_texts(declared.found)) or [Sentence(text=lead_text(declared))]
    yield from sentences[:MOST_SENTENCES]
    if len(sentences) > MOST_SENTENCES:
        yield Sentence(text=f"{len(sentences) - MOST_SENTENCES} more: dlscale compare")


def _sentences(found: Sequence[Contrasts]) -> Iterator[Sentence]:
    for declared in found:
        yield Sentence(text=lead_text(declared))
        yield from contrast_texts(declared.found)


FINDING = Finding(
    name="contrasts",
    title="Significant differences",
    compute=lambda study: tuple(filter(None, [study.once(study_contrasts)])),
    sentences=_sentences,
    more=lambda found: (CONTRASTS.of(one for declared in found for one in declared.found),),
    screen=_screen,
    data=lambda found: {"contrasts": [CONTRASTS.data(one) for declared in found for one in declared.found]},
)
FINDINGS = (FINDING,)
