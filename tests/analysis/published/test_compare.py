"""What a check of published figures says: of agreement, of disagreement, and of what cannot be compared."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dlscale.analysis.published.catalogue import load_published
from dlscale.analysis.published.compare import Target, check_figures, compare
from dlscale.analysis.published.ours import OwnPoint
from dlscale.analysis.published.output import checks_json, render_checks
from dlscale.analysis.statistics import Interval
from tests.analysis.reading import printed

from .conftest import cori

RATES = {"x": "1", "y": "100"}, {"x": "2", "y": "190"}, {"x": "4", "y": "360"}


def one(folder, studies, **options):
    (check,) = check_figures(load_published(folder), studies=studies, **options)
    return check


def said(checks):
    return " ".join(printed(render_checks(checks), width=120).split())


@pytest.mark.parametrize(
    ("kept", "verdicts", "words"),
    [
        ((1.0, 0.95, 0.9), ["agrees"] * 3, "1 of 1 figures agree, 0 disagree; in 0 nothing was compared"),
        ((1.0, 0.95, 0.7), ["agrees", "agrees", "disagrees"], "at 4 nodes: published 360"),
    ],
)
def test_a_study_agrees_where_it_repeats_a_publication(folder, kept, verdicts, words):
    check = one(folder(*RATES), [cori({"none": (1.0, 1.0, 1.0), "ring": kept})])
    assert [c.target.x for c in check.comparisons] == [1, 2, 4]
    assert [c.verdict for c in check.comparisons] == verdicts
    assert check.comparisons[-1].ratio.center == pytest.approx(kept[-1] / 0.9, rel=0.01)
    assert {c.point.row.cell.backend for c in check.comparisons} == {"ring"}
    assert check.verdict == verdicts[-1]
    assert words in said([check])


@pytest.mark.parametrize(
    ("evidence", "count"), [("measured", 3), ("emulated", 3), ("simulated", 3), ("published", 0)]
)
def test_all_kinds_of_evidence_of_ours_are_compared_and_named(folder, evidence, count):
    check = one(folder(*RATES), [cori({"ring": (1.0, 0.95, 0.9)}, evidence=evidence)])
    assert [c.point.row.evidence for c in check.comparisons] == [evidence] * count
    assert said([check]).count(f"(ring, torch, {evidence})") == count


@pytest.mark.parametrize(
    ("backend", "fields"),
    [
        ("mpi", {}),
        ("ring", {"framework": "tensorflow"}),
        ("ring", {"preset": "tiny"}),
        ("ring", {"system": "mine"}),
        ("ring", {"workload": "cosmogan"}),
        ("ring", {"nodes": (8, 16, 32)}),
    ],
)
def test_another_setting_is_unknown_and_never_a_pass(folder, backend, fields):
    check = one(folder(*RATES), [cori({backend: (1.0, 0.95, 0.9)}, **fields)])
    assert (check.comparisons, check.verdict) == ((), "unknown")
    assert check.reasons == ("no record of ours on cori (nodes: 1, 2, 4)",)


def test_a_system_may_stand_in(folder):
    studies = [cori({"ring": (1.0, 0.95, 0.9)}, system="mine")]
    assert one(folder(*RATES), studies, stand_in="mine").verdict == "agrees"
    assert one(folder(*RATES), studies, stand_in="yours").reasons == (
        "no record of ours on yours (nodes: 1, 2, 4)",
    )


def test_a_series_that_is_none_of_our_settings_says_so(folder, catalogue):
    path = folder(*RATES, catalogue=catalogue.replace('own = { backend = "ring" }', 'label = "Theirs"'))
    check = one(path, [cori({"ring": (1.0, 0.95, 0.9)})])
    assert check.reasons == ("not one of our settings: Theirs",)


def test_a_contradiction_among_published_values_is_no_pass(folder):
    wrong = {"x": "4", "y": "60", "y_unit": "%", "quantity": "efficiency"}
    studies = [cori({"none": (1.0, 1.0, 1.0), "ring": (1.0, 0.95, 0.9)})]
    check = one(folder(*RATES, wrong), studies)
    assert [relation.consistent for relation in check.relations] == [False]
    assert check.verdict == "disagrees"
    assert "by T(x) b / (T(b) x)" in said([check])


def test_statements_with_a_number_and_a_place_are_compared(folder):
    quantity = {"series": "theirs", "unit": "1", "quantity": "efficiency"}
    place = {"x_low": "4", "x_high": "4", "x_unit": "nodes", **quantity}
    statements = (
        {"statement": "Between 80 and 95 % on 4 nodes", "low": "0.8", "high": "0.95", **place},
        {"statement": "Over 95 % on 4 nodes", "low": "0.95", **place},
        {"statement": "At most half on 4 nodes", "high": "0.5", **place},
        {"statement": "Good", "series": "theirs"},
        {"statement": "Over 99 % everywhere", "low": "0.99", **quantity},
    )
    studies = [cori({"none": (1.0, 1.0, 1.0), "ring": (1.0, 0.95, 0.9)})]
    check = one(folder({"x": "1", "y": "100"}, statements=statements), studies)
    found = [(c.ratio.center, c.verdict) for c in check.comparisons if c.target.quantity == "efficiency"]
    assert [verdict for _, verdict in found] == ["agrees", "agrees", "disagrees"]
    assert [round(ratio, 2) for ratio, _ in found] == [1.0, 0.95, 1.8]


def test_where_ratios_begin_there_is_nothing_to_compare(folder):
    ratios = {"y_unit": "1", "quantity": "efficiency"}
    path = folder({"x": "1", "y": "1.00", **ratios}, {"x": "2", "y": "0.95", **ratios})
    studies = [cori({"none": (1.0,), "ring": (1.0,)}, nodes=(1,))]
    assert one(path, studies).verdict == "unknown"
    studies = [cori({"none": (1.0, 1.0), "ring": (1.0, 0.95)}, nodes=(1, 2))]
    assert [c.target.x for c in one(path, studies).comparisons] == [2]


def test_json_has_a_row_for_everything_with_the_same_keys(folder, published):
    studies = [cori({"none": (1.0, 1.0, 1.0), "ring": (1.0, 0.95, 0.9)})]
    efficiency = {"x": "2", "y": "0.95", "y_unit": "1", "quantity": "efficiency"}
    found = checks_json([one(folder(*RATES, efficiency), studies), *check_figures(published)])
    assert found["schema"] == 1
    assert len({frozenset(row) for row in found["rows"]}) == 1
    kinds = [(row["kind"], row["verdict"]) for row in found["rows"] if row["figure"] == "small"]
    assert kinds == [("compared", "agrees")] * 4 + [("derived consistency", "consistent")]
    unknown = {row["figure"] for row in found["rows"] if row["kind"] == "unknown"}
    assert unknown == set(published.figures)
    assert all(row["reasons"] for row in found["rows"] if row["kind"] == "unknown")


def point(value):
    return OwnPoint(row=None, study="s", x=1, value=value, on="")


def interval(low, center, high):
    return Interval(center=center, low=low, high=high, level=0.95, method="m", n=6)


POSITIVE = st.floats(1e-3, 1e3)


@given(POSITIVE, POSITIVE, POSITIVE, st.floats(0.01, 0.5))
def test_the_ratio_is_1_inside_what_is_published_and_grows_with_ours(low, high, ours, tolerance):
    assume(low <= high)
    target = Target(series="s", quantity="throughput", x=1, low=low, high=high)
    found = compare(target, point(interval(None, ours, None)), tolerance)
    assert (found.ratio.center == pytest.approx(1)) == (
        low <= ours <= high or ours == pytest.approx(low) or ours == pytest.approx(high)
    )
    more = compare(target, point(interval(None, 1.5 * ours, None)), tolerance)
    assert more.ratio.center >= found.ratio.center
    assert found.verdict in ("agrees", "disagrees")  # without an interval nothing is open
    # The same numbers in another unit are the same comparison.
    scaled = Target(series="s", quantity="throughput", x=1, low=7 * low, high=7 * high)
    assert compare(scaled, point(interval(None, 7 * ours, None)), tolerance).ratio.center == pytest.approx(
        found.ratio.center
    )


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ((0.95, 1.0, 1.05), "agrees"),
        ((0.95, 1.08, 1.2), "open"),
        ((0.5, 1.0, 1.5), "open"),
        ((1.11, 1.2, 1.3), "disagrees"),
        ((0.5, 0.6, 0.89), "disagrees"),
    ],
)
def test_an_interval_across_the_tolerance_is_open(ends, verdict):
    target = Target(series="s", quantity="throughput", x=1, low=1.0, high=1.0)
    assert compare(target, point(interval(*ends)), 0.1).verdict == verdict


@pytest.mark.parametrize(
    ("low", "high", "ours", "ratio"), [(2.0, None, 1e9, 1), (None, 2.0, 1.0, 1), (None, 0.0, 1.0, math.inf)]
)
def test_open_ends_are_open(low, high, ours, ratio):
    target = Target(series="s", quantity="throughput", x=1, low=low, high=high)
    assert compare(target, point(interval(None, ours, None)), 0.1).ratio.center == ratio
