"""Published figures by what is handed to the plot, and by their bytes."""

import csv
import os

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.container import ErrorbarContainer

from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.findings import scaling
from dlscale.analysis.published.catalogue import load_published
from dlscale.analysis.published.drawing import DOTTED, NOT_PUBLISHED
from dlscale.analysis.published.figures import draw, provenance, write_figures
from dlscale.analysis.published.panels import PredictedCurve, plots_of
from dlscale.analysis.published.replicates import Band
from dlscale.base.errors import UsageError

FULL = [
    *("powerai-ddl-2", "powerai-ddl-3", "tf-cnn-p100", "tf-cnn-k80", "tf-cnn-ec2", "cosmogan-edison"),
    *("goyal-table-1", "horovod-efficiencies", "imagenet-records", "hep-cnn-selection"),
]


def drawn(published, name, tables=(), **options):
    """The axes, laid out."""
    figure = published.figure(name)
    with drawing():
        plots = plots_of(published, figure, tables, **options)
        picture = draw(published, figure, plots, provenance(published, figure, plots, tables))
        picture.draw_without_rendering()
    return picture


def curves(axes):
    """Label -> (x, y, low, high) of its points, and whether a line joins them."""
    found = {}
    for container in axes.containers:
        if isinstance(container, ErrorbarContainer):
            line, _, (bars,) = container.lines
            ends = [segment[:, 1] if len(segment) else (None, None) for segment in bars.get_segments()]
            points, joined = found.setdefault(container.get_label(), ([], line.get_linestyle() != "None"))
            for x, y, (low, high) in zip(*line.get_data(), ends, strict=True):
                points.append((float(x), float(y), low, high))
            assert joined == (line.get_linestyle() != "None")
    return found


def words(picture):
    texts = [*picture.texts, *(text for axes in picture.axes for text in axes.texts)]
    return " ".join(" ".join(text.get_text().split()) for text in texts)


def test_a_table_of_speed_ups_is_drawn_as_it_was_printed(published):
    left, right = drawn(published, "powerai-ddl-2").axes
    points, joined = curves(left)["Caffe"]
    assert joined
    assert [point[:2] for point in points] == [
        (4, 1.0),
        (8, 2.0),
        (16, 3.9),
        (32, 7.9),
        (64, 15.5),
        (128, 30.5),
        (256, 60.6),
    ]
    assert [point[1] for point in curves(right)["Caffe"][0]] == pytest.approx([100, 100, 98, 99, 97, 95, 95])
    assert [axes.get_ylabel() for axes in (left, right)] == [
        "speed-up over 4 GPUs [1]",
        "scaling efficiency [%]",
    ]
    assert right.get_ylim()[0] == 0
    ideal = next(line for line in left.lines if line.get_label() == "ideal")
    x, y = (np.asarray(values, float) for values in ideal.get_data())
    assert y == pytest.approx(x / 4)


def test_every_table_has_a_panel_and_every_network_one_look(published):
    picture = drawn(published, "tf-cnn-p100")
    panels = picture.axes
    assert [axes.get_title(loc="left") for axes in panels] == ["synthetic, 64", "real, 64", "synthetic, 32"]
    assert [len(curves(axes)) for axes in panels] == [5, 5, 4]
    assert [point[:2] for point in curves(panels[1])["AlexNet"][0]] == [(1, 2890), (2, 4448), (4, 7105)]
    assert [point[1] for point in curves(panels[2])["ResNet-152"][0]] == [82.7, 160, 317, 632]
    looks = {(one.get_label(), one.lines[0].get_color()) for axes in panels for one in axes.containers}
    assert len(looks) == len(dict(looks)) == len(set(dict(looks).values())) == 5
    legend = [text.get_text() for text in picture.legends[0].get_texts()]
    assert legend == ["Inception v3", "ResNet-50", "ResNet-152", "AlexNet", "VGG16", "ideal", "published"]
    assert len({axes.get_ylim() for axes in panels}) == 1


