"""The proposal's folder."""

import csv
import re

import pytest
from PIL import Image

from dlscale.analysis.figures.drawing import DOTS_PER_INCH
from dlscale.analysis.measured import measure
from dlscale.analysis.plots import Guide
from dlscale.analysis.proposal import write as module
from dlscale.analysis.proposal.write import write_proposal
from tests.made_records import make_record

from .conftest import kept

SHARES = {"none": {1: 1.0, 2: 0.99}, "ring": {1: 0.98, 2: 0.95, 4: 0.6}}
STEM = "hep_cnn-tiny-torch-weak-fp32-ring"


@pytest.fixture
def write(tmp_path):
    def run(records, name="p", **options):
        folder = tmp_path / name
        written = write_proposal(measure(records), folder, **{"threshold": 0.75, **options})
        assert all(path.parent == folder for path in written.files)
        return {path.name for path in written.files}, folder

    return run


def test_text_table_and_figures_are_there_and_refer_to_each_other(write):
    names, folder = write(kept(SHARES), samples=10_000, runs=2)
    pictures = {
        f"{STEM}-{name}.{end}"
        for name in ("throughput", "efficiency")
        for end in ("png", "pdf", "svg", "csv")
    }
    assert names == {"proposal.md", "proposal.tex", f"{STEM}.csv", *pictures}
    markdown, latex = (folder / "proposal.md").read_text(), (folder / "proposal.tex").read_text()
    assert {*re.findall(r"\]\((.*?)\)", markdown)} <= names
    assert {*re.findall(r"includegraphics\[.*?\]\{(.*?)\}", latex)} <= names
    assert "2 trainings take" in markdown
    assert "2 trainings take" in latex
    with Image.open(folder / f"{STEM}-efficiency.png") as image:
        assert image.width == round(3.5 * DOTS_PER_INCH)  # a column, not a screen
    assert latex.count("width=3.5in") == 2
    with (folder / f"{STEM}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["num_ranks"] for row in rows] == ["1", "2", "4"]
    assert [float(row["speed_up"]) for row in rows] == pytest.approx([0.98, 1.9, 2.4])
    assert [row["keeps_threshold"] for row in rows] == ["surely", "surely", "not"]
    assert float(rows[2]["speed_up_per_doubling_low"]) == pytest.approx(2.4 / 1.9)
    assert {row["base_case"] for row in rows} == {"none"}


def test_the_threshold_is_a_line_in_the_figure_of_efficiency(monkeypatch, write):
    figures = {}
    monkeypatch.setattr(
        module, "save_figure", lambda figure, *_, **__: figures.setdefault(figure.name, figure).panels[:0]
    )
    write(kept(SHARES), threshold=0.8)
    assert [plot.guides[-1] for plot in figures["efficiency"].panels] == [Guide(label="80 %", y=0.8)] * 2


def test_strong_scaling_has_times_and_speed_ups_too_and_nothing_is_asked_without_samples(write):
    names, folder = write(kept(SHARES, global_batch=32))
    assert f"{STEM.replace('weak', 'strong')}-step-time.pdf" in names
    assert "training on" not in (folder / "proposal.md").read_text()


def test_nothing_with_a_number_writes_nothing(write):
    names, folder = write([make_record(failure="died")])
    assert not names
    assert not folder.exists()


def test_curves_with_equal_names_have_files_of_their_own(write):
    names, _ = write(kept(SHARES) + kept(SHARES, cores_per_rank=2))
    assert sum(name.endswith("efficiency.pdf") for name in names) == 2


def test_names_from_records_are_no_markup(write):
    _, folder = write(kept(SHARES, variables={"A": "<script>alert(1)</script>|x_y$"}))
    assert "<script>" not in (folder / "proposal.md").read_text().replace("\\<", "")
    latex = (folder / "proposal.tex").read_text()
    assert "\\textless{}script\\textgreater{}" in latex
    assert "<script>" not in latex
