"""Every evaluation of trainings to a target."""

import numpy as np
import pandas as pd
import pytest

from dlscale.analysis.findings import solution
from dlscale.analysis.findings.evaluations import FINDING, thinned
from dlscale.analysis.load import Study
from dlscale.analysis.render import figures, text
from dlscale.models.own.model import OwnModel
from tests.analysis.findings.made_trainings import (
    EVALUATING,
    LAUNCH,
    SET_UP,
    one_and_two_ranks,
    training,
)
from tests.made_records import TARGET, make_record, solved


def test_evaluations_have_the_time_since_the_launch_and_the_epoch():
    study = Study([training(steps=40, step_seconds=0.5, num_training=800)])
    half, last = text.as_data(study, [FINDING])["evaluations"]
    assert (half["epoch"], last["epoch"]) == (pytest.approx(20 * 16 / 800), pytest.approx(40 * 16 / 800))
    assert half["seconds"] == pytest.approx(LAUNCH + SET_UP + 20 * 0.5 + EVALUATING / 2)
    assert last["seconds"] == pytest.approx(LAUNCH + SET_UP + 40 * 0.5 + EVALUATING)
    assert (last["value"], last["metrics"], last["end"], last["seed"]) == (0.95, "auc=0.95", "reached", 1)


def test_a_training_without_any_metric_keeps_its_rows():
    """A loss that is no number has no metrics."""
    bad = training(steps=40, step_seconds=0.5, end="diverged")
    empty = [one.model_copy(update={"metrics": {}, "loss": None}) for one in bad.solution.evaluations]
    bad = bad.model_copy(update={"solution": bad.solution.model_copy(update={"evaluations": empty})})
    study = Study([bad, training(steps=40, step_seconds=0.5, block=1)])
    assert FINDING.of(study)["value"].isna().tolist() == [True, True, False, False]
    (row,) = solution.FINDING.of(study).to_dict("records")
    assert (row["reached"], row["closest"]) == ("1/2", 0.95)


@pytest.mark.parametrize(
    ("higher", "values"), [(True, (0.5, 0.95)), (False, (40.0, 3.0)), (False, (3.0, 3.0))]
)
def test_a_metric_of_a_users_own_has_no_limits_and_a_figure(higher, values):
    own = OwnModel(
        file="mine.py", digest="0" * 12, framework="torch", num_parameters=1, forward_flops_per_sample=0,
        input_shape=[6], local_batch=16, global_batch=64, optimizer="Adam", learning_rate=1e-3, num_samples=200,
        num_classes=2, metrics={"auc": higher}, running_statistics=False, random=False, data="mine.py:0",
        unchecked="nothing",
    )  # fmt: skip
    cell = {"workload": own.name, "own": own, "preset": "own", "target": TARGET | {"threshold": values[1]}}
    found = [{"step": 10 * (n + 1), "seconds": n + 1.0, "auc": value} for n, value in enumerate(values)]
    study = Study([solved(make_record(**cell, local_batch=16, block=block), *found) for block in range(2)])
    assert [stem.partition("-")[0] for stem, *_ in figures.drawn(study, [FINDING])] == ["mine.py"]
    (row,) = solution.FINDING.of(study).to_dict("records")
    assert row["closest"] == (max if higher else min)(values)


def test_drawings_have_a_line_per_training_and_cut_off_where_all_begin():
    figure = next(figure for *_, figure in figures.drawn(Study(one_and_two_ranks()), [FINDING]))
    (axes,) = figure.axes
    assert sum(len(line.get_xdata()) == 2 and line.get_label() != "target" for line in axes.lines) == 12
    low, high = axes.get_ylim()
    assert (low, high) == (pytest.approx(1 - 1.05 * 0.5), pytest.approx(1 + 0.02 * 1.05 * 0.5))
    assert [entry.get_text() for entry in axes.get_legend().get_texts()] == ["none", "ring", "target"]


@pytest.mark.parametrize("finding", [FINDING, solution.FINDING])
@pytest.mark.parametrize("records", [[], [make_record()], [make_record(failure="no")]])
def test_what_has_no_target_has_no_row(finding, records):
    study = Study(records)
    frame = finding.of(study)
    assert not len(frame)
    assert finding.sentence(frame) == ""
    assert text.as_data(study, [finding])[finding.name] == []
    assert not list(figures.drawn(study, [finding]))


def test_one_training_that_failed_has_no_row():
    assert not len(FINDING.of(Study([training(steps=40, step_seconds=0.5, failure="no")])))
    assert np.isfinite(FINDING.of(Study([training(steps=40, step_seconds=0.5)]))["seconds"]).all()


@pytest.mark.parametrize("most", [4, 5, 20, 99])
def test_of_long_trainings_drawings_keep_the_ends_and_the_extremes(most):
    values = np.sin(np.arange(1000))
    frame = pd.DataFrame({"value": values}, index=np.arange(1000, 2000))
    drawn = thinned(frame, most)
    assert len(drawn) <= most + 3
    assert {1000, 1999, frame["value"].idxmax(), frame["value"].idxmin()} <= set(drawn.index)
    assert drawn.index.is_monotonic_increasing
    assert len(thinned(frame[:most], most)) == most
