"""What a study's study.json states of it, for what is read of its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dlscale.base.files import read_regular
from dlscale.base.parsing import parse_json_object
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.records.curves import OF_METHOD, SETTINGS
from dlscale.benchmarks.records.record import BASES, Base
from dlscale.benchmarks.study.study import STUDY_FILE, TARGET_AXES, Study
from dlscale.benchmarks.systems.system import System


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedStudy:
    """A study as its file has it, which may say little: another version wrote it, or it is damaged."""

    fields: Mapping[str, Any]
    system: System | None = None

    @property
    def order(self) -> list[str]:
        """The backends and frameworks that the study names, in its order; nothing where that is not said."""
        try:
            return [*self.fields["backends"], *self.fields["frameworks"]]
        except (KeyError, TypeError):
            return []

    @property
    def axes(self) -> Mapping[str, Sequence[Setting]]:
        """The axes of the study, setting -> values, the first of which is the reference; none where not said."""
        try:
            study = Study.model_validate(self.fields)
        except ValidationError:
            return {}
        # Learning rates change no speed.
        return {name: values for name, values in study.axes.items() if name not in TARGET_AXES}

    @property
    def settings(self) -> Sequence[str]:
        """The settings other than backends' options that distinguish curves; none where all are of one family."""
        return () if all("." in name or name in OF_METHOD for name in self.axes) else SETTINGS

    @property
    def base(self) -> Base | None:
        """The base case that the study was run with; None where it named none."""
        named = self.fields.get("base")
        return next((base for base in BASES if base == named), None)


def study_in(folder: Path) -> StatedStudy:
    """The study in a folder, without fields where study.json does not say."""
    try:
        file = parse_json_object(read_regular(folder / STUDY_FILE))
    except (OSError, ValueError):
        file = {}
    study = file.get("study")
    try:
        system = System.model_validate(file.get("system"))
    except ValidationError:
        system = None
    return StatedStudy(fields=study if isinstance(study, dict) else {}, system=system)