def test_an_uncertainty_that_is_published_is_a_bar(published):
    left, right = drawn(published, "cosmogan-edison").axes
    ((x, y, low, high), *_) = curves(left)["Horovod over Cray MPI"][0]
    assert (x, y, low, high) == (1, 0.819, pytest.approx(0.816), pytest.approx(0.822))
    assert all(low is None for _, _, low, _ in curves(right)["Horovod over Cray MPI"][0])
    assert "derived from the published values" in words(left.figure)


def test_works_of_a_table_are_named_points_without_a_line(published):
    picture = drawn(published, "imagenet-records")
    left, right = picture.axes
    placed = {text.get_text(): tuple(text.xy) for text in left.texts}
    assert placed["He"] == (8, 1740)
    assert placed["Mikami"] == (3456, 2.0)
    assert len(placed) == 8
    assert {text.get_text() for text in right.texts} == {"Goyal", "Cho", "Akiba", "Jia", "Mikami"}
    assert "Smith et al. 30 min on a full TPU pod" in words(picture)
    lines = [line for axes in (left, right) for line in axes.lines if line.get_label() != "ideal"]
    assert all(len(line.get_xdata()) == 1 for line in lines)


def test_a_line_joins_only_what_is_ordered_and_of_one_mode(published):
    (axes,) = drawn(published, "horovod-efficiencies").axes
    assert len(curves(axes)) == 5
    assert not any(joined for _, joined in curves(axes).values())
    places = [points[0][0] for points, _ in curves(axes).values()]
    assert len(set(places)) == 5
    assert np.exp(np.mean(np.log(places))) == pytest.approx(128)
    (axes,) = drawn(published, "hep-cnn-selection").axes
    ((points, joined),) = curves(axes).values()
    assert joined
    assert len(points) == 19


def test_what_is_only_said_is_a_band_or_a_mark_and_the_words(published):
    picture = drawn(published, "cug18-strong-cori")
    (axes,) = picture.axes
    (band,) = axes.patches
    assert (band.get_x(), band.get_x() + band.get_width()) == (8, 16)
    assert NOT_PUBLISHED in words(picture)
    assert "efficient scaling ends: 8 or 16 nodes" in words(picture)
    assert curves(axes) == {}
    picture = drawn(published, "cray-grpc")
    (axes,) = picture.axes
    marks = [tuple(map(float, line.get_xydata()[0])) for line in axes.lines if len(line.get_xdata()) == 1]
    assert marks == [(128, 1.8)]
    assert NOT_PUBLISHED in words(picture)


def test_an_axis_of_unknown_scale_has_no_numbers(published):
    picture = drawn(published, "cug18-weak-hep-cnn-daint")
    left, right = picture.axes
    assert [tick.get_text() for tick in left.get_yticklabels()] == []
    assert left.get_ylabel() == "throughput [samples/s]"
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["1", "4", "16", "64", "256", "1024"]
    assert right.get_ylim()[0] == 0
    assert [text.get_text() for text in left.texts] == [NOT_PUBLISHED]
    assert "Horovod over MPI" in words(picture)


@pytest.fixture
def ours(cori):
    """Two kinds of evidence, and three backends."""
    kept = {"none": (0.25, 0.25), "ring": (0.245, 0.24), "horovod": (0.24, 0.23)}
    fields = {"framework": "tensorflow", "local_batch": 128}
    return [
        cori(kept, nodes=(1, 4), study="a", **fields),
        cori(kept, nodes=(1, 64), study="b", evidence="simulated", **fields),
    ]


