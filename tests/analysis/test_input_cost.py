import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.input_cost import input_cost
from dlscale.analysis.findings.scaling import scaling_row
from dlscale.analysis.measured import measure
from tests.analysis.reading import row_of
from tests.made_records import make_record

DRIFT = (1.0, 0.82, 1.1, 0.95, 1.2, 0.9)


def launches(*, num_ranks=1, synthetic=1.25, loader=20.0, num_blocks=6, **fields):
    """Training at 100 samples per second with controls so many times as fast, in drifting blocks."""
    return [
        make_record(
            num_ranks=num_ranks,
            block=block,
            control=control,
            samples_per_second=100 * factor * DRIFT[block],
            **fields,
        )
        for block in range(num_blocks)
        for control, factor in (("train", 1.0), ("synthetic", synthetic), ("loader", loader))
        if factor
    ]


def training(records):
    return row_of(measure(records), control="train")


def test_the_stall_and_what_resident_tensors_save_are_shares_of_a_step():
    records = launches() + launches(num_ranks=2, loader=10.0, synthetic=0.8)
    rows = scaling.FINDING.of(measure(records))
    one, two = (row for row in rows if row.cell.control == "train")
    # The drift is common to a launch's controls and cancels.
    stall = one.input_stall
    assert (stall.center, stall.low, stall.high) == pytest.approx((1 / 20,) * 3)
    assert (stall.method, stall.n) == ("paired t", 6)
    assert (one.input_loss.center, one.input_loss.high) == pytest.approx((0.2, 0.2))
    assert (two.input_stall.center, two.input_loss.center) == pytest.approx((0.1, -0.25))
    assert {(row.input_stall, row.input_loss) for row in rows if row.cell.control != "train"} == {
        (None, None)
    }
    assert scaling_row(one)["input_stall_low"] == stall.low


@pytest.mark.parametrize(
    "different",
    [
        {"evidence": "emulated"},
        {"failure": "hung"},
        {"backend": "ring"},
        {"compiled": True},
        {"framework": "tensorflow"},
        {"system": "other"},
        {"environment": "openmpi"},
        {"local_batch": 16},
        {"data": "events.h5:0123456789ab"},
    ],
)
def test_controls_of_another_training_say_nothing(different):
    records = [make_record(block=block) for block in range(6)]
    records += [
        make_record(block=block, control="loader", samples_per_second=900, **different) for block in range(6)
    ]
    assert training(records).input_stall is None


def test_without_a_control_that_gave_a_number_there_is_no_stall():
    records = launches(loader=0, synthetic=0)
    records += [make_record(block=block, control="loader", failure="hung") for block in range(6)]
    row = training(records)
    assert (row.input_stall, row.input_loss, input_cost(row)) == (None, None, "")
    assert scaling_row(row)["input_stall"] is None
