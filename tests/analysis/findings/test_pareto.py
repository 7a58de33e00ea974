"""The front of time against cost: what no other cell beats in both, for cells with known times."""

from types import SimpleNamespace

import pytest

from dlscale.analysis.figures.write import write_figures
from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all, solution_table
from dlscale.analysis.findings.pareto import front, front_text, priced, shown_cost
from dlscale.analysis.form import Form
from dlscale.analysis.measured import measure
from dlscale.analysis.render.data import study_json
from dlscale.analysis.render.html.page import page_of
from dlscale.analysis.statistics import Interval
from dlscale.benchmarks.records.target import Evaluation, Solution

TARGET = {
    "metric": "auc",
    "threshold": 0.9,
    "held_out": 0.125,
    "evaluate_every": 240,
    "max_seconds": 60.0,
    "learning_rate": 1e-3,
}
LAUNCH = 2.1  # start 1, import 0.1 and connect 1, as the made-up records have them


def exactly(center, *, low=None, high=None):
    return Interval(center=center, low=low, high=high, level=0.95, method="made up", n=6)


@pytest.fixture
def solutions(make_record):
    """Seconds from the first step by (backend, ranks); a rank has a core, and 4 ranks have 2 nodes."""

    def make(seconds):
        records = []
        for (backend, num_ranks), own in seconds.items():
            for block in range(6):
                record = make_record(
                    target=TARGET,
                    backend=backend,
                    num_ranks=num_ranks,
                    num_nodes=2 if num_ranks > 2 else 1,
                    block=block,
                )
                last = Evaluation(
                    step=100,
                    samples=3200,
                    training_seconds=own,
                    evaluating_seconds=0.0,
                    loss=0.5,
                    metrics={"auc": 0.95},
                )
                solution = Solution(end="reached", set_up_seconds=0.0, num_held_out=500, evaluations=[last])
                records.append(record.model_copy(update={"solution": solution}))
        return measure(records)

    return make


SECONDS = {("none", 1): 100.0, ("ring", 2): 60.0, ("gloo", 2): 70.0, ("ring", 4): 55.0}


def on_front(cells, name):
    return {(cell.row.cell.backend, cell.row.cell.num_ranks) for cell in cells if name in cell.fronts}


def test_a_cell_that_is_slower_and_dearer_is_not_on_the_front(solutions):
    cells = priced(solution_table.FINDING.of(solutions(SECONDS)), [])
    assert on_front(cells, "core_hours") == {("none", 1), ("ring", 2), ("ring", 4)}
    assert on_front(cells, "node_hours") == {("ring", 2), ("ring", 4)}, "1 rank has a whole node"
    assert on_front(cells, "kilojoules") == set()
    (four,) = [cell for cell in cells if cell.row.cell.num_ranks == 4]
    assert four.costs["node_hours"].center == pytest.approx(2 * (55 + LAUNCH) / 3600)
    assert four.costs["core_hours"].center == pytest.approx(4 * (55 + LAUNCH) / 3600)


def test_equals_are_both_on_the_front(solutions):
    cells = priced(solution_table.FINDING.of(solutions({("ring", 2): 60.0, ("gloo", 2): 60.0})), [])
    assert len(front(cells, "core_hours")) == 2


def test_the_sentence_is_about_nodes_only_where_they_differ(solutions):
    cells = priced(solution_table.FINDING.of(solutions(SECONDS)), [])
    assert shown_cost(cells) == "node_hours"
    assert front_text(cells).startswith(
        "Not beaten by any other cell in both time and node-hours: ring on 4 ranks (57.1 s,"
    )
    alike = priced(solution_table.FINDING.of(solutions({("none", 1): 100.0, ("ring", 2): 60.0})), [])
    assert shown_cost(alike) == "core_hours"


def test_energy_counts_where_it_was_read(solutions):
    table = solutions(SECONDS)
    read = [
        SimpleNamespace(
            cell=row.cell, evidence=row.evidence, joules_per_sample=exactly(10.0 / row.cell.num_ranks)
        )
        for row in solution_table.FINDING.of(table)
        if row.cell.num_ranks < 4
    ]
    cells = priced(solution_table.FINDING.of(table), read)
    assert on_front(cells, "kilojoules") == {("ring", 2)}
    assert {
        cell.row.cell.num_ranks: "kilojoules" in cell.costs and cell.costs["kilojoules"].center
        for cell in cells
    } == {
        1: pytest.approx(32.0),
        2: pytest.approx(16.0),
        4: False,
    }


def test_json_page_and_figure_have_it(solutions, tmp_path):
    table = solutions(SECONDS)
    rows = study_json(collect(load_all(), table))["pareto"]
    assert [row["on_front_of_node_hours"] for row in rows].count(True) == 2
    (section,) = [
        section
        for section in page_of(table, collect(load_all(), table)).sections
        if section.name == "time_to_solution"
    ]
    assert "pareto" in {getattr(block, "name", "") for block in section.blocks}
    written = {path.name for path in write_figures(table, tmp_path, only=["pareto", "larger-batches"])}
    stem = "hep_cnn-tiny-torch-weak-fp32"
    assert {name for name in written if name.endswith("csv")} == {
        f"{stem}-pareto.csv",
        f"{stem}-larger-batches.csv",
        f"{stem}-predicted.csv",
    }


def test_larger_batches_are_drawn_for_screens_and_in_print(solutions, tmp_path):
    table = solutions({("ring", 2): 60.0, ("ring", 4): 55.0, ("gloo", 2): 60.0})
    for form in (Form(), Form(width=3.3, backends=("gloo",))):
        written = write_figures(table, tmp_path, only=["larger-batches"], form=form)
        (csv,) = [path for path in written if path.name.endswith("larger-batches.csv")]
        assert "samples_by_gradients" in csv.read_text()
