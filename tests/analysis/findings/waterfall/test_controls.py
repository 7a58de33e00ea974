"""Which controls there are, which are missing, and what is then still said."""

import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.waterfall_parts import waterfalls
from dlscale.analysis.launches import launches_of
from dlscale.analysis.measured import measure

from .conftest import LOSSES, MS, Planted, losses, only


@pytest.mark.parametrize(
    ("controls", "stamps", "names", "notes"),
    [
        (
            {"alone", "synthetic"},
            True,
            ["batch effect", "co-running", "input stall", "stragglers", "exposed communication"],
            [],
        ),
        (
            {"synthetic"},
            True,
            ["batch effect and co-running", "input stall", "stragglers", "exposed communication"],
            ["1 rank at the local batch of 4 ranks was not measured"],
        ),
        (
            {"alone"},
            True,
            ["batch effect", "co-running and input stall", "stragglers", "exposed communication"],
            ["resident data were not measured on 1 rank and on 4 ranks of none in the same blocks"],
        ),
        (
            set(),
            False,
            ["batch effect, co-running and input stall", "stragglers and exposed communication"],
            [
                "1 rank at the local batch of 4 ranks was not measured",
                "resident data were not measured on 1 rank and on 4 ranks of none in the same blocks",
                "steps of none on 4 ranks have no stamps",
            ],
        ),
    ],
)
def test_parts_without_their_control_stand_together(plant, controls, stamps, names, notes):
    truth = Planted(**LOSSES["all in strong scaling"])
    found = only(plant(truth, controls=controls, stamps=stamps))
    assert [part.name for part in found.parts] == names
    assert list(found.notes) == notes
    for part in found.parts:
        assert part.loss.center == pytest.approx(sum(truth.losses[name] for name in part.names), abs=1e-12)


def test_the_batch_alone_without_its_input_leaves_the_input_with_the_co_running(plant):
    truth = Planted(**LOSSES["all in strong scaling"])
    records = [
        one for one in plant(truth) if (one.case.cell.local_batch, one.case.cell.data) != (2, "synthetic")
    ]
    found = only(records)
    assert [part.name for part in found.parts][:2] == ["batch effect", "co-running and input stall"]
    assert found.notes == ("resident data were not measured on 1 rank at the local batch of 4 ranks",)


def test_data_that_are_not_read_have_no_input_stall_and_weak_scaling_no_batch_effect(plant):
    found = only(plant(Planted(reads=False, co_running=1 * MS)))
    assert [part.name for part in found.parts] == ["co-running", "stragglers", "exposed communication"]
    assert found.notes == ()


def test_the_control_of_the_batch_may_come_from_a_weak_scaling_study_in_the_same_blocks(plant, make_record):
    truth = Planted(**LOSSES["all in strong scaling"])
    records = [
        one.model_copy(
            update={
                "case": one.case.model_copy(
                    update={
                        "cell": one.case.cell.model_copy(update={"scaling_mode": "weak", "control": "train"})
                    }
                )
            }
        )
        if (one.case.cell.local_batch, one.case.cell.num_ranks) == (2, 1)
        else one
        for one in plant(truth)
    ]
    assert losses(only(records)) == pytest.approx(truth.losses, abs=1e-12)


def test_blocks_of_other_jobs_make_the_base_case_unpaired(plant):
    truth = Planted(**LOSSES["all"])
    found = only(plant(truth, noise=0.01, base_block=100))
    assert found.by_block == ()
    assert found.notes == ("unpaired with base case (a), none on 1 rank: no common block",)
    methods = {part.name: part.loss.method for part in found.parts}
    assert methods == {
        "co-running": "unpaired t",
        "input stall": "unpaired t",
        "stragglers": "paired t",
        "exposed communication": "paired t",
    }
    narrow = {part.name: part.loss.high - part.loss.low for part in found.parts}
    assert narrow["exposed communication"] < narrow["co-running"] / 3  # the drift is in what is unpaired
    for part in found.parts:
        assert part.loss.low <= truth.losses[part.name] <= part.loss.high


