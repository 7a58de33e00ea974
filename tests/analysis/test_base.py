"""What an efficiency is relative to: 1 rank, the ranks of a node, or the smallest size; everything names it."""

import pytest

from dlscale.analysis.figures.figure import draw
from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all, scaling
from dlscale.analysis.findings.efficiency import efficiency_figure
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.step_time import step_time_figure
from dlscale.analysis.findings.throughput import throughput_figure
from dlscale.analysis.measured import measure
from dlscale.analysis.proposal import section
from dlscale.analysis.proposal.sizes import curves
from dlscale.analysis.render.data import study_json

RATES = {"none": {4: 400.0, 8: 800.0, 16: 1600.0}, "ring": {4: 380.0, 8: 720.0, 16: 1200.0}}


@pytest.fixture
def study(make_record):
    """Records on 4, 8 and 16 ranks, 8 of them per node; as many more as `alone` has."""

    def make(alone=None, **fields):
        rates = {backend: {**(alone or {}), **by_ranks} for backend, by_ranks in RATES.items()}
        return [
            make_record(
                backend=backend,
                num_ranks=ranks,
                block=block,
                samples_per_second=rate * (1 + block / 50),
                num_nodes=max(1, ranks // 8),
                local_batch=32 // ranks * 4 if fields.get("scaling_mode") == "strong" else 8,
                **fields,
            )
            for block in range(6)
            for backend, by_ranks in rates.items()
            for ranks, rate in by_ranks.items()
        ]

    return make


def efficiencies(table, backend="ring"):
    return {
        row.cell.num_ranks: row.efficiency_none and round(row.efficiency_none.center, 6)
        for row in scaling.FINDING.of(table)
        if row.cell.backend == backend
    }


def test_without_1_rank_there_is_none_unless_another_base_is_chosen(study):
    assert efficiencies(measure(study())) == {4: None, 8: None, 16: None}
    assert efficiencies(measure(study(), base="smallest")) == {4: 0.95, 8: 0.9, 16: 0.75}
    assert efficiencies(measure(study({1: 100.0})))[16] == 0.75


def test_a_node_is_the_most_ranks_on_one(study):
    table = measure(study({1: 125.0}), base="node")
    assert {row.base_ranks for row in scaling.FINDING.of(table)} == {8}
    assert efficiencies(table) == {1: 1.25, 4: 0.95, 8: 0.9, 16: 0.75}
    own = {
        row.cell.num_ranks: row.efficiency_backend
        for row in scaling.FINDING.of(table)
        if row.cell.backend == "ring"
    }
    assert own[16].center == pytest.approx(1200 / 16 / (720 / 8))
    assert own[8].center == 1.0


def test_a_base_that_failed_is_no_base(make_record, study):
    failed = [record for record in study() if record.case.cell.num_ranks != 4]
    failed += [
        make_record(backend="none", num_ranks=4, block=block, failure="died", local_batch=8)
        for block in range(6)
    ]
    table = measure(failed, base="smallest")
    assert efficiencies(table)[16] is None
    assert any(
        "no base case (a), none on 4 ranks: every launch failed" in row.notes
        for row in scaling.FINDING.of(table)
    )


def test_speed_up_and_rows_are_relative_to_it(study):
    table = measure(study(), base="smallest")
    (row,) = [
        row
        for row in study_json(collect(load_all(), table))["rows"]
        if (row["backend"], row["num_ranks"]) == ("ring", 16)
    ]
    assert row["base_ranks"] == 4
    assert row["speed_up"] == pytest.approx(3.0)  # 1200 over 400
    assert all(not row.limits for row in scaling.FINDING.of(table)), "bounds are relative to 1 rank"


def words(figure):
    return " ".join(text.get_text() for text in figure.findobj(lambda part: hasattr(part, "get_text")))


@pytest.mark.parametrize("mode", ["weak", "strong"])
def test_every_figure_names_it(study, mode):
    table = measure(study(scaling_mode=mode), base="smallest")
    (family,) = table.families
    shown = (family, rows_of(scaling.FINDING.of(table), family), table.provenance)
    kept = draw(efficiency_figure(*shown))
    assert "(a) base case: 4 ranks, no communication layer" in words(kept)
    assert "T(4)/4" in words(kept)
    rated = draw(throughput_figure(*shown))
    assert "none on 4 ranks, 420" in " ".join(words(rated).split())
    timed = draw(step_time_figure(*shown))
    assert "base case none on 4 ranks" in " ".join(words(timed).split())
    assert ("T(p) / T(4)" in words(timed)) == (mode == "strong")


def test_a_proposal_names_it(study):
    (curve,) = curves(measure(study(), base="smallest"), threshold=0.8)
    said = section.result_sentence(curve)
    assert "a scaled speed-up of 3.00" in said
    assert "relative to 4 ranks without a communication layer, which alone does 420" in said
