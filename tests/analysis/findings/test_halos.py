"""What ranks that share samples exchange: of the rank that waits for nobody, per step, beside what a rank holds."""

import pytest

from dlscale.analysis.findings import halos
from dlscale.analysis.measured import measure
from tests.analysis.reading import data_of
from tests.made_records import make_record

STRONG = {"scaling_mode": "strong", "global_batch": 1, "backend": "ring"}
TOP, BOTTOM = ["exchange 0 512", "sum 16"] * 3, ["exchange 512 0", "sum 16"] * 3


def study_of(**changes):
    records = []
    for block in range(6):
        records.append(make_record(block=block, local_batch=1, samples_per_second=10.0, **STRONG))
        record = make_record(
            block=block, local_batch=1, num_ranks=2, split=2, samples_per_second=16.0, **STRONG
        )
        seconds = {
            "halo_seconds": [0.004, 0.002],
            "halo_bytes": [1584.0, 1600.0],
            "halo_calls": [TOP, BOTTOM],
        }
        records.append(record.model_copy(update=seconds | changes))
        alone = record.case.cell.model_copy(update={"control": "halos"})
        control = record.model_copy(update={"case": record.case.model_copy(update={"cell": alone})})
        records.append(control)
    return measure(records)


def test_the_cost_is_that_of_the_rank_that_spends_least():
    (row,) = data_of(study_of())["halos"]
    assert (row["num_exchanges"], row["num_sums"], row["num_gathers"]) == (3, 3, 0)
    assert (row["halo_bytes"], row["halo_seconds"], row["halo_seconds_of_the_last"]) == (1600.0, 0.002, 0.004)
    assert row["halo_seconds_alone"] == pytest.approx(1 / 16)
    assert row["halo_share"] == pytest.approx(0.002 * 16.0)
    assert row["calls"] == "; ".join(TOP) or row["calls"] == TOP


def test_the_screen_says_what_they_take_and_nothing_without_them():
    (sentence,) = halos.FINDING.screen(study_of())
    assert sentence.text.startswith(
        "Halos on 2 ranks, 1.56 KiB in 6 calls per step and rank, take of a step: ring"
    )
    assert "3.2 %" in sentence.text
    assert not halos.FINDING.of(study_of(halo_seconds=[], halo_bytes=[], halo_calls=[]))
