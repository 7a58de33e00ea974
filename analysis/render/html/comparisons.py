"""Backends compared on the page: rates and losses per backend, and the claims of a study's declared contrasts.

The contrasts are those that `dlscale compare` declares by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from dlscale.analysis.efficiency import ScalingTable
from dlscale.analysis.findings.backends import BackendComparison, backend_sentences
from dlscale.analysis.findings.contrast_declaration import Declared, declare
from dlscale.analysis.findings.contrast_table import contrast_sentences, contrast_title, too_few
from dlscale.analysis.findings.contrasts import Contrast, Contrasts, contrasts
from dlscale.analysis.render.html.labels import training_title
from dlscale.analysis.render.html.model import Sentence
from dlscale.analysis.render.tables import Tags, workload_title
from dlscale.analysis.render.text import plural
from dlscale.base.errors import UsageError

CLAIMED = ("faster", "slower", "alike")


def contrasts_of(
    table: ScalingTable,
    *,
    order: Sequence[str] = (),
    forbidden: Callable[[Declared], str] | None = None,
) -> Contrasts | None:
    """Each backend versus the first of `order`, on each number of ranks above 1; None with fewer than two backends.

    `forbidden` is passed to `contrasts`.
    """
    try:
        declaration = declare(table.launches, order=order)
    except UsageError:  # nothing to compare, which is no error in a report
        return None
    flagged = {
        (row.cell.id, str(row.evidence)): row.outliers.blocks
        for row in table.rows
        if row.outliers and row.outliers.launches
    }
    return contrasts(declaration, flagged=flagged, forbidden=forbidden)


def contrasts_lead(declared: Contrasts) -> str:
    """A sentence on what was declared, and whether there are enough blocks."""
    short = [contrast.num_blocks for contrast in declared.found if too_few(contrast)]
    lead = (
        f"{plural(len(declared.found), 'comparison')} of {declared.factor}, declared together before any number was "
        f"looked at: {declared.blocks_needed} blocks of launches or more can carry a claim"
    )
    if not short:
        return f"{lead}."
    there = f"here {'is' if max(short) == 1 else 'are'} {max(short)}"
    return f"{lead}; {there}, so {plural(len(short), 'comparison')} cannot be shown."


def contrast_texts(declared: Contrasts) -> list[Sentence]:
    """A sentence for each comparison on the most ranks of its training, in the order of the table.

    Comparisons that only need more blocks have no sentence: `contrasts_lead` counts them.
    """
    sentences = []
    trainings = [
        list(group)
        for _, group in groupby(declared.found, key=lambda contrast: _training(declared, contrast))
    ]
    for group in trainings:
        most = max(contrast.contender.cell.num_ranks for contrast in group)
        first = group[0].contender
        family = first.family
        what = contrast_title(first, declared.factor).removeprefix(family.workload)
        name = f"{workload_title(family.workload)}{what}: " if len(trainings) > 1 else ""
        framework = "" if declared.factor == "framework" else family.framework
        sentences += [
            Sentence(text=f"{name}{sentence}", tags=Tags(workload=family.workload, framework=framework))
            for sentence in contrast_sentences(
                contrast
                for contrast in group
                if contrast.contender.cell.num_ranks == most and not too_few(contrast)
            )
        ]
    return sentences


def claims(declared: Contrasts) -> list[str]:
    """The certain differences on the most ranks, the largest first; none if there are several trainings."""
    if len({_training(declared, contrast) for contrast in declared.found}) != 1:
        return []
    most = max(contrast.contender.cell.num_ranks for contrast in declared.found)
    certain = [
        contrast
        for contrast in declared.found
        if contrast.contender.cell.num_ranks == most and contrast.verdict in CLAIMED
    ]
    return contrast_sentences(sorted(certain, key=_size, reverse=True))


def _training(declared: Contrasts, contrast: Contrast) -> str:
    return contrast_title(contrast.contender, declared.factor)


def _size(contrast: Contrast) -> float:
    return abs(contrast.ratio.center - 1) if contrast.ratio else 0.0


def verdicts(comparisons: Iterable[BackendComparison]) -> list[Sentence]:
    """A sentence per pair of backends, from the comparisons on the most ranks of each family."""
    last: dict[tuple[object, str], BackendComparison] = {}
    for comparison in comparisons:
        key = (comparison.family, comparison.evidence)
        if key not in last or comparison.num_ranks >= last[key].num_ranks:
            last[key] = comparison
    several = len({comparison.family for comparison in last.values()}) > 1
    return [
        Sentence(
            text=f"{training_title(comparison.family)}, {comparison.num_ranks} ranks: {sentence}"
            if several
            else f"On {comparison.num_ranks} ranks: {sentence}",
            tags=Tags(workload=comparison.family.workload, framework=comparison.family.framework),
        )
        for comparison in last.values()
        for sentence in backend_sentences(comparison.contenders)
    ]
