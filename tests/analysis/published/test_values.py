"""What is in results/published, transcribed a second time; and what may not stand there."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.published.catalogue import Place, load_published
from dlscale.analysis.published.values import STATEMENTS
from dlscale.base.errors import UsageError

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
    assert {name: len(rows) for name, rows in published.values.items()} == NUMBERS


@pytest.mark.parametrize(
    ("figure", "series", "quantity", "x", "printed"),
    [
        ("powerai-ddl-2", "Caffe", "speed_up", 64, 15.5),
        ("powerai-ddl-2", "Caffe", "efficiency", 256, 0.95),
        ("powerai-ddl-3", "Torch", "speed_up", 192, 40.3),
        ("powerai-ddl-3", "Torch", "efficiency", 16, 0.86),
        ("tf-cnn-p100", "ResNet-50, synthetic", "throughput", 8, 1734),
        ("tf-cnn-p100", "VGG16, real", "throughput", 8, 898),
        ("tf-cnn-p100", "ResNet-152, synthetic, batch 32", "throughput", 1, 82.7),
        ("tf-cnn-k80", "AlexNet, GCE", "throughput", 4, 2328),
        ("tf-cnn-k80", "InceptionV3, EC2", "throughput", 8, 230),
        ("tf-cnn-ec2", "ResNet-50, batch 64", "throughput", 32, 1388),
        ("tf-cnn-ec2", "InceptionV3, batch 32", "throughput", 16, 427),
        ("tf-cnn-ec2", "ResNet-152, batch 32", "throughput", 32, 565),
        ("tf-cnn-ec2", "ResNet-50, batch 32", "throughput", 64, 2315),
        ("cosmogan-edison", "Horovod over Cray MPI", "throughput", 32, 27.213),
        ("cosmogan-edison", "Horovod over Cray MPI", "throughput", 128, 200.835),
        ("cosmogan-edison", "Horovod over Cray MPI", "throughput_half_width", 16, 1.095),
        ("cosmogan-edison", "Horovod over Cray MPI", "efficiency", 16, 0.97),
        ("imagenet-records", "He et al.", "time_to_solution", 8, 29 * 3600),
        ("imagenet-records", "Ying et al., 64K", "top1_accuracy", 1024, 0.752),
        ("imagenet-records", "Mikami et al.", "efficiency", 3456, 0.8475),
        ("imagenet-records", "Jia et al.", "global_batch", 2048, 65536),
        ("imagenet-records", "Smith et al.", "time_to_solution", None, 1800),
        ("horovod-efficiencies", "VGG-16, RoCE 25 Gb/s", "efficiency", 128, 0.79),
        ("horovod-efficiencies", "ResNet-101, TCP 25 GbE", "efficiency", 128, 0.88),
        ("goyal-table-1", "gradual warm-up", "top1_error", 8192, 0.2374),
        ("hep-cnn-selection", "network", "signal_efficiency", 5, 0.892),
        ("hep-cnn-selection", "cuts, validation", "background_rejection", None, 0.999945),
    ],
)
def test_values_are_those_of_the_publications(published, figure, series, quantity, x, printed):
    row = published.value(Place(figure=figure, series=series, quantity=quantity, x=x))
    assert row.y == pytest.approx(printed, rel=1e-12)


def test_a_series_and_its_note_name_the_same_batch(published):
    named = [
        (row.series, row.note)
        for values in published.values.values()
        for row in values
        if re.search(r"batch \d+", row.series) and re.search(r"batch \d+ per", row.note)
    ]
    assert named
    for series, note in named:
        assert re.findall(r"batch (\d+)", series) == re.findall(r"batch (\d+) per", note)


@pytest.mark.parametrize(
    ("figure", "quantity", "band", "places"),
    [
        ("cug18-strong-cori", "scaling_ends", (None, None), (8, 16)),
        ("cug18-weak-hep-cnn-cori", "seconds_per_sample", (0.04, 0.04), (1, 1)),
        ("cray-grpc", "relative_throughput", (1.8, 1.8), (128, 128)),
        ("mpi-learn-cooley", "speed_up", (30, 30), (60, 60)),
        ("mpi-learn-cooley", "linear", (None, None), (1, 15)),
        ("horovod-7", "relative_throughput", (1.02, 1.03), (1, 128)),
        ("goyal-7", "seconds_per_epoch", (960, None), (256, 256)),
        ("goyal-8", "efficiency", (0.9, 0.9), (8, 352)),
    ],
)
def test_statements_have_their_numbers(published, figure, quantity, band, places):
    found = [
        (one.ends, (one.x_low, one.x_high))
        for one in published.statements_of(figure)
        if one.quantity == quantity
    ]
    assert (pytest.approx(band), places) in found


def test_what_follows_from_a_statement_is_what_its_formula_gives(published):
    def derived(figure, quantity):
        (one,) = [
            one
            for one in published.statements_of(figure)
            if one.kind == "derived" and one.quantity == quantity and one.x_low in (1, 352, 11264)
        ]
        return one.ends[0]

    assert derived("goyal-7", "seconds_per_step") == pytest.approx(30 * 11264 / 1.28e6, rel=1e-3)
    assert derived("goyal-8", "throughput") == pytest.approx(1.28e6 / 30, rel=1e-3)
    assert derived("cug18-weak-hep-cnn-cori", "throughput") == pytest.approx(1 / 0.04)


@given(st.integers(1, 10**6), st.integers(0, 4))
def test_the_rounding_is_half_of_the_last_printed_digit(digits, decimals):
    printed = f"{digits / 10**decimals:.{decimals}f}"
    row = value("efficiency", 1, printed, unit="%")
    assert row.rounding == pytest.approx(0.01 * 0.5 * 10**-decimals)
    assert row.y == pytest.approx(0.01 * digits / 10**decimals)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"y_unit": "furlongs"}, "throughput in 'furlongs'; choose one of: images/s"),
        ({"y_unit": ""}, "throughput in 'no unit'"),
        ({"x_unit": ""}, "x in 'no unit'"),
        ({"quantity": "speed"}, "no quantity 'speed'"),
        ({"source": ""}, "source: a text is expected"),
        ({"source": "  "}, "source: a text is expected"),
        ({"kind": "recalled"}, "kind: 'text', 'table'"),
        ({"kind": "derived"}, "has its formula in the note"),
        ({"y": ""}, "y is 'empty'"),
        ({"y": "1e3"}, "give the number with the digits that are printed"),
        ({"y": "nan"}, "y is 'nan'"),
        ({"x": "many"}, "x: a number is expected"),
        ({"series": ""}, "series: missing"),
        ({"devices_per_node": "0"}, "devices_per_node"),
        ({"figure": "large"}, "in the file of 'small'"),
        ({"x": "1"}, "stands in line 2 already"),
        ({"quantity": "efficiency_half_width", "y_unit": "1"}, "has no value to belong to"),
    ],
)
def test_a_bad_value_is_told_with_file_and_line(folder, row, words):
    path = folder({"x": "1", "y": "10"}, {"x": "2", "y": "20", **row})
    with pytest.raises(UsageError) as error:
        load_published(path)
    assert f"{path / 'small.csv'}, line 3: " in str(error.value)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ({"statement": ""}, "say in words"),
        ({"quantity": "efficiency", "low": "1", "unit": "m"}, "efficiency in 'm'"),
        ({"quantity": "efficiency"}, "efficiency without a number"),
        ({"quantity": "linear", "x_low": "1"}, "x_low without x_high"),
        ({"quantity": "linear", "x_low": "2", "x_high": "1", "x_unit": "nodes"}, "low 2.0 above high 1.0"),
        ({"quantity": "linear", "x_low": "1", "x_high": "1", "x_unit": "leagues"}, "x in 'leagues'"),
        ({"source": ""}, "source: a text is expected"),
    ],
)
def test_a_bad_statement_is_told_with_file_and_line(folder, statement, words):
    path = folder(
        {"x": "1", "y": "10"}, statements=({"statement": "Good"}, {"statement": "It is so", **statement})
    )
    with pytest.raises(UsageError) as error:
        load_published(path)
    assert f"{path / STATEMENTS}, line 3: " in str(error.value)
    assert words in str(error.value)


def test_a_file_of_other_columns_or_a_torn_line_is_told(folder):
    path = folder({"x": "1", "y": "10"})
    text = (path / "small.csv").read_text()
    (path / "small.csv").write_text(text + "small,theirs,2\n")
    with pytest.raises(UsageError, match=r"small.csv, line 3: not 15 cells"):
        load_published(path)
    (path / "small.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match=r"small.csv, line 1: columns \['a', 'b'\]"):
        load_published(path)
