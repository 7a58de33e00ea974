"""`dlscale report A B`: several studies in one table and on one page, where they may be compared."""

import csv
import json
import re

import pytest
from click.testing import CliRunner

from dlscale.analysis.findings.together import Member, labels, together_figure, trainings_of
from dlscale.analysis.measured import measure
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


def test_two_machines_are_on_one_page_and_every_curve_names_its_own(results):
    folder = results(("cori", "weak-1", {}), ("daint", "weak-2", {}))
    status, said, problem = run(folder, "weak-1", "weak-2")
    assert (status, problem) == (0, None)
    (page,) = (folder / "reports").glob("*.html")
    assert said.splitlines()[-2:] == [f"report: {page}", f"open: {page.as_uri()}"]
    assert "nothing is claimed of it" in said
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1])
    plots = [plot for name, plot in data["plots"].items() if name.startswith(("efficiency", "throughput"))]
    assert len(plots) == 2
    curves = ["none, cori", "ring, cori", "none, daint", "ring, daint"]
    for plot in plots:
        assert [series["name"] for series in plot["series"]] == curves
    assert set(curves) <= set(data["looks"])
    assert len({json.dumps(data["looks"][name]) for name in curves}) == 4  # each told from the others
    assert "compared at 4 points" in page.read_text()
    run(folder, "weak-1", "weak-2")
    assert [page] == list((folder / "reports").glob("*.html"))


def test_one_figure_has_the_curves_of_both_machines(results):
    folder = results(("cori", "weak-1", {}), ("daint", "weak-2", {}))
    said = run(folder, "weak-1", "weak-2")[1]
    (page,) = (folder / "reports").glob("*.html")
    stem = page.with_suffix("") / "hep_cnn-small-torch-weak-fp32-together"
    assert f"figures: 1 in {stem.parent}" in said.splitlines()
    files = {suffix: stem.with_suffix(f".{suffix}").read_bytes() for suffix in ("png", "pdf", "svg", "csv")}
    assert set(stem.parent.iterdir()) == {stem.with_suffix(f".{suffix}") for suffix in files}
    lines = list(csv.DictReader(files["csv"].decode().splitlines()))
    assert [(line["label"], line["of_study"], line["backend"], line["num_ranks"]) for line in lines] == [
        (label, study, backend, ranks)
        for label, study in (("cori", "weak-1"), ("daint", "weak-2"))
        for backend in ("none", "ring")
        for ranks in ("1", "2")
    ]
    run(folder, "weak-1", "weak-2")
    assert files["png"] == stem.with_suffix(".png").read_bytes(), "a redraw gives equal bytes"


def test_each_curve_of_a_figure_is_of_one_study_and_looks_like_no_other(made):
    members = [
        Member(
            label=name,
            name=f"weak-{name}",
            begun="2026-01-01",
            study=measure(made.study(**ONE, system=name)),
        )
        for name in ("cori", "daint")
    ]
    (training,) = trainings_of(members)
    figure = together_figure(training)
    names = ["none, cori", "ring, cori", "none, daint", "ring, daint"]
    for plot in figure.panels:
        assert [series.name for series in plot.series] == [series.look for series in plot.series] == names
    assert "Studies are not paired with each other" in " ".join(figure.small_print)


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


def test_a_study_may_be_named_by_its_folder(results, tmp_path):
    folder = results(("cori", "weak-1", {}), ("daint", "weak-1", {}))
    status, _, problem = run(folder, str(folder / "cori" / "weak-1"), str(folder / "daint" / "weak-1"))
    assert (status, problem) == (0, None)
    assert run(tmp_path / "nowhere", str(folder / "cori" / "weak-1"))[0] == 0


def test_labels_are_as_short_as_they_can_be():
    a, b = ("cori", "2026-01-01", "weak-1"), ("daint", "2026-01-01", "weak-1")
    later, other = ("cori", "2026-02-01", "weak-1"), ("cori", "2026-01-01", "weak-2")
    assert labels([a, b]) == ["cori", "daint"]
    assert labels([a, later]) == ["2026-01-01", "2026-02-01"]
    assert labels([a, other]) == ["weak-1", "weak-2"]
    assert labels([a, other, b]) == ["weak-1 on cori", "weak-2 on cori", "weak-1 on daint"]
