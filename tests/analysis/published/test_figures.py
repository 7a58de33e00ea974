"""Published figures: what their panels declare, the words around them, and their files."""

import csv
import math
from dataclasses import replace

import pytest

from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw
from dlscale.analysis.findings import scaling
from dlscale.analysis.published.catalogue import load_published
from dlscale.analysis.published.claim_verdicts import verdicts
from dlscale.analysis.published.claims import load_publication
from dlscale.analysis.published.figures import declared, provenance, write_figures
from dlscale.analysis.published.panels import NOT_PUBLISHED, content_of
from dlscale.analysis.published.predictions import Band, PredictedCurve, predicted_curves
from dlscale.analysis.published.values import FOLDER
from dlscale.base.errors import UsageError
from tests.analysis.reading import assert_inside

from .conftest import cori

FULL = [
    *("powerai-ddl-2", "powerai-ddl-3", "tf-cnn-p100", "tf-cnn-k80", "tf-cnn-ec2", "cosmogan-edison"),
    *("goyal-table-1", "horovod-efficiencies", "imagenet-records", "hep-cnn-selection"),
]


@pytest.fixture
def figure(published):
    """A figure as it is declared."""

    def make(name, studies=(), **options):
        entry = published.figure(name)
        contents = content_of(published, entry, studies, **options)
        return declared(published, entry, contents, provenance(published, entry, contents, studies))

    return make


def points(panel, name):
    """(x, y) of all points of that name, joined or not."""
    return [(point.x, point.y) for series in panel.series if series.name == name for point in series.points]


def test_a_table_of_speed_ups_is_drawn_as_it_was_printed(figure):
    left, right, here = figure("powerai-ddl-2").panels
    (caffe,) = left.series
    assert caffe.joined
    rates = {4: 1.0, 8: 2.0, 16: 3.9, 32: 7.9, 64: 15.5, 128: 30.5, 256: 60.6}
    assert dict(points(left, "Caffe")) == rates
    assert [y for _, y in points(right, "Caffe")] == pytest.approx([100, 100, 98, 99, 97, 95, 95])
    assert [plot.y.title for plot in (left, right)] == ["speed-up over 4 GPUs [1]", "scaling efficiency [%]"]
    (ideal,) = left.guides
    assert all(y == pytest.approx(x / 4) for x, y in ideal.points)
    assert {series.evidence for series in here.series} == {
        "emulated"
    }  # no published point in what was measured here


def test_what_was_measured_here_has_axes_of_its_own_and_no_point_on_another(figure):
    _, loss, _, seconds = figure("nysds17-cifar-10").panels
    assert loss.x.high > 7 > 3 > seconds.x.high
    assert [label for _, label in seconds.x.ticks] == ["1", "2"]
    first, second = ([point.x for point in series.points] for series in seconds.series)
    assert [sum(pair) / 2 for pair in zip(first, second, strict=True)] == pytest.approx([1, 2])
    assert seconds.x.low < min(first) < min(second)
    _, here = figure("goyal-table-1").panels
    places = [point.x for series in here.series for point in series.points]
    assert (len(places), len(set(places))) == (5, 5)
    assert not any(series.joined for series in here.series)


def test_every_table_has_a_panel_in_one_scale(figure):
    whole = figure("tf-cnn-p100")
    assert [plot.title for plot in whole.panels] == ["synthetic, 64", "real, 64", "synthetic, 32"]
    assert [len(plot.series) for plot in whole.panels] == [5, 5, 4]
    assert points(whole.panels[1], "AlexNet") == [(1, 2890), (2, 4448), (4, 7105)]
    assert [y for _, y in points(whole.panels[2], "ResNet-152")] == [82.7, 160, 317, 632]
    assert whole.shared
    assert len({(plot.y.low, plot.y.high) for plot in whole.panels}) == 1
    assert len({series.tags.backend for plot in whole.panels for series in plot.series}) == 5  # a look each


def test_an_uncertainty_that_is_published_is_an_interval(figure):
    left, right = figure("cosmogan-edison").panels
    first = left.series[0].points[0]
    assert (first.x, first.y, first.low, first.high) == pytest.approx((1, 0.819, 0.816, 0.822))
    assert {point.low for point in right.series[0].points} == {None}


def test_works_of_a_table_are_named_points_without_a_line(figure):
    whole = figure("imagenet-records")
    left, right = (plot.series[0] for plot in whole.panels)
    placed = {point.label: (point.x, point.y) for point in left.points}
    assert (placed["He"], placed["Mikami"], len(placed)) == ((8, 1740), (3456, 2.0), 8)
    assert {point.label for point in right.points} == {"Goyal", "Cho", "Akiba", "Jia", "Mikami"}
    assert not left.joined
    assert "Smith et al. 30 min on a full TPU pod" in " ".join(whole.small_print)


def test_a_line_joins_only_what_is_ordered_and_of_one_mode(figure):
    (plot,) = figure("horovod-efficiencies").panels
    assert not any(series.joined for series in plot.series)
    places = [series.points[0].x for series in plot.series]
    assert len(set(places)) == 5
    assert math.prod(places) ** (1 / 5) == pytest.approx(128)
    (plot,) = figure("hep-cnn-selection").panels
    assert [(series.joined, len(series.points)) for series in plot.series] == [(True, 19)]
    assert {guide.label for guide in plot.guides} == {"cuts, training", "cuts, validation"}


