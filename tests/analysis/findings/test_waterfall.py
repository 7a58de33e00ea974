"""The waterfall finds what was planted, merges what no control separates, and says what it cannot tell."""

import numpy as np
import pytest

from dlscale.analysis.findings.waterfall import FINDING, waiting_shares
from dlscale.analysis.load import Study
from dlscale.analysis.render.figures import figure_of
from tests.analysis.findings.planted import MS, launch, losses
from tests.made_records import make_record

WEAK = {"sharing the machine": 0.8, "input stall": 0.6, "stragglers": 1.2, "communication and waiting": 1.5}


def found(records):
    return FINDING.of(Study(records))


def parts(frame, column="loss"):
    return dict(zip(frame["part"], frame[column], strict=True))


def test_planted_losses_are_found_in_every_block():
    frame = found(losses())
    step = 8 + 0.8 + sum(WEAK.values())
    assert parts(frame) == pytest.approx({name: loss / step for name, loss in WEAK.items()})
    assert frame["efficiency"].tolist() == pytest.approx([8.8 / step] * 4)
    assert frame["loss_low"].tolist() == pytest.approx(frame["loss"].tolist())  # drift cancels
    assert parts(frame, "verdict")["communication and waiting"] == "largest"
    assert (frame["loss_n"] == 6).all()
    seconds = frame["measured_seconds"] - frame["ideal_seconds"]
    assert frame["seconds"].sum() == pytest.approx(seconds.iloc[0])


def test_strong_scaling_has_a_batch_effect():
    frame = found(losses(scaling_mode="strong", batch=0.4 * MS))
    assert parts(frame) == pytest.approx(
        {name: loss / 13.3 for name, loss in {"batch effect": 0.4, **WEAK}.items()}
    )


@pytest.mark.parametrize(
    ("controls", "scaling_mode", "merged"),
    [
        ((), "weak", "sharing the machine + input stall"),
        ((), "strong", "batch effect + sharing the machine + input stall"),
        (("alone",), "strong", "sharing the machine + input stall"),
        (("synthetic",), "strong", "batch effect + sharing the machine"),
    ],
)
def test_parts_without_a_control_are_merged_and_say_so(controls, scaling_mode, merged):
    frame = found(losses(controls=controls, scaling_mode=scaling_mode))
    assert merged in set(frame["part"])
    assert frame["notes"].str.contains("not separated without").all()
    assert frame["loss"].sum() == pytest.approx(1 - frame["efficiency"].iloc[0])


def test_ranks_that_do_not_step_together_have_no_stragglers():
    records = [
        launch(one.case.block, one.counted.seconds[0] / 4, applied=16, backend="ring")
        if one.case.cell.backend == "ring"
        else one
        for one in losses()
    ]
    assert "stragglers + communication and waiting" in set(found(records)["part"])


def test_resident_data_have_no_input_stall():
    frame = found(losses(data="synthetic", base_input=0, stall=0, controls=()))
    assert set(frame["part"]) == {*WEAK} - {"input stall"}


@pytest.mark.parametrize(("fetching", "stall"), [(0.3 * MS, 0.3), (2 * MS, 0.6), (0.0001 * MS, 0.0001)])
def test_nobody_waits_longer_for_samples_than_fetching_takes(fetching, stall):
    shares = parts(found(losses(fetching=fetching)))
    assert shares["input stall"] * 12.9 == pytest.approx(stall)
    assert shares["sharing the machine"] * 12.9 == pytest.approx(0.8 + 0.6 - stall)


def test_gathers_of_sharded_weights_are_a_part():
    records = [
        one.model_copy(update={"gather_seconds": [5 * MS, 1 * MS, 5 * MS, 5 * MS]})
        if one.case.cell.backend == "ring"
        else one
        for one in losses(num_blocks=3)
    ]
    frame = found(records)
    assert "gathering weights" in set(frame["part"])
    assert frame["loss"].sum() == pytest.approx(1 - frame["efficiency"].iloc[0])


def test_a_base_case_of_another_job_is_unpaired_or_chained():
    apart = list(losses(base_block=10))
    frame = found(apart)
    assert (frame["efficiency_method"] == "unpaired t").all()
    assert frame["notes"].str.contains("unpaired").all()
    drift = np.log([1.0, 0.82, 1.1, 0.95, 1.2, 0.9])
    links = [launch(block, [9 * MS * np.exp(drift[block % 10])] * 2) for block in (0, 1, 2, 10, 11, 12)]
    chained = found([*apart, *links])
    assert (chained["efficiency_method"] == "chained t").all()
    step = 8.8 + sum(WEAK.values())
    assert parts(chained) == pytest.approx({name: loss / step for name, loss in WEAK.items()})
    assert waiting_shares(Study(apart)).notna().all(axis=None)  # measured and latest are near


def test_equal_losses_are_not_separable_and_the_sentence_says_it():
    frame = found(losses(noise=0.004, waiting=0.85 * MS, delays=(0.1 * MS, -0.1 * MS, 0, 0)))
    verdicts = parts(frame, "verdict")
    assert verdicts["communication and waiting"] == verdicts["sharing the machine"] == "not separable"
    assert "not separable from" in FINDING.sentence(frame)


def test_two_launches_are_too_few_to_tell():
    frame = found(losses(num_blocks=2, backends=("ring", "gloo")))
    assert FINDING.sentence(frame) == "Largest loss: too few launches to tell."
    assert (frame["verdict"] == "").all()


def test_several_backends_have_a_line_each():
    lines = FINDING.sentence(found(losses(backends=("ring", "gloo")))).splitlines()
    assert lines[0] == "Largest loss on 4 ranks, of the ideal speed:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["gloo", "ring"]


def test_a_busy_machine_claims_nothing():
    records = list(losses())
    busy = [
        one.model_copy(
            update={"windows": one.windows.model_copy(update={"foreign_cpu": np.full(len(one.windows), 0.5)})}
        )
        for one in records
    ]
    assert FINDING.sentence(found(records))
    assert FINDING.sentence(found(busy)) == ""


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([make_record(backend="ring", num_ranks=2)], "none on 2 ranks was not measured"),
        (
            [make_record(backend="ring", num_ranks=2), make_record(num_ranks=2)],
            "none on 1 rank was not measured",
        ),
        (
            [make_record(), make_record(backend="ring", num_ranks=2), make_record(num_ranks=2, block=1)],
            "no block in common with none on 2 ranks",
        ),
    ],
)
def test_without_its_controls_a_training_has_a_reason(records, reason):
    frame = found(records)
    assert frame["reason"].tolist() == [reason]
    assert FINDING.sentence(frame) == f"Largest loss: not known: {reason}."
    assert FINDING.drawings[0].rows(frame).empty


@pytest.mark.parametrize("records", [[], [make_record()], [make_record(failure="gone")]])
def test_nothing_in_nothing_out(records):
    frame = found(records)
    assert frame.empty
    assert FINDING.sentence(frame) == ""
    assert FINDING.exported(frame).empty


def test_the_drawing_ends_at_the_efficiency():
    frame = found(losses(backends=("ring", "gloo"), sharing=-0.5 * MS))
    (drawing,) = FINDING.drawings
    (axes,) = figure_of(drawing, drawing.rows(frame)).axes
    kept = 100 * frame.groupby("cell", sort=False)["efficiency"].first()
    left = [bar.get_x() for bar in axes.patches if bar.get_alpha()]
    assert left == pytest.approx(kept.tolist())
    assert axes.get_xlim()[1] > 100  # the gain
