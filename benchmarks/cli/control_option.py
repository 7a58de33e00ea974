"""The option --controls: what a study measures beside its trainings."""

from __future__ import annotations

from typing import Any, get_args

import click

from dlscale.base.definitions import one_of
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.study.study import StudyControl

KNOWN = get_args(StudyControl)
NO_CONTROLS = "none"


class Controls(Words):
    """Names of controls; `none` alone stands for no control."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """The names in `value`. Raises UsageError for one that is no control's."""
        names = super().convert(value, param, ctx)
        if names == [NO_CONTROLS]:
            return []
        return list(dict.fromkeys(one_of("control", name, KNOWN) for name in names))


CONTROLS_OPTION = click.option(
    "--controls",
    type=Controls(),
    help="Controls beside the trainings, e.g. synthetic,loader,exchange,profile, or none; default: the study's.",
)