def linked(plant, truth, **options):
    """The base case in a job of its own, and the same training on 2 ranks in that job and in the other one."""
    ring = Planted(num_ranks=2, exposed=0.2 * MS)
    shared = [
        one.model_copy(update={"case": one.case.model_copy(update={"block": one.case.block + shift})})
        for shift in (0, 100)
        for one in plant(ring, **options)
        if one.case.cell.num_ranks == 2
    ]
    return [*plant(truth, base_block=100, **options), *shared]


def test_the_base_case_of_another_job_is_reached_through_a_size_of_both(plant):
    truth = Planted(**LOSSES["all"])
    found = next(one for one in waterfalls(launches_of(linked(plant, truth))) if one.cell.num_ranks == 4)
    assert losses(found) == pytest.approx(truth.losses, abs=1e-12)
    assert found.notes == (
        "no block in common with base case (a), none on 1 rank: chained through ring on 2 ranks, which ran in both "
        "jobs",
    )
    assert {part.name: part.loss.method for part in found.parts} == {
        "co-running": "chained t",
        "input stall": "chained t",
        "stragglers": "paired t",
        "exposed communication": "paired t",
    }
    assert all(part.loss.high - part.loss.low < 1e-9 for part in found.parts)


@pytest.mark.parametrize("seed", range(4))
def test_a_chained_waterfall_has_the_efficiency_of_the_table(plant, seed):
    truth = Planted(**LOSSES["all"])
    records = linked(plant, truth, noise=0.02, seed=seed)
    found = next(one for one in waterfalls(launches_of(records)) if one.cell.num_ranks == 4)
    rows = scaling.FINDING.of(measure(records))
    row = next(one for one in rows if (one.cell.backend, one.cell.num_ranks) == ("ring", 4))
    assert found.efficiency.method == row.efficiency_none.method == "chained t"
    for end in ("center", "low", "high"):
        assert getattr(found.efficiency, end) == pytest.approx(getattr(row.efficiency_none, end))
    assert sum(part.loss.center for part in found.parts) == pytest.approx(found.loss.center, abs=1e-12)


def test_fewer_than_3_blocks_are_insufficient(plant):
    found = only(plant(Planted(**LOSSES["all"]), num_blocks=2))
    assert not found.sufficient
    assert {part.loss.method for part in found.parts} == {"insufficient data"}
    assert {part.loss.low for part in found.parts} == {None}


def test_a_failed_control_costs_its_block_and_says_so(plant):
    truth = Planted(**LOSSES["all"])
    records = [
        one
        for one in plant(truth)
        if not (one.case.cell.control == "synthetic" and one.case.cell.num_ranks == 4 and one.case.block == 2)
    ]
    found = only(records)
    assert {part.loss.n for part in found.parts} == {5}
    assert found.notes == ("1 of 6 blocks left out: a control is missing there",)
    assert losses(found) == pytest.approx(truth.losses, abs=1e-12)


def test_a_block_with_a_pause_of_days_in_it_is_left_out(plant):
    truth = Planted(**LOSSES["all"])
    records = [
        one.model_copy(update={"started_at": "2026-11-25T07:00:00Z"})
        if (one.case.cell.backend, one.case.block) == ("ring", 2)
        else one
        for one in plant(truth)
    ]
    found = only(records)
    assert {part.loss.n for part in found.parts} == {5}
    assert found.notes == (
        "1 of 6 blocks left out: a control is missing there or ran before or after a pause",
    )


def test_a_control_in_too_few_blocks_is_rather_left_out(plant):
    truth = Planted(**LOSSES["all"])
    records = [one for one in plant(truth) if one.case.cell.control == "train" or one.case.block < 2]
    found = only(records)
    assert found.parts[0].names == ("co-running", "input stall")
    assert {part.loss.n for part in found.parts} == {6}


