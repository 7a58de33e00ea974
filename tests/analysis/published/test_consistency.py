"""Published values against each other: what follows from rounded numbers is never called a contradiction."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.published.catalogue import Panel, Place, Published, Same, load_published
from dlscale.analysis.published.compare import relations
from dlscale.analysis.published.values import Value

from .conftest import made_figure, value

BASE = 4.0
PANEL = Panel(layout="speed_up", y_label="speed-up", y_unit="1", y_scale="log")
FIGURE = made_figure(x_label="GPUs", x_unit="GPUs", base_x=BASE, panels=(PANEL,))


def published(*rows: Value, same: tuple[Same, ...] = ()) -> Published:
    return Published(figures={"f": FIGURE}, values={"f": rows}, statements={}, same=same)


def check(*rows: Value) -> list[bool]:
    return [one.consistent for one in relations(published(*rows), FIGURE)]


def test_nothing_published_contradicts_itself(published):
    counted = {name: relations(published, figure) for name, figure in published.figures.items()}
    assert {name: len(found) for name, found in counted.items() if found} == {
        "powerai-ddl-2": 8,
        "powerai-ddl-3": 7,
        "cosmogan-edison": 8,
        "imagenet-records": 1,
        "tf-cnn-k80": 1,
        "tf-cnn-ec2": 1,
    }
    assert all(one.consistent for found in counted.values() for one in found)


@given(
    st.floats(1, 1e4),
    st.lists(st.floats(0.05, 1.2), min_size=1, max_size=6),
    st.integers(0, 3),
    st.integers(1, 4),
)
def test_honest_rounding_is_always_consistent(rate, kept, rate_digits, ratio_digits):
    rows = [value("throughput", BASE, f"{rate:.{rate_digits}f}")]
    for step, efficiency in enumerate(kept, start=1):
        x = BASE * 2**step
        rows += [
            value("throughput", x, f"{rate * 2**step * efficiency:.{rate_digits}f}"),
            value("speed_up", x, f"{2**step * efficiency:.{ratio_digits}f}"),
            value("efficiency", x, f"{efficiency:.{ratio_digits}f}"),
        ]
    assert all(check(*rows))


@given(st.floats(0.2, 1.0), st.floats(0.02, 0.3), st.booleans())
def test_an_error_beyond_rounding_is_found(efficiency, error, upwards):
    wrong = efficiency + (error if upwards else -error)
    if wrong < 0.01:
        return
    row = value("efficiency", 64, f"{wrong:.4f}")
    assert check(value("speed_up", 64, f"{16 * efficiency:.2f}"), row) == [False]
    rates = value("throughput", BASE, "1000.0"), value("throughput", 64, f"{16000 * efficiency:.1f}")
    assert check(*rates, row) == [False]


SPEED_UP = value("speed_up", 16, "3.5")


@pytest.mark.parametrize(
    ("first", "second", "consistent"),
    [
        # ratios begin where the publication's do
        (value("speed_up", 4, "1.0"), value("efficiency", 4, "1.00"), [True]),
        (SPEED_UP, value("efficiency", 16, "0.86"), [True]),
        (SPEED_UP, value("efficiency", 16, "0.22"), [False]),
        # the first rate over itself is 1, however it is rounded
        (value("throughput", 4, "1"), value("efficiency", 4, "1.00000"), [True]),
        (value("throughput", 4, "1"), value("speed_up", 4, "1.1"), [False]),
        (SPEED_UP, value("efficiency", 16, "87", unit="%"), [True]),
        (SPEED_UP, value("efficiency", 16, "0.87", unit="%"), [False]),
        # series are not mixed, and rough numbers not held against anything
        (SPEED_UP, value("efficiency", 16, "0.10"), [False]),
        (SPEED_UP, value("efficiency", 16, "0.10", series="another"), []),
        (SPEED_UP, value("efficiency", 16, "0.10", note="about; on a good day"), []),
    ],
)
def test_what_follows_from_a_value_is_compared_with_the_other(first, second, consistent):
    assert check(first, second) == consistent


@pytest.mark.parametrize(("tolerance", "consistent"), [(None, False), (0.01, False), (0.05, True)])
def test_two_publications_of_one_thing(tolerance, consistent):
    place = {"figure": "f", "quantity": "throughput", "x": 8}
    same = Same(note="n", a=Place(series="s", **place), b=Place(series="r", **place), tolerance=tolerance)
    both = published(value("throughput", 8, "229"), value("throughput", 8, "220", series="r"), same=(same,))
    (found,) = relations(both, FIGURE)
    assert found.consistent == consistent


def test_a_typing_error_in_the_stored_values_is_found(tmp_path):
    top, folder = Path(__file__).parents[3] / "results", tmp_path / "published"
    for name in ("published", "reference/series"):
        shutil.copytree(top / name, tmp_path / name)
    file = folder / "powerai-ddl-3.csv"
    file.write_text(file.read_text().replace(",13.7,", ",17.3,"))
    changed = load_published(folder)
    wrong = [one for one in relations(changed, changed.figure("powerai-ddl-3")) if not one.consistent]
    assert [(one.value.series, one.value.x) for one in wrong] == [("Torch", 64)]
