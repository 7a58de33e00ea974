"""Backends compared on the page: the claims of a study's declared contrasts in words, and notes on single backends."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from dlscale.analysis.declare import Sentence, Tags
from dlscale.analysis.findings.backends import BackendComparison, backend_notes
from dlscale.analysis.findings.contrast_table import contrast_sentences, contrast_title
from dlscale.analysis.findings.contrasts import Contrast, Contrasts, undecided_text
from dlscale.analysis.text import plural, training_title, workload_title

CLAIMED = ("faster", "slower", "alike")


def contrasts_lead(declared: Contrasts) -> str:
    """A sentence on what was declared, and whether there are enough blocks."""
    short = [contrast.num_blocks for contrast in declared.found if contrast.too_few]
    lead = (
        f"{plural(len(declared.found), 'comparison')} of {declared.factor}, declared together, before any number was "
        f"seen: a claim needs {plural(declared.blocks_needed, 'launch')} of each or more"
    )
    if not short:
        return f"{lead}."
    return f"{lead}; {undecided_text(max(short), len(short), declared.blocks_needed)}."


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
                if contrast.contender.cell.num_ranks == most and not contrast.too_few
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


def notes(comparisons: Iterable[BackendComparison]) -> list[Sentence]:
    """The notes on backends, from the comparisons on the most ranks of each family."""
    last: dict[tuple[object, str], BackendComparison] = {}
    for comparison in comparisons:
        key = (comparison.family, comparison.evidence)
        if key not in last or comparison.num_ranks >= last[key].num_ranks:
            last[key] = comparison
    several = len({comparison.family for comparison in last.values()}) > 1
    return [
        Sentence(
            text=f"{training_title(comparison.family)}, {comparison.num_ranks} ranks: {note}"
            if several
            else f"On {comparison.num_ranks} ranks: {note}",
            tags=Tags(workload=comparison.family.workload, framework=comparison.family.framework),
        )
        for comparison in last.values()
        for note in backend_notes(comparison.contenders)
    ]
