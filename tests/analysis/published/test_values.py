"""What is in results/published, transcribed a second time; and what may not stand there."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.published.catalogue import Own, Place, load_published
from dlscale.analysis.published.values import STATEMENTS
from dlscale.base.definitions import names
from dlscale.base.errors import UsageError
from dlscale.collectives import NAMES as BACKENDS
from dlscale.models import NAMES as WORKLOADS
from dlscale.models import load_workload
from dlscale.models.frameworks import FRAMEWORKS

from .conftest import value

NUMBERS = {
    "powerai-ddl-2": 14,
    "powerai-ddl-3": 14,
    "tf-cnn-p100": 20 + 19 + 16,  # AlexNet with real data on 8 GPUs is not in the table
    "tf-cnn-k80": 20 + 10,
    "tf-cnn-ec2": 15 + 10,
    "cosmogan-edison": 8 + 8 + 8,
    "imagenet-records": 9 + 9 + 5 + 8,
    "horovod-efficiencies": 3 + 2 + 2,
    "goyal-table-1": 4 + 4 + 2,
    "hep-cnn-selection": 19 + 6,
}


def test_no_value_is_missing(published):
    values = published.values[published.values["statement"] == ""]
    assert values.groupby("figure").size().to_dict() == NUMBERS
    assert (values["source"] != "").all()


@pytest.mark.parametrize(
    ("figure", "series", "quantity", "x", "printed"),
    [
        ("powerai-ddl-2", "Caffe", "speed_up", 64, 15.5),
        ("tf-cnn-p100", "VGG16, real", "throughput", 8, 898),
        ("tf-cnn-ec2", "ResNet-152, batch 32", "throughput", 32, 565),
        ("cosmogan-edison", "Horovod over Cray MPI", "throughput_half_width", 16, 1.095),
        ("imagenet-records", "He et al.", "time_to_solution", 8, 29 * 3600),
        ("imagenet-records", "Smith et al.", "time_to_solution", None, 1800),
        ("horovod-efficiencies", "VGG-16, RoCE 25 Gb/s", "efficiency", 128, 0.79),
        ("goyal-table-1", "gradual warm-up", "top1_error", 8192, 0.2374),
        ("hep-cnn-selection", "cuts, validation", "background_rejection", None, 0.999945),
        ("cray-grpc", "Cray plugin", "relative_throughput", 128, 1.8),
        ("mpi-learn-cooley", "MPI-Learn", "speed_up", 60, 30),
    ],
)
def test_values_are_those_of_the_publications(published, figure, series, quantity, x, printed):
    (y,) = published.at(Place(figure=figure, series=series, quantity=quantity, x=x))["y"]
    assert y == pytest.approx(printed, rel=1e-12)


def test_what_follows_from_a_statement_is_what_its_formula_gives(published):
    for figure, series, quantity, x, expected in (
        ("goyal-7", "ResNet-50", "seconds_per_step", 11264, 30 * 11264 / 1.28e6),
        ("goyal-8", "ResNet-50", "throughput", 352, 1.28e6 / 30),
        ("cug18-weak-hep-cnn-cori", "one node", "throughput", 1, 1 / 0.04),
    ):
        (y,) = published.at(Place(figure=figure, series=series, quantity=quantity, x=x))["y"]
        assert y == pytest.approx(expected, rel=1e-3)


@given(st.integers(1, 10**6), st.integers(0, 4))
def test_the_rounding_is_half_of_the_last_printed_digit(digits, decimals):
    row = value("efficiency", 1, f"{digits / 10**decimals:.{decimals}f}", unit="%").cells
    assert row["high"] - row["y"] == pytest.approx(0.01 * 0.5 * 10**-decimals)
    assert row["y"] - row["low"] == pytest.approx(0.01 * 0.5 * 10**-decimals)
    assert row["y"] == pytest.approx(0.01 * digits / 10**decimals)


def refused(path, place, words):
    with pytest.raises(UsageError) as error:
        load_published(path)
    assert f"{path}/{place}" in str(error.value)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"y_unit": "furlongs"}, "throughput in 'furlongs'; choose one of: images/s"),
        ({"x_unit": ""}, "x in 'no unit'"),
        ({"quantity": "speed"}, "no quantity 'speed'"),
        ({"source": "  "}, "source: string should have at least"),
        ({"kind": "recalled"}, "kind: input should be 'text', 'table'"),
        ({"kind": "derived"}, "has its formula in the note"),
        ({"y": "1e3"}, "y: string should match pattern"),
        ({"x": "many"}, "x: input should be a valid number"),
        ({"series": ""}, "series: string should have at least"),
        ({"figure": "large"}, "in the file of 'small'"),
        ({"x": "1"}, "stands in a line before"),
    ],
)
def test_a_bad_value_is_told_with_file_and_line(folder, row, words):
    refused(folder({"x": "1", "y": "10"}, {"x": "2", "y": "20", **row}), "small.csv, line 3: ", words)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ({"statement": ""}, "statement: string should have at least"),
        ({"quantity": "efficiency", "low": "1", "unit": "m"}, "efficiency in 'm'"),
        ({"quantity": "efficiency"}, "efficiency without a number"),
        ({"quantity": "linear", "x_low": "1"}, "x_low without x_high"),
        ({"quantity": "linear", "x_low": "2", "x_high": "1", "x_unit": "nodes"}, "low 2 above high 1"),
        ({"quantity": "linear", "x_low": "1", "x_high": "1", "x_unit": "leagues"}, "x in 'leagues'"),
    ],
)
def test_a_bad_statement_is_told_with_file_and_line(folder, statement, words):
    said = ({"statement": "Good"}, {"statement": "It is so", **statement})
    path = folder({"x": "1", "y": "10"}, statements=said)
    refused(path, f"{STATEMENTS}, line 3: ", words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('layout = "throughput"', 'layout = "speed"'), "figures.small.panels.0: no quantity 'speed'"),
        (('y_unit = "images/s"', 'y_unit = "m"'), "figures.small.panels.0: throughput in 'm'"),
        (('y_scale = "log"', 'y_scale = "cubic"'), "panels.0.y_scale: input should be 'linear' or 'log'"),
        (('x_unit = "nodes"', 'x_unit = ""'), "x in 'no unit'"),
        (('x_label = "nodes"', ""), "x_label is missing"),
        (("tolerance = 0.1", "tolerance = 0"), "tolerance: input should be greater than 0"),
        (('public = "Every value."', ""), "public: field required"),
        (("[figures.small]", "[figures.Small]"), "figures.[key]: string should match pattern"),
        (("figures.small", "figures.other"), "no entry [figures.small]"),
        (("series.theirs", "series.ours"), "no series 'ours' is public"),
        (('x_unit = "nodes"', 'x_unit = "GPUs"'), "[figures.small]: x in 'GPUs', in small.csv in 'nodes'"),
        (('framework = "torch"', 'frame = "torch"'), "own.frame: extra inputs are not permitted"),
        (("tolerance = 0.1", "tolerance = [0.1"), "figures.toml is not valid TOML: "),
    ],
)
def test_a_mistake_in_the_catalogue_is_told_in_one_line(folder, catalogue, change, words):
    assert change[0] in catalogue
    refused(folder({"x": "1", "y": "10"}, catalogue=catalogue.replace(*change)), "figures.toml", words)


def test_two_values_that_must_agree_are_both_public(folder, catalogue):
    place = 'figure = "small", series = "theirs", quantity = "throughput"'
    same = f"[[same]]\nnote = 'n'\na = {{ {place}, x = 1 }}\nb = {{ {place}, x = 2 }}\n"
    rows = {"x": "1", "y": "10"}, {"x": "2", "y": "20"}
    assert len(load_published(folder(*rows, catalogue=catalogue + same)).same) == 1
    with pytest.raises(UsageError, match=r"\[\[same\]\]: no value .*'x': 2.0.* is public"):
        load_published(folder(rows[0], catalogue=catalogue + same))


def test_every_figure_is_laid_out_with_what_can_exist(published):
    asked = set()
    for name, figure in published.figures.items():
        assert name in set(published.values["figure"])
        assert figure.public.endswith(".")
        asked.add(figure.own and figure.own.system)
        for own in (figure.own, *(it.own for it in (*figure.series.values(), *figure.panels))):
            own = own or Own()
            assert own.workload in (None, *WORKLOADS)
            assert own.framework in (None, *FRAMEWORKS)
            assert own.backend in (None, *BACKENDS)
            if own.workload and own.preset:
                load_workload(own.workload).preset(own.preset)
    assert {"cori", "piz-daint", "seawulf"} <= asked & set(names("systems"))


def test_an_unknown_figure_names_the_known_ones_and_without_a_checkout_there_is_none(published, tmp_path):
    with pytest.raises(UsageError, match=r"no published figure 'powerai' .*; choose one of: cug18-strong"):
        published.figure("powerai")
    with pytest.raises(UsageError, match="they come with the checkout"):
        load_published(tmp_path)


def test_every_figure_is_in_the_list_of_the_page(published):
    page = Path(__file__).parents[3] / "docs" / "published-figures.md"
    listed, _, _ = page.read_text().partition("## Claims and predictions")
    assert [name for name in published.figures if f"`{name}`" not in listed] == []
