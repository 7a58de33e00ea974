"""What tests of analysis share: made-up records, and what a terminal shows of them."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all
from dlscale.analysis.measured import Measured
from dlscale.analysis.render.screen import render_full, render_screen
from dlscale.benchmarks.records.record import Record
from tests import made_records


@pytest.fixture
def make_record() -> Callable[..., Record]:
    return made_records.make_record


@pytest.fixture
def profile_record() -> Callable[..., Record]:
    return made_records.profile_record


@pytest.fixture
def make_study() -> Callable[..., list[Record]]:
    return made_records.make_study


@pytest.fixture
def table_text() -> Callable[..., str]:
    """What the terminal shows of a study with --full, every run of white space as one blank."""

    def text(study: Measured, width: int = 100) -> str:
        console = Console(file=io.StringIO(), width=width)
        console.print(render_full(study, collect(load_all(), study)))
        return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]

    return text


@pytest.fixture
def screen_text() -> Callable[[Measured], str]:
    """What the terminal shows of a study without --full, every run of white space as one blank."""

    def text(study: Measured) -> str:
        console = Console(file=io.StringIO(), width=100)
        console.print(render_screen(study, collect(load_all(), study)))
        return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]

    return text
