"""The catalogue of published figures, and what does not fit together with it."""

from pathlib import Path

import pytest

from dlscale.analysis.published.catalogue import load_published
from dlscale.base.definitions import names
from dlscale.base.errors import UsageError
from dlscale.collectives import NAMES as BACKENDS
from dlscale.models import NAMES as WORKLOADS
from dlscale.models import load_workload
from dlscale.models.frameworks import FRAMEWORKS


def test_every_figure_is_laid_out_with_what_is_public(published):
    for name, figure in published.figures.items():
        assert published.values_of(name) or published.statements_of(name), name
        assert figure.public.endswith(".")
    assert sum(bool(figure.panels) for figure in published.figures.values()) == 29


def test_what_of_ours_joins_can_exist(published):
    for figure in published.figures.values():
        for own in (
            figure.own,
            *(one.own for one in figure.series.values()),
            *(one.own for one in figure.panels),
        ):
            if own is None:
                continue
            assert own.workload in (None, *WORKLOADS)
            assert own.framework in (None, *FRAMEWORKS)
            assert own.backend in (None, *BACKENDS)
            if own.workload and own.preset:
                load_workload(own.workload).preset(own.preset)


def test_machines_that_dlscale_knows_have_its_names(published):
    asked = {figure.own.system for figure in published.figures.values() if figure.own}
    assert {"cori", "piz-daint", "seawulf"} <= asked & set(names("systems"))


def test_an_unknown_figure_names_the_known_ones(published):
    with pytest.raises(
        UsageError, match=r"no published figure 'powerai' .*; choose one of: cug18-strong-cori, "
    ):
        published.figure("powerai")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('layout = "throughput"', 'layout = "speed"'), "figures.small.panels.0: no quantity 'speed'"),
        (('y_unit = "images/s"', 'y_unit = "m"'), "figures.small.panels.0: throughput in 'm'"),
        (('y_scale = "log"', 'y_scale = "cubic"'), "panels.0.y_scale: 'linear' or 'log' is expected"),
        (('x_unit = "nodes"', 'x_unit = ""'), "x in 'no unit'"),
        (('x_label = "nodes"', ""), "x_label is missing"),
        (("tolerance = 0.1", ""), "tolerance: it is missing"),
        (("tolerance = 0.1", "tolerance = 0"), "tolerance: more than 0 is expected"),
        (('public = "Every value."', ""), "public: it is missing"),
        (("[figures.small]", "[figures.Small]"), "id: small letters, digits and hyphens only"),
        (("figures.small", "figures.other"), "no entry [figures.small]"),
        (("series.theirs", "series.ours"), "no series 'ours' is public"),
        (('x_unit = "nodes"', 'x_unit = "GPUs"'), "[figures.small]: x in 'GPUs', in small.csv in 'nodes'"),
        (('framework = "torch"', 'frame = "torch"'), "own.frame: there is no such field"),
        (("x_range = [1, 4]", "x_range = [1, 4"), "figures.toml is not valid TOML: "),
    ],
)
def test_a_mistake_in_the_catalogue_is_told_in_one_line(folder, catalogue, change, words):
    assert change[0] in catalogue
    path = folder({"x": "1", "y": "10"}, catalogue=catalogue.replace(*change))
    with pytest.raises(UsageError) as error:
        load_published(path)
    assert str(path / "figures.toml") in str(error.value)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_two_values_that_must_agree_are_both_public(folder, catalogue):
    place = 'figure = "small", series = "theirs", quantity = "throughput"'
    same = f"[[same]]\nnote = 'n'\na = {{ {place}, x = 1 }}\nb = {{ {place}, x = 2 }}\n"
    rows = {"x": "1", "y": "10"}, {"x": "2", "y": "20"}
    assert len(load_published(folder(*rows, catalogue=catalogue + same)).same) == 1
    with pytest.raises(UsageError, match=r"\[\[same\]\]: no value .*'x': 2.0.* is public"):
        load_published(folder(rows[0], catalogue=catalogue + same))


def test_without_a_checkout_there_is_nothing_to_read(tmp_path):
    with pytest.raises(UsageError, match="they come with the checkout"):
        load_published(tmp_path)


def test_every_figure_is_in_the_list_of_the_page(published):
    page = Path(__file__).parents[3] / "docs" / "published-figures.md"
    listed, _, _ = page.read_text().partition("## Claims and predictions")
    assert [name for name in published.figures if f"`{name}`" not in listed] == []
