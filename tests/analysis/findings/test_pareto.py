"""The front of time against cost: what no other cell beats in both, for cells with known times."""

from types import SimpleNamespace

import pytest

from dlscale.analysis.figures.write import write_figures
from dlscale.analysis.findings import solution_table
from dlscale.analysis.findings.pareto import PARETO, front_text, pareto_figure, priced, shown_cost
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.measured import measure
from dlscale.analysis.statistics import Interval
from tests.made_records import TARGET, make_record, solved

LAUNCH = 2.1  # start 1, import 0.1 and connect 1, as the made-up records have them
SECONDS = {("none", 1): 100.0, ("ring", 2): 60.0, ("gloo", 2): 70.0, ("ring", 4): 55.0}


def solutions(seconds=SECONDS):
    """Seconds from the first step by (backend, ranks); a rank has a core, and 4 ranks have 2 nodes."""
    records = []
    for (backend, num_ranks), own in seconds.items():
        for block in range(6):
            record = make_record(
                target=TARGET | {"evaluate_every": 240},
                backend=backend,
                num_ranks=num_ranks,
                num_nodes=2 if num_ranks > 2 else 1,
                block=block,
            )
            last = {"step": 100, "samples": 3200, "seconds": own, "evaluating": 0.0, "auc": 0.95}
            records.append(solved(record, last, set_up_seconds=0.0))
    return measure(records)


def on_front(cells, name):
    return {(cell.row.cell.backend, cell.row.cell.num_ranks) for cell in cells if name in cell.fronts}


def test_a_cell_that_is_slower_and_dearer_is_not_on_the_front():
    study = solutions()
    cells = priced(solution_table.FINDING.of(study), [])
    assert on_front(cells, "core_hours") == {("none", 1), ("ring", 2), ("ring", 4)}
    assert on_front(cells, "node_hours") == {("ring", 2), ("ring", 4)}, "1 rank has a whole node"
    assert on_front(cells, "kilojoules") == set()
    row = next(PARETO.data(cell) for cell in cells if cell.row.cell.num_ranks == 4)
    assert row["node_hours"] == pytest.approx(2 * (55 + LAUNCH) / 3600)
    assert row["core_hours"] == pytest.approx(4 * (55 + LAUNCH) / 3600)
    assert (row["kilojoules"], row["on_front_of_node_hours"]) == (None, True)
    assert front_text(cells).startswith(
        "By medians not beaten by any other cell in both time and node-hours: ring on 4 ranks (57.1 s,"
    )
    (plot,) = pareto_figure(study, study.families[0], SCREEN).panels
    (stairs,) = [guide.points for guide in plot.guides]
    assert [round(x, 1) for x, _ in stairs] == [57.1, 62.1, 62.1]


def test_equals_are_both_on_the_front_and_nodes_count_only_where_they_differ():
    study = solutions({("ring", 2): 60.0, ("gloo", 2): 60.0})
    cells = priced(solution_table.FINDING.of(study), [])
    assert len(on_front(cells, "core_hours")) == 2
    assert shown_cost(cells) == "core_hours"


def test_energy_counts_where_it_was_read():
    rows = solution_table.FINDING.of(solutions())
    exactly = {"low": None, "high": None, "level": 0.95, "method": "made up", "n": 6}
    read = [
        SimpleNamespace(
            cell=row.cell,
            evidence=row.evidence,
            joules_per_sample=Interval(center=10.0 / row.cell.num_ranks, **exactly),
        )
        for row in rows
        if row.cell.num_ranks < 4
    ]
    cells = priced(rows, read)
    assert on_front(cells, "kilojoules") == {("ring", 2)}
    energies = {cell.row.cell.num_ranks: PARETO.data(cell)["kilojoules"] for cell in cells}
    assert energies == {1: pytest.approx(32.0), 2: pytest.approx(16.0), 4: None}


@pytest.mark.usefixtures("no_pictures")
def test_files_for_screens_and_in_print(tmp_path):
    study = solutions({**SECONDS, ("gloo", 4): 60.0})
    for form in (Form(), Form(width=3.3, backends=("gloo",))):
        folder = tmp_path / str(form.width)
        written = write_figures(study, folder, only=["pareto"], form=form)
        tables = {path.name.partition("fp32-")[2] for path in written if path.suffix == ".csv"}
        assert "pareto.csv" in tables
