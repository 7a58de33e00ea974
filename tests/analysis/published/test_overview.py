"""docs/published-figures.md and the data say the same."""

from pathlib import Path

import pytest

from dlscale.analysis.published.overview import main, overview_table, what_is_public, written_into
from dlscale.analysis.published.values import KINDS
from dlscale.base.definitions import names

TOP = Path(__file__).parents[3]
PAGE = TOP / "docs" / "published-figures.md"
AGAIN = "the catalogue has changed: python -m dlscale.analysis.published.overview docs/published-figures.md"


def test_the_page_s_table_is_the_catalogue_s(published):
    text = PAGE.read_text()
    assert written_into(text, published) == text, AGAIN
    assert overview_table(published) in text


def test_the_table_is_written_again_in_its_place(tmp_path, published):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n")
    main([str(page)])
    assert (
        page.read_text()
        == f"before\n<!-- figures -->\n{overview_table(published)}\n<!-- end of figures -->\nafter\n"
    )


@pytest.mark.parametrize("name", ["powerai-ddl-2", "tf-cnn-p100", "cosmogan-edison", "imagenet-records"])
def test_what_has_three_values_is_in_full(published, name):
    assert what_is_public(published, published.figure(name)) == "in full"


def test_all_kinds_of_sources_are_explained():
    for kind in KINDS:
        assert f"\n| {kind} | " in PAGE.read_text()


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