@pytest.mark.parametrize(
    ("name", "areas", "marks"),
    [
        ("cug18-strong-cori", [((8, 16), (None, None), False)], []),
        ("cray-grpc", [], [(128, 1.8)]),
        ("mpi-learn-cooley", [((1, 15), (1, 15), True)], [(60, 30)]),
        ("goyal-8", [((8, 352), (90, 90), False)], [(352, pytest.approx(42700, rel=1e-3))]),
    ],
)
def test_what_is_only_said_is_an_area_or_a_mark_with_its_words(figure, name, areas, marks):
    whole = figure(name)
    found = [area for plot in whole.panels for area in plot.areas]
    assert [(area.x, tuple(map(_rounded, area.y)), area.rising) for area in found] == areas
    said = [point for plot in whole.panels for series in plot.series for point in series.points]
    assert [(point.x, point.y) for point in said] == marks
    assert all(area.text for area in found)
    assert all(point.label for point in said)
    assert whole.warning == NOT_PUBLISHED


def _rounded(value):
    return None if value is None else round(value, 6)


def test_an_axis_of_unknown_scale_has_no_numbers(figure):
    left, right = figure("cug18-weak-hep-cnn-daint").panels
    assert (left.y.numbers, left.y.title, left.says) == (False, "throughput [samples/s]", NOT_PUBLISHED)
    assert [label for _, label in left.x.ticks] == ["1", "4", "16", "64", "256", "1024"]
    assert (right.y.numbers, right.y.low) == (True, 0)


@pytest.fixture
def ours():
    """Two kinds of evidence, and three backends."""
    kept = {"none": (0.25, 0.25), "ring": (0.245, 0.24), "horovod": (0.24, 0.23)}
    fields = {"framework": "tensorflow", "local_batch": 128}
    return [
        cori(kept, nodes=(1, 4), study="a", **fields),
        cori(kept, nodes=(1, 64), study="b", evidence="simulated", **fields),
    ]


def test_our_series_join_by_marker_and_never_by_a_line(figure, ours):
    whole = figure("cug18-weak-hep-cnn-cori", ours)
    own = [series for series in whole.panels[0].series if series.evidence != "published"]
    assert {series.name for series in own} == {f"{name}, tensorflow" for name in ("none", "ring", "horovod")}
    assert {series.evidence for series in own} == {"measured", "simulated"}
    assert not any(series.joined for plot in whole.panels for series in plot.series)
    rates = [
        row.throughput
        for table in ours
        for row in scaling.FINDING.of(table)
        if row.cell.backend == "ring" and row.throughput
    ]
    shown = [
        (point.y, point.low, point.high)
        for series in own
        if series.look == "ring, tensorflow"
        for point in series.points
    ]
    assert sorted(shown) == sorted((rate.center, rate.low, rate.high) for rate in rates)
    assert "Ours: study a, b; system cori; commit 0123456789ab" in " ".join(whole.small_print)


def test_a_published_backend_and_ours_can_be_told_apart(figure):
    fields = {"workload": "cosmogan", "framework": "tensorflow"}
    table = cori({"horovod": (0.008, 0.008)}, nodes=(1, 2), local_batch=64, system="edison", **fields)
    looks = {
        series.look: series.tags.backend for series in figure("cosmogan-edison", [table]).panels[0].series
    }
    assert set(looks) == {"Horovod over Cray MPI", "horovod, tensorflow"}
    assert looks["horovod, tensorflow"] == "horovod" != looks["Horovod over Cray MPI"]


def test_the_hash_of_a_figure_is_that_of_its_data_published_and_ours(published, ours, folder):
    entry = published.figure("cug18-weak-hep-cnn-cori")

    def origin(studies):
        return provenance(published, entry, content_of(published, entry, studies), studies)

    where = origin(ours)
    assert (where.studies, where.commands) == (("published", "a", "b"), ("mpiexec",))
    hashes = {where.data_hash, origin([]).data_hash, origin(ours[:1]).data_hash}
    for y in ("10", "11"):
        other = load_published(folder({"x": "1", "y": y}))
        hashes.add(provenance(other, other.figure("small"), [], []).data_hash)
    assert len(hashes) == 5


def test_the_csv_has_all_that_is_public_and_ours(published, figure, ours, tmp_path):
    *pictures, table = write_figures(published, tmp_path, names=["cug18-weak-hep-cnn-cori"], studies=ours)
    with table.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    (origin,) = {row["data_hash"] for row in rows}
    assert all(origin.encode() in path.read_bytes() for path in pictures)
    said = [row["note"] for row in rows if row["evidence"] == "published"]
    assert sorted(said) == sorted(one.statement for one in published.statements_of("cug18-weak-hep-cnn-cori"))
    own = [row for row in rows if row["evidence"] != "published"]
    kinds = {(row["evidence"], row["source"]) for row in own}
    assert kinds == {("measured", "study a"), ("simulated", "study b")}
    assert {row["y_unit"] for row in own} == {"samples/s", "%"}
    assert all(float(row["y"]) > 0 for row in own)
    rows = [row for row in figure("powerai-ddl-3").rows if row["quantity"] == "speed_up"]
    assert [(row["x"], row["y"], row["kind"]) for row in rows][2] == (64, 13.7, "table")


