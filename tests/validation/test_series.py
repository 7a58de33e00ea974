"""Rows of series that stand beside published figures, from records with known times and errors."""

import pytest

from dlscale.analysis.measured import measure
from tests.made_records import TARGET, make_record, solved
from tests.validation.series import large_batches, validated


def test_the_error_is_that_of_the_evaluation_nearest_to_the_limit_of_samples():
    warm_up = {"schedule": {"first_rate": 1e-3, "warm_up_samples": 320}}
    target = TARGET | {"metric": "top1", "max_samples": 1000}

    def training(block, last, **fields):
        record = make_record(backend="gloo", local_batch=16, block=block, **fields)
        found = solved(record, *({"step": step, "seconds": step, "auc": None} for step in (31, last)))
        metrics = ({"top1": 0.5 + block / 100}, {"top1": 0.25})
        for evaluation, its in zip(found.solution.evaluations, metrics, strict=True):
            evaluation.metrics.update(its)
        return found

    records = [training(block, 62, target=target) for block in range(3)]
    records += [training(block, 63, num_ranks=2, target=target | warm_up) for block in range(3)]
    alone, both = large_batches(measure(records))
    assert [alone["series"], alone["x"], alone["y"]] == ["baseline", 16, 75.0]
    assert [both["series"], both["x"], both["y"]] == ["gradual warm-up", 32, 49.0]
    assert both["values"] == [50.0, 49.0, 48.0]


def test_a_speed_up_with_validation_is_of_both_times_together():
    def training(block, *, num_ranks, seconds, evaluating):
        record = make_record(backend="mpi_ps", num_ranks=num_ranks, block=block, target=TARGET)
        noise = 1 + block / 10  # of a block
        last = {"step": 10, "seconds": seconds * noise, "evaluating": evaluating * noise, "auc": 0.9}
        return solved(record, last)

    records = [training(block, num_ranks=1, seconds=8.0, evaluating=4.0) for block in range(3)]
    records += [training(block, num_ranks=2, seconds=4.0, evaluating=4.0) for block in range(3)]
    rows = {(row["x"], row["quantity"], row["panel"]): row for row in validated(measure(records))}
    found = rows[2, "speed_up", "LSTM, time with validation"]
    assert found["series"] == "validation on all workers"
    assert (found["low"], found["y"], found["high"]) == (pytest.approx(1.5),) * 3
    assert rows[2, "time_to_solution", "validation"]["y"] == pytest.approx(4.4)