def test_our_series_join_by_marker_and_never_by_a_line(published, ours):
    picture = drawn(published, "cug18-weak-hep-cnn-cori", ours)
    left, right = picture.axes
    names = {f"{backend}, tensorflow" for backend in ("none", "ring", "horovod")}
    assert set(curves(left)) == names
    assert not any(joined for axes in (left, right) for _, joined in curves(axes).values())
    rates = {
        (row.cell.backend, row.cell.num_nodes, row.evidence): row.throughput
        for table in ours
        for row in scaling.FINDING.of(table)
    }
    shown = sorted(point[1:] for point in curves(left)["ring, tensorflow"][0])
    wanted = sorted((i.center, i.low, i.high) for (name, _, _), i in rates.items() if name == "ring")
    assert [pytest.approx(one) for one in wanted] == shown
    legend = [text.get_text() for text in picture.legends[0].get_texts()]
    assert legend[-4:] == ["ideal", "measured", "simulated", "published"]
    assert "Ours: study a, b; system cori; commit 0123456789ab" in words(picture)


def test_a_published_backend_and_ours_can_be_told_apart(published, cori):
    fields = {"workload": "cosmogan", "framework": "tensorflow", "scaling_mode": "strong"}
    table = cori({"horovod": (0.008, 0.008)}, nodes=(1, 2), local_batch=16384, system="edison", **fields)
    # Strong scaling: the global batch is what stays.
    records = [row for row in scaling.FINDING.of(table) if row.cell.global_batch == 16384]
    assert records
    picture = drawn(published, "cosmogan-edison", [table])
    found = curves(picture.axes[0])
    assert set(found) == {"Horovod over Cray MPI", "horovod, tensorflow"}
    assert found["Horovod over Cray MPI"][1]
    assert not found["horovod, tensorflow"][1]
    colors = {line.get_label(): line.get_markeredgecolor() for line in picture.legends[0].get_lines()}
    assert colors["Horovod over Cray MPI"] != colors["horovod, tensorflow"]


def test_files_are_whole_and_equal_on_a_redraw(published, ours, tmp_path):
    names = ["cug18-weak-hep-cnn-cori", "horovod-7"]
    first = write_figures(published, tmp_path / "first", names=names, studies=ours)
    again = write_figures(load_published(), tmp_path / "again", names=names, studies=ours)
    assert {path.name for path in first} >= {
        f"{name}.{end}" for name in names for end in ("png", "pdf", "svg", "csv")
    }
    assert sorted(os.listdir(tmp_path / "first")) == sorted(path.name for path in first)
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_figures_carry_the_hash_of_their_data(published, ours, folder, tmp_path):
    *pictures, table = write_figures(published, tmp_path, names=["cug18-weak-hep-cnn-cori"], studies=ours)
    figure = published.figure("cug18-weak-hep-cnn-cori")
    plots = plots_of(published, figure, ours)
    where = provenance(published, figure, plots, ours)
    assert where.studies == ("published", "a", "b")
    assert where.commands == ("mpiexec",)
    assert [path.suffix for path in pictures] == [".png", ".pdf", ".svg"]
    assert all(where.line().encode() in path.read_bytes() for path in pictures)
    with table.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {row["data_hash"] for row in rows} == {where.data_hash}
    without = provenance(published, figure, plots_of(published, figure, []), [])
    assert without.commands == ()
    changed = provenance(published, figure, plots_of(published, figure, ours[:1]), ours[:1])
    assert len({where.data_hash, without.data_hash, changed.data_hash}) == 3
    hashes = set()
    for y in ("10", "11"):
        other = load_published(folder({"x": "1", "y": y}))
        hashes.add(provenance(other, other.figure("small"), [], []).data_hash)
    assert len(hashes) == 2


def test_the_csv_has_all_that_is_public_and_ours(published, ours, tmp_path):
    table = next(
        path
        for path in write_figures(published, tmp_path, names=["cug18-weak-hep-cnn-cori"], studies=ours)
        if path.suffix == ".csv"
    )
    with table.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    said = [row["note"] for row in rows if row["evidence"] == "published"]
    assert sorted(said) == sorted(one.statement for one in published.statements_of("cug18-weak-hep-cnn-cori"))
    own = [row for row in rows if row["evidence"] != "published"]
    assert {(row["evidence"], row["source"]) for row in own} == {
        ("measured", "study a"),
        ("simulated", "study b"),
    }
    assert {row["y_unit"] for row in own} == {"samples/s", "%"}
    assert all(float(row["y"]) > 0 for row in own)
    table = write_figures(published, tmp_path, names=["powerai-ddl-3"])[-1]
    with table.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["quantity"] == "speed_up"]
    assert [(row["x"], row["y"], row["kind"]) for row in rows][2] == ("64.0", "13.7", "table")