def test_what_cannot_be_laid_out_is_not_drawn(published, tmp_path):
    assert write_figures(published, tmp_path, names=["rpv-keras", "gradient-compression"]) == []
    with pytest.raises(UsageError, match="no published figure 'nothing'"):
        write_figures(published, tmp_path, names=["nothing"])


def test_nothing_is_cut_off_or_without_a_unit(published, figure):
    for name, entry in published.figures.items():
        if not entry.panels:
            continue
        whole = figure(name)
        with drawing():
            picture = draw(whole)
            picture.draw_without_rendering()
        assert_inside(picture, *(text for axes in picture.axes for text in axes.texts), name=name)
        assert [plot.y.title for plot in whole.panels] == [f"{p.y_label} [{p.y_unit}]" for p in entry.panels]
        units = [panel.x_unit or entry.x_unit for panel in entry.panels]
        assert all(unit in plot.x.title for unit, plot in zip(units, whole.panels, strict=True))
        silent = any(not plot.series and not plot.areas for plot in whole.panels)
        assert (whole.warning == NOT_PUBLISHED or silent) == (name not in FULL), name


@pytest.fixture
def predicted():
    """From 98 % on 4 GPUs to 94 %, each with 2 points to both sides, of the published series in Caffe."""
    places = ((4, 0.96, 0.98, 1.0), (256, 0.92, 0.94, 0.96))
    return PredictedCurve(
        figure="powerai-ddl-2",
        panel=1,
        label="Caffe",
        backend="mpi",
        points=tuple((x, Band(low=low, median=median, high=high)) for x, low, median, high in places),
        publication="theirs",
    )


def test_a_predicted_curve_is_a_band_in_the_look_of_what_it_predicts(figure, predicted):
    whole = figure("powerai-ddl-2", predicted=[predicted])
    left, right, _ = whole.panels
    theirs, band = right.series
    assert (band.band, band.evidence, band.joined) == (True, "simulated", True)
    assert (band.look, band.tags) == (theirs.look, theirs.tags)
    found = [(point.x, point.low, point.y, point.high) for point in band.points]
    assert found == [pytest.approx((4, 96, 98, 100)), pytest.approx((256, 92, 94, 96))]
    assert len(left.series) == 1
    assert "claims/theirs.toml, from single-node facts" in " ".join(whole.small_print)
    two = figure("powerai-ddl-2", predicted=[predicted, replace(predicted, label="other")]).panels[1]
    assert two.series[2].tags.backend == "mpi"  # it predicts no published series, and has its backend's look


def test_a_figure_that_shows_only_a_simulation_says_so_with_the_verdicts(published):
    entry = published.figure("cug18-weak-hep-cnn-cori")
    publications = [load_publication(FOLDER / "claims" / "cug18-cori.toml", published)]
    curves = predicted_curves(published, publications, names=[entry.id])
    contents = content_of(published, entry, predicted=curves)
    claims = verdicts(published, publications, names=[entry.id])
    whole = declared(published, entry, contents, provenance(published, entry, contents, ()), claims)
    assert whole.warning == "Simulated by dlscale; published only as a picture"
    assert whole.subtitle.splitlines()[1:] == [
        "Prediction agrees: All three frameworks have similar efficiency",
        "Prediction disagrees 1 of 2, cannot tell 1 of 2: Sensitive to the network's latency and to jitter",
    ]
    assert any(text.startswith("Disagrees: Sensitive to the network") for text in whole.small_print)
    (plot,) = whole.panels  # rates lie on each other in a panel of their own
    assert plot.y.title == "scaling efficiency [%]"
    assert {row["quantity"] for row in whole.rows} >= {"throughput", "efficiency"}


def test_what_is_not_predicted_says_what_is_missing(published, figure):
    missing = published.figure("mpi-learn-cooley").missing
    assert f"Not predicted: {missing}" in figure("mpi-learn-cooley").small_print


def test_a_predicted_figure_is_drawn_without_a_study_of_ours(published, predicted, tmp_path):
    paths = write_figures(published, tmp_path, predicted=[predicted], alone=False)
    beside = {"powerai-ddl-2", "powerai-ddl-3", "goyal-table-1", "mpi-learn-8", "nysds17-cifar-10"}
    assert {path.stem for path in paths} == beside  # figures with a series that was measured here
    with (tmp_path / "powerai-ddl-2.csv").open(newline="") as lines:
        simulated = [row for row in csv.DictReader(lines) if row["evidence"] == "simulated"]
    assert [(row["x"], round(float(row["y"])), row["source"]) for row in simulated] == [
        ("4", 98, "claims/theirs.toml"),
        ("256", 94, "claims/theirs.toml"),
    ]
