"""The way of trainings to their target, drawn for one framework and for two."""

import pytest

from dlscale.analysis.declare import Sentence
from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw
from dlscale.analysis.figures.write import write_figures
from dlscale.analysis.findings import solution_table
from dlscale.analysis.findings.solution_plots import frameworks_figure, learning_figure
from dlscale.analysis.findings.solution_table import to_solution_row
from dlscale.analysis.measured import measure
from dlscale.analysis.plots import Plot
from tests.analysis.findings.test_solutions import EVALUATING, LAUNCH, SET_UP, training
from tests.analysis.reading import page_for


def study(*frameworks, num_training=800):
    return [
        training(
            framework=framework,
            num_ranks=num_ranks,
            backend=backend,
            block=block,
            steps=40,
            step_seconds=0.5,
            num_training=num_training,
        )
        for framework in frameworks
        for num_ranks, backend in ((1, "none"), (2, "ring"))
        for block in range(2)
    ]


def solutions_of(table, family):
    return [row for row in solution_table.FINDING.of(table) if row.family == family]


def on_page(records, kind=Plot):
    table = measure(records)
    sections = page_for(table).sections
    (section,) = [section for section in sections if section.name == "time_to_solution"]
    return [block for block in section.blocks if isinstance(block, kind)]


def test_every_training_is_drawn_against_time_epochs_and_steps():
    table = measure(study("torch"))
    (family,) = table.families
    panels = learning_figure(family, solutions_of(table, family), table.provenance).panels
    progress = ["time since the launch [s]", "epoch", "step"]
    quality = [("AUC on held-out samples", name) for name in progress]
    assert [(plot.y.title, plot.x.title) for plot in panels] == quality + [
        ("training loss", name) for name in progress
    ]
    ends = [sorted({series.points[-1].x for series in plot.series}) for plot in panels[3:]]
    assert ends[0] == [pytest.approx(LAUNCH + SET_UP + EVALUATING + 20)]
    assert ends[1:] == [[pytest.approx(40 * 16 / 800), pytest.approx(40 * 32 / 800)], [40]]
    assert len([series for series in panels[3].series if series.training]) == 4, "one line per seed and cell"


def test_without_the_number_of_samples_there_are_no_epochs():
    names = [plot.name for plot in on_page(study("torch", num_training=None))]
    assert names == [
        *("quality-time-0", "quality-steps-0", "loss-time-0", "loss-steps-0", "time-to-solution-0"),
        "samples-0",
    ]


def test_the_page_has_the_time_over_ranks_with_the_ideal():
    (*_, plot, samples) = on_page(study("torch"))
    seconds = LAUNCH + SET_UP + EVALUATING + 20
    assert [[point.y for point in series.points] for series in plot.series] == [[pytest.approx(seconds)]] * 2
    (ideal,) = plot.guides
    assert ideal.points == ((1, pytest.approx(seconds)), (2, pytest.approx(seconds / 2)))
    assert [[(point.x, point.y) for point in series.points] for series in samples.series] == [
        [(batch, 40 * batch)] for batch in (16, 32)
    ]


def test_on_the_page_plots_of_two_frameworks_stand_side_by_side():
    records = study("torch", "tensorflow")
    plots = on_page(records)
    assert [plot.name for plot in plots[:2]] == ["quality-time-0", "quality-time-1"]
    assert [plot.series[0].tags.framework for plot in plots] == ["tensorflow", "torch"] * 8
    own = {said.text.split(": ")[0] for said in on_page(records, Sentence) if " reaches " in said.text}
    assert own == {"HEP-CNN, tensorflow", "HEP-CNN, torch"}


@pytest.mark.usefixtures("no_pictures")
def test_two_frameworks_stand_side_by_side_with_one_scale(tmp_path):
    table = measure(study("torch", "tensorflow"))
    own = {family: solutions_of(table, family) for family in table.families}
    with drawing():
        figure = draw(frameworks_figure(own, table.provenance))
    assert [axes.get_ylabel() for axes in figure.axes] == [
        f"{framework}: {what}"
        for what in ("training loss", "training loss", "time per epoch [s]", "time per step [ms]")
        for framework in ("tensorflow", "torch")
    ]
    assert all(
        left.get_ylim() == right.get_ylim() for left, right in zip(*[iter(figure.axes)] * 2, strict=True)
    )
    rows = [to_solution_row(row) for family in table.families for row in own[family]]
    assert [row["seconds_per_step"] for row in rows] == [pytest.approx(s) for s in (0.16, 0.32) * 2]
    names = {path.name for path in write_figures(table, tmp_path, only=["frameworks"])}
    assert names == {f"hep_cnn-tiny-weak-fp32-frameworks.{suffix}" for suffix in ("png", "pdf", "svg", "csv")}


def test_one_framework_has_none_beside_it(tmp_path):
    assert write_figures(measure(study("torch")), tmp_path, only=["frameworks"]) == []
