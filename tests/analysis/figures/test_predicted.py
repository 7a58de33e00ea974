"""Predictions in figures of measured points: a band and marks, no line, and the measured points as before."""

import csv
from dataclasses import replace

import pytest
from matplotlib.container import ErrorbarContainer

from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw as draw_figure
from dlscale.analysis.figures.write import write_figures
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.predicted_points import place_predictions
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.throughput import MAKERS
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.measured import measure
from tests.analysis.made_predictions import predictions


@pytest.fixture
def table(make_study):
    return measure(make_study())


def drawn(table, name, records=(), form=SCREEN):
    (family,) = table.families
    points, _ = place_predictions(records, scaling.FINDING.of(table))
    with drawing(form):
        declared = MAKERS[name](
            family, rows_of(scaling.FINDING.of(table), family), table.provenance, form, points
        )
        figure = draw_figure(declared, form)
        figure.draw_without_rendering()
    return figure, declared.rows


def measured(axes):
    """Label -> what is drawn of each measured curve."""
    return {
        one.get_label(): one.lines[0].get_data()[1].tolist()
        for one in axes.containers
        if isinstance(one, ErrorbarContainer)
    }


def marks(axes):
    """The lines of half-filled marks."""
    return [line for line in axes.lines if line.get_fillstyle() == "left"]


@pytest.mark.parametrize("name", ["throughput", "efficiency"])
def test_a_band_and_marks_that_no_line_joins(table, name):
    records = [*predictions(), *predictions("horovod", (4, 8))]
    (plain, before), (figure, after) = drawn(table, name), drawn(table, name, records)
    axes = figure.axes[0]
    assert after[: len(before)] == before
    assert measured(axes) == measured(plain.axes[0])
    assert [line.get_linestyle() for line in marks(axes)] == ["None", "None"]
    (first, second) = (line.get_data()[1].tolist() for line in marks(axes))
    wanted = "samples_per_second" if name == "throughput" else "efficiency"
    values = [getattr(record, wanted).center for record in records]
    # Curves stand in the order of their names.
    assert sorted([first, second]) == sorted([values[:5], values[5:]])
    bands = [one for one in axes.collections if one.get_alpha() == pytest.approx(0.18)]
    assert len(bands) == 2
    legend = [one.get_text() for one in figure.legends[0].get_texts()]
    assert {"measured", "simulated", "band of predictions", "horovod"} <= set(legend)
    assert legend.count("ring") == 1
    assert "Nothing of it was run." in " ".join(" ".join(one.get_text() for one in figure.texts).split())
    assert {8.0, 16.0} <= set(axes.get_xticks())
    assert axes.get_xlim()[1] > 16
    assert axes.get_ylim()[1] >= max(getattr(record, wanted).high for record in records)


def test_efficiency_against_the_same_backend_is_not_predicted(table):
    figure, _ = drawn(table, "efficiency", predictions())
    assert marks(figure.axes[1]) == []


def test_a_doubt_is_in_the_heading(table):
    figure, _ = drawn(table, "throughput", predictions(doubts=("65 times too far",)))
    said = " ".join(" ".join(one.get_text() for one in figure.texts).split())
    assert "Predictions over ring are not to be trusted: 65 times too far" in said


def test_a_printed_figure_names_both_kinds_and_no_backend_that_is_not_asked_for(table):
    form = Form(width=3.3, backends=("ring",))
    figure, _ = drawn(table, "throughput", [*predictions(), *predictions("mpi")], form)
    legend = [one.get_text() for one in figure.legends[0].get_texts()]
    assert legend == ["ring", "ideal", "measured", "simulated", "band of predictions"]
    (line,) = marks(figure.axes[0])
    assert line.get_data()[0].tolist() == [1, 2, 4, 8, 16]  # in print nothing is moved aside
    assert "All points are" not in " ".join(figure.caption.small_print)


def test_many_sizes_have_as_many_labels_as_there_is_room_for(table):
    figure, _ = drawn(table, "throughput", predictions(ranks=[2**power for power in range(14)]))
    assert len(figure.axes[0].get_xticks()) <= 10


def rows_in(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_csv_has_predictions_behind_the_measured_rows(table, tmp_path, monkeypatch):
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)
    for folder, wanted in (("plain", table), ("both", replace(table, predictions=tuple(predictions())))):
        write_figures(wanted, tmp_path / folder, only=["throughput", "efficiency"])
    for name in ("throughput", "efficiency"):
        plain, both = (
            rows_in(tmp_path / folder / f"hep_cnn-tiny-torch-weak-fp32-{name}.csv")
            for folder in ("plain", "both")
        )
        assert both[: len(plain)] == plain
        assert [row["evidence"] for row in both[len(plain) :]] == ["simulated"] * 5
        assert [row["num_ranks"] for row in both[len(plain) :]] == ["1", "2", "4", "8", "16"]
        assert both[-1]["notes"] == "predicted by loggp 1"
        assert both[-1]["num_launches"] == ""
