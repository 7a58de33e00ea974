"""docs/published-figures.md and the data say the same."""

from pathlib import Path

from dlscale.analysis.published.values import KINDS
from dlscale.base.definitions import names

TOP = Path(__file__).parents[3]
PAGE = TOP / "docs" / "published-figures.md"


def test_all_kinds_of_sources_are_explained():
    for kind in KINDS:
        assert f"\n| {kind} | " in PAGE.read_text()


def test_every_figure_is_in_the_list_of_the_page(published):
    listed, _, _ = PAGE.read_text().partition("## Claims and predictions")
    assert [name for name in published.figures if f"`{name}`" not in listed] == []


def test_machines_without_a_file_are_named(published):
    asked = {
        own.system
        for figure in published.figures.values()
        for own in (
            figure.own,
            *(one.own for one in figure.series.values()),
            *(one.own for one in figure.panels),
        )
        if own and own.system
    }
    for system in asked - set(names("systems")):
        assert f"`{system}`" in PAGE.read_text()
