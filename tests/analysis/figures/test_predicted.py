"""Predictions in figures of measured points: which are printed, and the rows of their files."""

import csv
from dataclasses import replace

import pytest

from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw
from dlscale.analysis.figures.write import write_figures
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.predicted_points import place_predictions
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.throughput import MAKERS
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.measured import measure
from tests.analysis.made_predictions import predictions
from tests.made_records import make_study


@pytest.fixture
def table():
    return measure(make_study())


def declared(table, name, records=(), form=SCREEN):
    (family,) = table.families
    rows = scaling.FINDING.of(table)
    points, _ = place_predictions(records, rows)
    return MAKERS[name](family, rows_of(rows, family), table.provenance, form, points)


def bands(plot):
    return {series.tags.backend: series for series in plot.series if series.band}


def test_in_print_only_backends_that_are_asked_for_are_predicted(table):
    form = Form(width=3.3, backends=("ring",))
    (plot,) = declared(table, "throughput", [*predictions(), *predictions("mpi")], form).panels
    assert bands(plot).keys() == {"ring"}


def test_many_sizes_have_as_many_labels_as_there_is_room_for(table):
    figure = declared(table, "throughput", predictions(ranks=[2**power for power in range(14)]))
    with drawing():
        (axes,) = draw(figure).axes
    assert len(axes.get_xticks()) <= 10


def rows_in(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("no_pictures")
def test_the_csv_has_predictions_behind_the_measured_rows(table, tmp_path):
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
