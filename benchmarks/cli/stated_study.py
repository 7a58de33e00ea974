"""What a study's study.json states of it, for what is read of its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlscale.analysis.variants import Variants
from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular
from dlscale.base.parsing import parse_json_object
from dlscale.benchmarks.records.record import BASES, Base, Setting
from dlscale.benchmarks.study.axes import TARGET_FIELDS, stated
from dlscale.benchmarks.study.study import read_study_file


def study_in(folder: Path) -> dict[str, Any]:
    """The study as study.json has it; empty where that does not say."""
    try:
        study = parse_json_object(read_regular(folder / "study.json"))["study"]
    except (OSError, ValueError, KeyError):
        return {}
    return study if isinstance(study, dict) else {}


def order_of(folder: Path) -> list[str]:
    """What the study names, in its order; nothing where study.json does not say."""
    study = study_in(folder)
    try:
        return [*study["backends"], *study["frameworks"]]
    except (KeyError, TypeError):
        return []


def variants_of(folder: Path) -> Variants | None:
    """The axes or the ladder of the study; None where it has none, or study.json does not say."""
    if not study_in(folder):
        return None
    try:
        study = read_study_file(folder).study
    except UsageError:
        return None
    known = stated(study.model_dump())
    own: dict[str, Setting | None] = {name: known.get(name) for step in study.ladder for name in step}
    # Learning rates are compared by what trainings need (`findings.tuning`): they change no speed.
    axes = {name: values for name, values in study.axes.items() if name not in TARGET_FIELDS}
    return Variants(axes=axes, ladder=study.ladder, own=own) or None


def base_of(folder: Path) -> Base | None:
    """The base case that the study was run with; None where it named none."""
    named = study_in(folder).get("base")
    return next((base for base in BASES if base == named), None)