@pytest.mark.parametrize(
    ("without", "reason"),
    [
        (
            lambda cell: (cell.backend, cell.num_ranks) == ("none", 1),
            "no base case (a), none on 1 rank: not measured",
        ),
        (lambda cell: (cell.backend, cell.num_ranks) == ("none", 4), "none on 4 ranks was not measured"),
    ],
)
def test_without_its_controls_there_is_a_reason_instead(plant, without, reason):
    found = only([one for one in plant(Planted()) if not without(one.case.cell)])
    assert (found.parts, found.efficiency, found.reason) == ((), None, reason)


def test_ranks_that_do_not_wait_for_each_other_do_not_suffer_from_late_ones(plant):
    truth = Planted(**LOSSES["all"], backend="grpc_ps")
    records = []
    for one in plant(truth):
        if one.case.cell.backend == "grpc_ps":
            windows = [
                window.model_copy(update={"num_applied": 4 * window.num_steps}) for window in one.windows
            ]
            one = one.model_copy(update={"windows": windows})
        records.append(one)
    found = only(records)
    assert found.parts[-1].name == "stragglers and exposed communication"
    assert found.notes == ("ranks do not wait for each other",)


def test_stamps_that_one_block_lacks_do_not_separate_late_ranks(plant):
    truth = Planted(**LOSSES["late"])
    records = []
    for record in plant(truth):
        if record.case.block == 2:
            windows = [window.model_copy(update={"step_seconds": None}) for window in record.windows]
            record = record.model_copy(update={"windows": windows})
        records.append(record)
    merged = only(records)
    assert merged.parts[-1].names == ("stragglers", "exposed communication")
    assert merged.parts[-1].loss.n == 6
    assert merged.notes == ("steps of none on 4 ranks have no stamps",)


def test_the_latest_good_attempt_counts(plant):
    truth = Planted(**LOSSES["exposed"])
    records = plant(truth)
    wrong = [one for one in records if one.case.cell.backend == "ring"]
    slow = [
        one.model_copy(update={"windows": [w.model_copy(update={"seconds": [9.0] * 4}) for w in one.windows]})
        for one in wrong
    ]
    later = [one.model_copy(update={"attempt": 2}) for one in wrong]
    assert losses(only([*slow, *[r for r in records if r not in wrong], *later])) == pytest.approx(
        truth.losses, abs=1e-12
    )


def test_an_emulated_cluster_may_have_a_measured_base_case(plant):
    records = [
        one.model_copy(update={"evidence": "emulated"}) if one.case.cell.num_ranks > 1 else one
        for one in plant(Planted(**LOSSES["all"]))
    ]
    found = only(records)
    assert found.evidence == "emulated"
    assert found.notes == ("base case (a), none on 1 rank, is measured, not emulated",)
    assert losses(found) == pytest.approx(Planted(**LOSSES["all"]).losses, abs=1e-12)


def test_controls_of_the_same_kind_of_evidence_come_first(plant):
    truth = Planted(**LOSSES["all"])
    emulated = plant(truth, evidence="emulated")
    slower = plant(Planted(compute=2e-3, base_input=1e-3), study="elsewhere")
    measured = [record for record in slower if record.case.cell.backend == "none"]
    for records in ([*measured, *emulated], [*emulated, *measured]):
        found = only(records)
        assert found.evidence == "emulated"
        assert found.notes == ()
        assert losses(found) == pytest.approx(truth.losses, abs=1e-12)


def test_stamps_that_leave_something_out_change_only_how_ranks_differ(plant):
    truth = Planted(**LOSSES["all"])
    records = []
    for one in plant(truth):
        if one.case.cell.num_ranks == 4 and one.case.cell.backend == "none":
            windows = [
                window.model_copy(
                    update={"step_seconds": [[s - 4 * MS for s in rank] for rank in window.step_seconds]}
                )
                if window.step_seconds
                else window
                for window in one.windows
            ]
            one = one.model_copy(update={"windows": windows})
        records.append(one)
    found = only(records)
    assert losses(found) == pytest.approx(truth.losses, abs=1e-12)
    (note,) = found.notes
    assert note.startswith("the stamps of none on 4 ranks add up to 49 % of its windows:")
