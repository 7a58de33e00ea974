"""What an efficiency is relative to: 1 rank, the ranks of a node, or the smallest size; everything names it."""

import pytest

from dlscale.analysis.figures.figure import draw
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.efficiency import efficiency_figure
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.step_time import step_time_figure
from dlscale.analysis.findings.throughput import throughput_figure
from dlscale.analysis.measured import measure
from tests.analysis.reading import data_of, row_of
from tests.made_records import make_record, make_study

KEPT = {"none": {4: 1.0, 8: 1.0, 16: 1.0}, "ring": {4: 0.95, 8: 0.9, 16: 0.75}}
DRIFT = tuple(1 + block / 50 for block in range(6))


def study(alone=None, **fields):
    """Records on 4, 8 and 16 ranks, 8 of them per node, and on 1 rank if it keeps `alone` of 100 samples per second."""
    kept = {name: {**({1: alone} if alone else {}), **shares} for name, shares in KEPT.items()}
    return make_study(efficiency=kept, drift=DRIFT, noise=0.0, num_nodes={16: 2}, **fields)


def efficiencies(table, backend="ring"):
    return {
        row.cell.num_ranks: row.efficiency_none and round(row.efficiency_none.center, 6)
        for row in scaling.FINDING.of(table)
        if row.cell.backend == backend
    }


def test_without_1_rank_there_is_none_unless_another_base_is_chosen():
    assert efficiencies(measure(study())) == {4: None, 8: None, 16: None}
    assert efficiencies(measure(study(), base="smallest")) == {4: 0.95, 8: 0.9, 16: 0.75}
    assert efficiencies(measure(study(1.0)))[16] == 0.75


def test_a_node_is_the_most_ranks_on_one():
    table = measure(study(1.25), base="node")
    assert {row.base_ranks for row in scaling.FINDING.of(table)} == {8}
    assert efficiencies(table) == {1: 1.25, 4: 0.95, 8: 0.9, 16: 0.75}
    own = {ranks: row_of(table, backend="ring", num_ranks=ranks).efficiency_backend for ranks in (8, 16)}
    assert own[16].center == pytest.approx(0.75 / 0.9)
    assert own[8].center == 1.0


def test_a_base_that_failed_is_no_base():
    failed = [record for record in study() if record.case.cell.num_ranks != 4]
    failed += [
        make_record(backend="none", num_ranks=4, block=block, failure="died", local_batch=8)
        for block in range(6)
    ]
    table = measure(failed, base="smallest")
    assert efficiencies(table)[16] is None
    assert any(
        "vs 4 ranks: every launch of none on 4 ranks failed" in row.notes for row in scaling.FINDING.of(table)
    )


def test_speed_up_and_rows_are_relative_to_it():
    table = measure(study(), base="smallest")
    (row,) = [row for row in data_of(table)["rows"] if (row["backend"], row["num_ranks"]) == ("ring", 16)]
    assert row["base_ranks"] == 4
    assert row["speed_up"] == pytest.approx(3.0)  # 1200 over 400


def words(figure):
    return " ".join(text.get_text() for text in figure.findobj(lambda part: hasattr(part, "get_text")))


@pytest.mark.parametrize("mode", ["weak", "strong"])
def test_every_figure_names_it(mode):
    table = measure(study(global_batch=128 if mode == "strong" else None), base="smallest")
    (family,) = table.families
    shown = (family, rows_of(scaling.FINDING.of(table), family), table.provenance)
    kept = draw(efficiency_figure(*shown))
    assert "vs 4 ranks without communication" in words(kept)
    assert "T(4)/4" in words(kept)
    rated = draw(throughput_figure(*shown))
    assert "none on 4 ranks, 420" in " ".join(words(rated).split())
    timed = draw(step_time_figure(*shown))
    assert "base case none on 4 ranks" in " ".join(words(timed).split())
    assert ("T(p) / T(4)" in words(timed)) == (mode == "strong")
