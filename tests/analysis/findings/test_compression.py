"""Compressed cells against uncompressed ones, from records with known speeds and qualities."""

import numpy as np
import pytest

from dlscale.analysis.findings.compression import FINDING, has_failed
from dlscale.analysis.load import Study
from tests.made_records import TARGET, make_record, solved

TOPK = {"compression": "topk", "topk_share": 0.02}
PLAIN = {"auc": {10: 0.5, 20: 0.8, 30: 0.95}}
MISSED = {"auc": {10: 0.5, 20: 0.8, 30: 0.85}, "end": "budget"}


def record(options, *, told=None, target=None, block=0, **fields):
    own = {"target": TARGET, "local_batch": 16} if target else {}
    made = make_record(backend="mpi", num_ranks=2, backend_options=options, block=block, **own | fields)
    made = made.model_copy(update={"backend_settings": {"bucket_bytes": "300,100", **(told or {})}})
    if not target:
        return made
    found = [{"step": step, "seconds": step * 0.1, "auc": auc} for step, auc in target["auc"].items()]
    return solved(made, *found, end=target.get("end", "reached"))


def study(*, plain, compressed, options=None, blocks=3):
    records = []
    for block in range(blocks):
        records.append(record(options or {"compression": "none"}, target=plain, block=block))
        records.append(record(TOPK, told={"wire_bytes": 40}, target=compressed, block=block))
    return Study(records)


def compared(study):
    (row,) = FINDING.of(study).to_dict("records")
    return row


@pytest.mark.parametrize("options", [{}, {"compression": "none"}, {"compression": "none", "topk_share": 0.1}])
def test_a_training_that_learns_as_well_passes(options):
    auc = {10: 0.5, 20: 0.796, 30: 0.7, 40: 0.95}
    found = study(plain=PLAIN, compressed={"auc": auc}, options=options)
    row = compared(found)
    assert (row["accuracy_gate"], has_failed(found)) == ("passed", False)
    assert row["quality_change"] == pytest.approx(-0.005), "where neither of them ended"
    assert (row["rate_ratio"], row["samples_ratio"]) == (pytest.approx(1), pytest.approx(4 / 3))
    assert (row["wire_bytes"], row["wire_share"]) == (40, pytest.approx(0.1))
    assert FINDING.sentence(FINDING.of(found)) == (
        f"Accuracy gate passed: {row['name']} on 2 ranks "
        "(the target is reached, at most 1 % worse after as many samples)."
    )


@pytest.mark.parametrize(
    ("compressed", "num_reached", "why"),
    [
        ({"auc": {10: 0.5, 20: 0.78, 30: 0.95}}, 3, "2.50 % worse after as many samples, 1 % is allowed"),
        (MISSED, 0, "3 of 3 trainings missed the target"),
    ],
)
def test_what_is_worse_or_misses_the_target_fails(compressed, num_reached, why):
    found = study(plain=PLAIN, compressed=compressed)
    row = compared(found)
    assert has_failed(found)
    assert (row["accuracy_gate"], row["num_reached"], row["num_trainings"]) == ("failed", num_reached, 3)
    assert np.isnan(row["samples_ratio"]) == (num_reached == 0)
    assert row["why"] == why


def test_where_the_uncompressed_one_misses_nothing_is_judged():
    missed = compared(study(plain=MISSED, compressed=PLAIN))
    assert (missed["accuracy_gate"], missed["why"]) == (
        "not judged",
        "uncompressed trainings missed the target themselves",
    )
    alone = compared(Study([record(TOPK, target=PLAIN)]))
    assert alone["why"] == "the uncompressed training was not measured"
    other = compared(Study([record(TOPK, target=PLAIN), record({}, target=PLAIN, cores_per_rank=2)]))
    assert np.isnan(other["rate_ratio"]), "differs in more"
    early = compared(study(plain=PLAIN, compressed={"auc": {5: 0.95}}))
    assert early["why"] == "no evaluation after as many samples before the end"


def test_a_study_of_throughput_says_that_quality_was_not_measured():
    row = compared(study(plain=None, compressed=None))
    assert row["rate_ratio"] == pytest.approx(1)
    assert row["why"] == (
        "dlscale run time-to-solution --workloads hep_cnn --frameworks torch --backends none,mpi --set "
        "backend_options='mpi.compression=none|topk,mpi.topk_share=0.02' --ranks 2 --preset tiny measures it"
    )


@pytest.mark.parametrize(
    ("told", "sent", "share"),
    [({"wire_bytes": 40}, 40, 0.1), ({"wire_bytes": "40 | 60"}, 50, 0.125), ({}, np.nan, np.nan)],
)
def test_bytes_are_read_as_the_backend_counted_them(told, sent, share):
    row = compared(Study([record(TOPK, told=told)]))
    np.testing.assert_allclose([row["wire_bytes"], row["wire_share"]], [sent, share])


@pytest.mark.parametrize("records", [[], [make_record()], [record(TOPK, failure="no")]])
def test_without_compression_there_is_no_row_and_no_failure(records):
    found = Study(records)
    assert not len(FINDING.of(found))
    assert not has_failed(found)
    assert FINDING.sentence(FINDING.of(found)) == ""
