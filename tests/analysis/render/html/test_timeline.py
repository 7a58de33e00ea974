"""Launches and windows that stand out: ringed and told of, counted all the same."""

import pytest

from dlscale.analysis.declare import Table
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.launches import by_start, key_of, outlier_marks
from dlscale.analysis.measured import measure
from dlscale.analysis.plots import Plot
from dlscale.analysis.render.html.document import payload
from tests.analysis.reading import blocks_of

ONE = (("hep_cnn", "torch"),)


def slower(record, factor, windows=slice(None)):
    """The record with those of its windows longer."""
    chosen = set(range(len(record.windows))[windows])
    longer = [
        window.model_copy(update={"seconds": [factor * one for one in window.seconds]})
        if index in chosen
        else window
        for index, window in enumerate(record.windows)
    ]
    return record.model_copy(update={"windows": longer})


@pytest.fixture(scope="module")
def records(made):
    """One launch of mpi on 8 ranks takes 30 % longer; of another, two windows take three times as long."""

    def where(record, block):
        cell = record.case.cell
        return (cell.backend, cell.num_ranks, record.case.block) == ("mpi", 8, block)

    return [
        slower(one, 1.3) if where(one, 2) else slower(one, 3.0, slice(4, 6)) if where(one, 5) else one
        for one in made.study(trainings=ONE, num_blocks=8)
    ]


@pytest.fixture(scope="module")
def page(made, records):
    return made.page(records)


@pytest.fixture(scope="module")
def plot(page):
    return plot_of(page)


def plot_of(page):
    return next(plot for plot in blocks_of(page, Plot) if plot.name == "every-launch")


def test_the_launch_has_a_ring_and_says_why(plot):
    flagged = [point for series in plot.series for point in series.points if point.flagged]
    (one,) = [point for point in flagged if point.lines[0] == "mpi, 8 ranks, block 2"]
    assert one.lines[3].startswith("stands out: its steps take ")
    assert 25 < float(one.lines[3].removeprefix("stands out: its steps take ").split(" ")[0]) < 35
    assert plot.flag == "stands out, and counts"
    assert f"{len(flagged)} case" in plot.says


def test_windows_are_told_where_somebody_points_at_their_launch(plot):
    points = [point for series in plot.series for point in series.points]
    (one,) = [point for point in points if point.lines[0] == "mpi, 8 ranks, block 5"]
    assert any(line.startswith("2 of 10 windows stand out, the longest ") for line in one.lines), one.lines
    assert not one.flagged


def test_the_browser_gets_the_places_of_the_rings(page):
    series = payload(page)["plots"]["every-launch"]["series"]
    (mpi,) = [one for one in series if one["name"] == "mpi"]
    assert [mpi["text"][index].split("\n")[0] for index in mpi["flagged"]] == ["mpi, 8 ranks, block 2"]


def test_windows_are_those_that_the_rows_count(records):
    """The page looks at single launches by the rule of the rows: both find the same number."""
    table = measure(records)
    rows = scaling.FINDING.of(table)
    found = outlier_marks(rows)
    told: dict[str, int] = {}
    for launches in by_start(table.launches):
        for case in launches.cases:
            _, lines = found.of(key_of(launches), case)
            for line in lines:
                if "windows stand" in line:
                    told[launches.id] = told.get(launches.id, 0) + int(line.split(" ")[0])
    assert told == {row.cell.id: row.outliers.num_windows_out for row in rows if row.outliers.num_windows_out}


def test_a_quiet_study_has_no_ring_and_no_table(made):
    records = made.study(trainings=ONE, num_blocks=3)  # fewer launches than it takes to tell
    page = made.page(records)
    assert plot_of(page).flag == ""
    tables = [table for table in blocks_of(page, Table) if table.name == "outliers"]
    assert not any(row.strong for table in tables for row in table.rows)
