"""A study's declared comparisons, as `dlscale compare` declares them if nobody asks for less."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from dlscale.analysis.contrasts.contrast import Contrast, Contrasts, contrasts
from dlscale.analysis.contrasts.declare import Declared, Side, declare
from dlscale.analysis.contrasts.words import sentences, title
from dlscale.analysis.page.model import Text
from dlscale.analysis.page.plot_model import Tags
from dlscale.analysis.page.words import plural, workload_title
from dlscale.analysis.scaling import ScalingTable
from dlscale.models.errors import UsageError

CLAIMED = ("faster", "slower", "alike")


def contrasts_of(
    table: ScalingTable,
    *,
    order: Sequence[str] = (),
    forbidden: Callable[[Declared], str] | None = None,
) -> Contrasts | None:
    """Each backend against the first of `order`, on each number of ranks above 1; None if there are no two of them.

    `forbidden` is that of `contrast.contrasts`.
    """
    try:
        declaration = declare(table.launches, order=order)
    except UsageError:  # there is nothing to compare, which is no mistake of whoever asks for a report
        return None
    flagged = {
        (row.cell.id, str(row.evidence)): row.outliers.blocks
        for row in table.rows
        if row.outliers and row.outliers.launches
    }
    return contrasts(declaration, flagged=flagged, forbidden=forbidden)


def lead(found: Contrasts) -> str:
    """What was declared, and whether the blocks suffice."""
    short = [one.num_blocks for one in found.found if too_few(one)]
    said = (
        f"{plural(len(found.found), 'comparison')} of {found.factor}, declared together before any number was looked "
        f"at: {found.blocks_needed} blocks of launches or more can carry a claim"
    )
    if not short:
        return f"{said}."
    there = f"here {'is' if max(short) == 1 else 'are'} {max(short)}"
    return f"{said}; {there}, so {plural(len(short), 'comparison')} cannot be shown."


def told(found: Contrasts) -> list[Text]:
    """A sentence for each comparison on the most ranks of its training, in the order of the table.

    None for those that only need more blocks: how many is said once, by `lead`.
    """
    said = []
    trainings = [list(group) for _, group in groupby(found.found, key=lambda one: _training(found, one))]
    for group in trainings:
        most = max(one.contender.cell.num_ranks for one in group)
        first = group[0].contender
        family = first.family
        what = title(first, found.factor).removeprefix(family.workload)
        name = f"{workload_title(family.workload)}{what}: " if len(trainings) > 1 else ""
        framework = "" if found.factor == "framework" else family.framework
        said += [
            Text(text=f"{name}{sentence}", tags=Tags(workload=family.workload, framework=framework))
            for sentence in sentences(
                one for one in group if one.contender.cell.num_ranks == most and not too_few(one)
            )
        ]
    return said


def claims(found: Contrasts) -> list[str]:
    """What is certain on the most ranks of all, the largest difference first; nothing of several trainings."""
    if len({_training(found, one) for one in found.found}) != 1:
        return []
    most = max(one.contender.cell.num_ranks for one in found.found)
    certain = [one for one in found.found if one.contender.cell.num_ranks == most and one.verdict in CLAIMED]
    return sentences(sorted(certain, key=_size, reverse=True))


def too_few(one: Contrast) -> bool:
    """Whether nothing but more blocks is missing."""
    return one.verdict == "cannot be shown" and one.ratio is not None and one.num_blocks > 0


def tags_of_pair(contender: Side, reference: Side) -> Tags:
    """Both sides': who asks for one of them sees what it was compared with."""
    sides = (contender.cell, reference.cell)
    return Tags(
        workload=contender.cell.workload,
        framework=" ".join(dict.fromkeys(cell.framework for cell in sides)),
        backend=" ".join(dict.fromkeys(cell.backend for cell in sides)),
    )


def _training(found: Contrasts, one: Contrast) -> str:
    return title(one.contender, found.factor)


def _size(one: Contrast) -> float:
    return abs(one.ratio.center - 1) if one.ratio else 0.0
