"""Other programs on the machine: what they took, and whether a study may claim anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from dlscale.analysis.declare import Sentence
from dlscale.analysis.finding import Finding
from dlscale.analysis.interference import Interference
from dlscale.analysis.measured import Measured


def is_busy(study: Measured) -> bool:
    """Whether other programs disturbed too many launches for any claim."""
    return study.interference is not None and study.interference.busy


def _found(study: Measured) -> tuple[Interference, ...]:
    return (study.interference,) if study.interference else ()


def _sentences(found: Iterable[Interference]) -> list[Sentence]:
    return [Sentence(text=one.text, strong=one.busy) for one in found if one.text]


FINDINGS = (
    Finding(
        name="interference",
        title="Other programs on the machine",
        compute=_found,
        sentences=_sentences,
        screen=lambda study: _sentences(_found(study)),
        data=lambda found: {"interference": asdict(found[0]) | {"busy": found[0].busy} if found else None},
        under="failures",
    ),
)