def test_what_cannot_be_laid_out_is_not_drawn(published, tmp_path):
    assert write_figures(published, tmp_path, names=["rpv-keras", "gradient-compression"]) == []
    with pytest.raises(UsageError, match="no published figure 'nothing'"):
        write_figures(published, tmp_path, names=["nothing"])


def test_nothing_is_cut_off_or_without_a_unit(published):
    for name, figure in published.figures.items():
        if not figure.panels:
            continue
        picture = drawn(published, name)
        boxes = [one.get_window_extent() for one in (*picture.texts, *picture.legends, *picture.axes)]
        boxes += [text.get_window_extent() for axes in picture.axes for text in axes.texts]
        assert all(box.x0 >= 0 and box.x1 <= picture.bbox.x1 for box in boxes), name
        assert all(box.y0 >= 0 and box.y1 <= picture.bbox.y1 for box in boxes), name
        for axes, panel in zip(picture.axes, figure.panels, strict=True):
            assert axes.get_ylabel() in ("", f"{panel.y_label} [{panel.y_unit}]")
            assert figure.x_unit in axes.get_xlabel()
        assert picture.axes[0].get_ylabel()
        assert (NOT_PUBLISHED in words(picture)) == (name not in FULL), name
        assert picture.get_figwidth() in (3.5, 7.0)


@pytest.fixture
def predicted():
    """From 98 % on 4 GPUs to 94 %, each with 2 points to both sides, of the published series in Caffe."""
    points = ((4, 0.96, 0.98, 1.0), (256, 0.92, 0.94, 0.96))
    return PredictedCurve(
        figure="powerai-ddl-2",
        panel=1,
        label="Caffe",
        backend="mpi",
        points=tuple((x, Band(low=low, median=median, high=high)) for x, low, median, high in points),
        publication="theirs",
    )


def test_a_predicted_curve_has_its_band_and_its_evidence(published, predicted):
    picture = drawn(published, "powerai-ddl-2", predicted=[predicted])
    left, right = picture.axes
    bands = [shape for shape in right.collections if isinstance(shape, PolyCollection)]
    (corners,) = [shape.get_paths()[0].vertices for shape in bands]
    assert {(round(x), round(y)) for x, y in corners} == {(4, 96), (4, 100), (256, 92), (256, 96)}
    assert not [shape for shape in left.collections if isinstance(shape, PolyCollection)]
    legend = [text.get_text() for text in picture.legends[0].get_texts()]
    assert legend.count("Caffe") == 1
    assert {"simulated", "published"} <= set(legend)
    # The published line has the same look, so this one is dotted.
    dashes = [list(line.get_ydata()) for line in right.lines if line._unscaled_dash_pattern == DOTTED]
    assert dashes == [pytest.approx([98, 94])]
    assert "claims/theirs.toml, from single-node facts" in words(picture)


def test_what_is_not_predicted_says_what_is_missing(published):
    figure = published.figure("mpi-learn-cooley")
    assert f"Not predicted: {figure.missing}" in words(drawn(published, figure.id))


def test_a_predicted_figure_is_drawn_without_a_study_of_ours(published, predicted, tmp_path):
    paths = write_figures(published, tmp_path, predicted=[predicted], alone=False)
    assert {path.stem for path in paths} == {"powerai-ddl-2"}
    lines = (tmp_path / "powerai-ddl-2.csv").read_text().splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    simulated = [row for row in rows if row["evidence"] == "simulated"]
    assert [(row["x"], round(float(row["y"])), row["source"]) for row in simulated] == [
        ("4", 98, "claims/theirs.toml"),
        ("256", 94, "claims/theirs.toml"),
    ]
