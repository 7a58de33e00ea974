"""One sentence on each backend: its largest number of ranks, with what it is relative to."""

import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import efficiency_summary
from dlscale.analysis.measured import measure


def rows_of(records, backend):
    return [row for row in scaling.FINDING.of(measure(records)) if row.cell.backend == backend]


def test_the_largest_number_of_ranks_with_a_number_counts(make_study, make_record):
    efficiency = {"none": (1.0, 1.0, 0.9), "ring": (1.0, 0.9, 0.8)}
    records = make_study(efficiency=efficiency, rank_counts=(1, 2, 4), noise=0.0)
    records.append(make_record(backend="ring", num_ranks=8, failure="died"))
    assert efficiency_summary(rows_of(records, "ring")).startswith(
        "ring: scaling efficiency 80.0 % [80.0, 80.0] at 4 ranks"
    )
    assert efficiency_summary(rows_of(records, "ring")).endswith(
        " (80.0 % [80.0, 80.0] versus its own 1 rank)."
    )
    assert efficiency_summary(rows_of(records, "none")).startswith(
        "none: efficiency 90.0 % [90.0, 90.0] at 4 ranks without"
    )


def test_controls_and_one_rank_say_nothing_of_scaling(make_record):
    records = [
        make_record(backend="none", num_ranks=1),
        make_record(backend="none", num_ranks=4, control="synthetic", data="x:0"),
    ]
    assert efficiency_summary(rows_of(records, "none")) == ""


@pytest.mark.parametrize(("evidence", "name"), [("measured", "ring: "), ("emulated", "ring (emulated): ")])
def test_other_evidence_is_named(make_record, evidence, name):
    records = [make_record(backend="ring", num_ranks=2, evidence=evidence)]
    assert (
        efficiency_summary(rows_of(records, "ring"))
        == f"{name}100 samples/s on 2 ranks; no base case, so no efficiency."
    )


def test_without_any_number_it_counts_launches(make_record):
    records = [make_record(backend="ring", num_ranks=2, block=block, failure="died") for block in range(3)]
    assert (
        efficiency_summary(rows_of(records, "ring"))
        == "ring: no number on more than 1 rank (0 of 3 launches)."
    )
