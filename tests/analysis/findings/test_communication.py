"""Exchanges of planted latency and bandwidth, and trainings that hide a known share of them."""

import numpy as np
import pytest

from dlscale.analysis.findings.communication import FINDING
from dlscale.analysis.load import Study
from dlscale.analysis.render.figures import figure_of
from tests.analysis.findings.planted import DRIFT, MS, launch, losses
from tests.made_records import make_record

SIZES = (1 << 20, 4 << 20, 4 << 20, 64 << 10)
TAKES = {1 << 20: 0.4 * MS, 4 << 20: 1.5 * MS, 64 << 10: 0.06 * MS}
ALONE = sum(TAKES[size] for size in SIZES)
COMPUTE = 40 * MS


def planted(*, hidden=0.0, num_blocks=6, sizes=SIZES, backends=("ring",), overlap=None):
    """1 and 4 ranks of none, 4 over backends that hide a share of the exchange, and the exchange by itself."""
    for block in range(num_blocks):
        drift = DRIFT[block]
        yield launch(block, COMPUTE * drift)
        yield launch(block, [COMPUTE * drift] * 4, stamps=True)
        for backend in backends:
            step = (COMPUTE + (1 - hidden) * ALONE) * drift
            yield launch(block, [step] * 4, backend=backend, overlap=overlap)
            # The last rank is the slowest; the first looks faster than the exchange is.
            each = drift * np.array([0.7, 0.8, 0.9, 1.0])[:, None] * [TAKES[size] for size in sizes]
            record = launch(block, each.sum(axis=1), buckets=each, control="exchange", backend=backend)
            yield record.model_copy(update={"bucket_bytes": list(sizes)})


def found(records):
    frame = FINDING.of(Study(records))
    return frame[frame["bucket_bytes"].isna()], frame[frame["bucket_bytes"].notna()]


def test_sizes_of_buckets_have_their_times_and_bandwidths():
    (step,), sizes = (rows.to_dict("records") for rows in found(planted(num_blocks=1)))
    assert [(row["bucket_bytes"], row["num_buckets"]) for row in sizes] == [
        (64 << 10, 1),
        (1 << 20, 1),
        (4 << 20, 2),
    ]
    for row in sizes:
        seconds = TAKES[row["bucket_bytes"]]
        assert row["exchange_seconds"] == pytest.approx(seconds)
        assert row["algbw_gb_per_second"] == pytest.approx(row["bucket_bytes"] / seconds / 1e9)
        assert row["busbw_gb_per_second"] == pytest.approx(1.5 * row["algbw_gb_per_second"])
    assert step["exchange_seconds"] == pytest.approx(ALONE)
    assert step["step_bytes"] == sum(SIZES)
    assert step["busbw_gb_per_second"] == pytest.approx(1.5 * sum(SIZES) / ALONE / 1e9)


@pytest.mark.parametrize("hidden", [-0.5, 0.0, 0.4, 1.0])
def test_the_overlapped_share_is_found_in_drifting_blocks(hidden):
    (row,) = found(planted(hidden=hidden))[0].to_dict("records")
    for name in ("hidden", "hidden_of_prediction"):
        assert row[name] == pytest.approx(hidden, abs=1e-9)
        assert row[f"{name}_high"] - row[f"{name}_low"] == pytest.approx(0, abs=1e-9)
    assert row["measured_over_sum"] == pytest.approx((COMPUTE + (1 - hidden) * ALONE) / (COMPUTE + ALONE))
    assert row["exposed_communication"] == pytest.approx((1 - hidden) * ALONE / COMPUTE)
    typical = np.exp(np.log(DRIFT[:6]).mean())
    assert row["predicted_low_seconds"] == pytest.approx(COMPUTE * typical)
    assert row["predicted_high_seconds"] == pytest.approx((COMPUTE + ALONE) * typical)


def test_an_exchange_in_line_hides_nothing_and_its_step_is_the_sum():
    rows, _ = found(planted(overlap=False))
    (row,) = rows.to_dict("records")
    assert row["exchange"] == "in line"
    assert np.isnan(row["hidden"])
    assert row["predicted_low_seconds"] == row["predicted_high_seconds"]
    assert FINDING.sentence(rows).endswith("; it is not overlapped.")


def test_launches_that_cut_other_buckets_are_left_out():
    other = list(planted(sizes=SIZES[:1]))
    records = [record for record in planted() if record.case.block < 4 or record.case.cell.control == "train"]
    records += [
        record for record in other if record.case.block >= 4 and record.case.cell.control == "exchange"
    ]
    (row,) = found(records)[0].to_dict("records")
    assert row["exchange_seconds_n"] == 4
    assert row["step_bytes"] == sum(SIZES)


def test_backends_have_the_verdicts_of_their_comparisons():
    rows, sizes = found(losses(backends=("ring", "gloo"), num_blocks=7))
    verdicts = dict(zip(rows["backend"], rows["verdict"], strict=True))
    assert "reference" in verdicts.values()
    assert {*verdicts.values()} & {"faster", "slower"}
    assert sizes.empty
    assert FINDING.sentence(rows).startswith("Communication adds to a step on 4 ranks: gloo ")


@pytest.mark.parametrize("drop", ["none", "exchange"])
def test_what_was_not_measured_is_missing(drop):
    records = [
        record
        for record in planted()
        if record.case.cell.num_ranks == 1 or drop not in (record.case.cell.backend, record.case.cell.control)
    ]
    (row,) = found(records)[0].to_dict("records")
    assert np.isnan(row["predicted_high_seconds"])
    assert np.isnan(row["hidden"])
    assert np.isnan(row["exposed_communication"]) == (drop == "none")
    assert ("no block in common" in row["notes"]) == (drop == "none")


def test_buckets_are_drawn_by_size():
    frame = FINDING.of(Study(planted(backends=("ring", "gloo"))))
    (drawing,) = FINDING.drawings
    (axes,) = figure_of(drawing, drawing.rows(frame)).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["gloo", "ring"]


@pytest.mark.parametrize(
    "records", [[], [make_record()], [make_record(failure="gone", backend="ring", num_ranks=2)]]
)
def test_nothing_in_nothing_out(records):
    frame = FINDING.of(Study(records))
    assert frame.empty
    assert FINDING.sentence(frame) == ""
    assert FINDING.exported(frame).empty
