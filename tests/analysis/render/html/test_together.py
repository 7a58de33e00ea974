"""`dlscale report A B`: several studies in one table and on one page, where they may be compared."""

import csv
import json
import re

import pytest
from click.testing import CliRunner

from dlscale.analysis.findings.together import labels
from dlscale.benchmarks.cli.report import report
from tests.made_records import write_study

ONE = {"trainings": (("hep_cnn", "torch"),), "rank_counts": (1, 2), "efficiency": {"none": 1.0, "ring": 0.9}}


@pytest.fixture
def results(made, tmp_path):
    """Write studies, each (system, name, fields of the records), and give back the results folder."""

    def write(*studies):
        for system, name, fields in studies:
            records = made.study(**ONE, system=system, study=name, **fields)
            write_study(
                tmp_path / system / name, records, planned=True, schema=1, study={"name": "weak-scaling"}
            )
        return tmp_path

    return write


def run(results, *words):
    done = CliRunner().invoke(report, [*words, "--results", str(results)], standalone_mode=False)
    return done.return_value, done.output, done.exception


CURVES = ["none, cori", "ring, cori", "none, daint", "ring, daint"]


def test_two_machines_have_one_page_and_one_figure_and_every_curve_names_its_own(results):
    folder = results(("cori", "weak-1", {}), ("daint", "weak-2", {}))
    status, said, problem = run(folder, "weak-1", "weak-2")
    assert (status, problem) == (0, None)
    (page,) = (folder / "reports").glob("*.html")
    figures = page.with_suffix("")
    lines = [f"figures: 1 in {figures}", f"report: {page}", f"open: {page.as_uri()}"]
    assert said.splitlines()[-3:] == lines
    assert "nothing is claimed of it" in said
    text = page.read_text()
    assert "compared at 4 points" in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    plots = [plot for name, plot in data["plots"].items() if name.startswith(("efficiency", "throughput"))]
    assert [[series["name"] for series in plot["series"]] for plot in plots] == [CURVES] * 2
    assert len({json.dumps(data["looks"][name]) for name in CURVES}) == 4  # each told from the others
    stem = "hep_cnn-small-torch-weak-fp32-together"
    drawn = {path.name: path.read_bytes() for path in figures.iterdir()}
    assert drawn.keys() == {f"{stem}.{suffix}" for suffix in ("png", "pdf", "svg", "csv")}
    rows = list(csv.DictReader(drawn[f"{stem}.csv"].decode().splitlines()))
    assert [(row["label"], row["of_study"], row["backend"], row["num_ranks"]) for row in rows] == [
        (label, study, backend, ranks)
        for label, study in (("cori", "weak-1"), ("daint", "weak-2"))
        for backend in ("none", "ring")
        for ranks in ("1", "2")
    ]
    run(folder, "weak-1", "weak-2")
    assert [page] == list((folder / "reports").glob("*.html"))
    again = {path.name: path.read_bytes() for path in figures.iterdir()}
    assert drawn == again, "a redraw gives equal bytes"


def test_the_numbers_are_those_of_each_study_s_own_report(results):
    folder = results(("cori", "weak-1", {}), ("cori", "weak-2", {}))
    both = json.loads(run(folder, "weak-1", "weak-2", "--json")[1])
    assert both["comparable"] is True
    for name in ("weak-1", "weak-2"):
        alone = json.loads(run(folder, name, "--json")[1])["rows"]
        mine = [row for row in both["rows"] if row["study"] == name]
        assert len(mine) == len(alone)
        for row, own in zip(mine, alone, strict=True):
            assert {key: row[key] for key in own} == own
    assert not (folder / "reports").exists()
    # Studies are named by their folders, too.
    places = [str(folder / "cori" / name) for name in ("weak-1", "weak-2")]
    assert json.loads(run(folder / "nowhere", *places, "--json")[1]) == both


def test_studies_that_may_not_be_compared_have_no_page(results):
    folder = results(("cori", "weak-1", {}), ("daint", "weak-2", {"preset": "tiny"}))
    done = CliRunner().invoke(
        report, ["weak-1", "weak-2", "--results", str(folder)], standalone_mode=False, catch_exceptions=False
    )
    assert done.return_value == 3
    assert "not comparable: A and B differ in preset" in done.output
    assert not (folder / "reports").exists()


def test_mistakes(results):
    folder = results(("cori", "weak-1", {}), ("daint", "weak-2", {}))
    assert "'weak-1' is named twice" in str(run(folder, "weak-1", "weak-1")[2])
    assert "no study 'strong'" in str(run(folder, "weak-1", "strong")[2])
    assert "--full and --text take one study" in str(run(folder, "weak-1", "weak-2", "--full")[2])


def test_labels_are_as_short_as_they_can_be():
    a, b = ("cori", "2026-01-01", "weak-1"), ("daint", "2026-01-01", "weak-1")
    later, other = ("cori", "2026-02-01", "weak-1"), ("cori", "2026-01-01", "weak-2")
    assert labels([a, b]) == ["cori", "daint"]
    assert labels([a, later]) == ["2026-01-01", "2026-02-01"]
    assert labels([a, other]) == ["weak-1", "weak-2"]
    assert labels([a, other, b]) == ["weak-1 on cori", "weak-2 on cori", "weak-1 on daint"]
