"""Which controls there are, which are missing, and what is then still said."""

import pytest

from dlscale.analysis.findings.waterfall import headline
from dlscale.analysis.findings.waterfall_levels import without_communication
from dlscale.analysis.findings.waterfall_parts import waterfalls_of
from dlscale.analysis.launches import launches_of
from dlscale.analysis.measured import measure
from tests.analysis.reading import row_of
from tests.made_records import make_record, rows_of, windows_of

from .conftest import LOSSES, MS, Planted, losses, only, plant

ALL, STRONG = Planted(**LOSSES["all"]), Planted(**LOSSES["all in strong scaling"])
NO_ALONE = "1 rank at the local batch of 4 ranks was not measured"
NO_RESIDENT = "resident data were not measured on 1 rank and on 4 ranks of none in the same blocks"


@pytest.mark.parametrize(
    ("controls", "stamps", "names", "notes"),
    [
        (
            {"alone", "synthetic"},
            True,
            ["batch effect", "sharing the machine", "input stall", "stragglers", "communication and waiting"],
            [],
        ),
        (
            {"synthetic"},
            True,
            ["batch effect + sharing the machine", "input stall", "stragglers", "communication and waiting"],
            [NO_ALONE],
        ),
        (
            {"alone"},
            True,
            ["batch effect", "sharing the machine + input stall", "stragglers", "communication and waiting"],
            [NO_RESIDENT],
        ),
        (
            set(),
            False,
            ["batch effect + sharing the machine + input stall", "stragglers + communication and waiting"],
            [NO_ALONE, NO_RESIDENT, "steps of none on 4 ranks have no stamps"],
        ),
    ],
)
def test_parts_without_their_control_stand_together(controls, stamps, names, notes):
    found = only(plant(STRONG, controls=controls, stamps=stamps))
    assert [part.name for part in found.parts] == names
    assert list(found.notes) == notes
    for part in found.parts:
        assert part.loss.center == pytest.approx(sum(STRONG.losses[name] for name in part.names), abs=1e-12)


def changed(records, update, which):
    """The records with those of `which` cells and blocks changed, or without them where `update` is None."""
    found = []
    for one in records:
        if not which(one.case.cell, one.case.block):
            found.append(one)
        elif update:
            found.append(one.model_copy(update=update(one)))
    return found


def of_cell(**fields):
    return lambda one: {"case": one.case.model_copy(update={"cell": one.case.cell.model_copy(update=fields)})}


def of_windows(**fields):
    return lambda one: {"windows": windows_of([window._replace(**fields) for window in rows_of(one.windows)])}


def shorter_stamps(one):
    """The stamps leave 4 ms of each step out."""
    windows = [
        window._replace(step_seconds=[[s - 4 * MS for s in rank] for rank in window.step_seconds])
        if window.step_seconds
        else window
        for window in rows_of(one.windows)
    ]
    return {"windows": windows_of(windows)}


CASES = {
    # The control of the batch may come from a weak-scaling study in the same blocks.
    "weak": (
        STRONG,
        of_cell(scaling_mode="weak", control="train"),
        lambda cell, _: (cell.local_batch, cell.num_ranks) == (2, 1),
        (),
        6,
    ),
    "a failed control": (
        ALL,
        None,
        lambda cell, block: (cell.control, cell.num_ranks, block) == ("synthetic", 4, 2),
        ("1 of 6 blocks left out: a control is missing there",),
        5,
    ),
    "a pause of days": (
        ALL,
        lambda _: {"started_at": "2026-11-25T07:00:00Z"},
        lambda cell, block: (cell.backend, block) == ("ring", 2),
        ("1 of 6 blocks left out: a control is missing there or ran before or after a pause",),
        5,
    ),
    "emulated": (
        ALL,
        lambda _: {"evidence": "emulated"},
        lambda cell, _: cell.num_ranks > 1,
        ("vs 1 rank: none on 1 rank is measured, not emulated",),
        6,
    ),
    "stamps": (
        ALL,
        shorter_stamps,
        lambda cell, _: (cell.num_ranks, cell.backend) == (4, "none"),
        (
            "the stamps of none on 4 ranks add up to 49 % of its windows: the length of steps is taken from the "
            "windows, only how much ranks differ from the stamps",
        ),
        6,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_all_losses_are_found_and_what_is_unusual_is_noted(case):
    truth, update, which, notes, num_blocks = CASES[case]
    found = only(changed(plant(truth), update, which))
    assert losses(found) == pytest.approx(truth.losses, abs=1e-12)
    assert {part.loss.n for part in found.parts} == {num_blocks}
    assert found.notes == notes


MERGED = {
    "no input of the batch alone": (
        STRONG,
        None,
        lambda cell, _: (cell.local_batch, cell.data) == (2, "synthetic"),
        ("sharing the machine", "input stall"),
        ("resident data were not measured on 1 rank at the local batch of 4 ranks",),
    ),
    "a control in too few blocks": (
        ALL,
        None,
        lambda cell, block: cell.control != "train" and block >= 2,
        ("sharing the machine", "input stall"),
        (NO_RESIDENT,),
    ),
    "ranks that do not wait for each other": (
        ALL,
        of_windows(num_applied=16),
        lambda cell, _: cell.backend == "ring",
        ("stragglers", "communication and waiting"),
        ("ranks do not wait for each other",),
    ),
    "stamps that one block lacks": (
        Planted(**LOSSES["late"]),
        of_windows(step_seconds=None),
        lambda _, block: block == 2,
        ("stragglers", "communication and waiting"),
        ("steps of none on 4 ranks have no stamps",),
    ),
}


@pytest.mark.parametrize("case", MERGED)
def test_parts_that_are_not_separated_are_merged_and_never_guessed(case):
    truth, update, which, names, notes = MERGED[case]
    found = only(changed(plant(truth), update, which))
    assert names in [part.names for part in found.parts]
    assert found.notes == notes
    assert {part.loss.n for part in found.parts} == {6}


def test_data_that_are_not_read_have_no_input_stall_and_weak_scaling_no_batch_effect():
    found = only(plant(Planted(reads=False, co_running=1 * MS)))
    assert [part.name for part in found.parts] == [
        "sharing the machine",
        "stragglers",
        "communication and waiting",
    ]
    assert found.notes == ()


def test_blocks_of_other_jobs_make_the_base_case_unpaired():
    found = only(plant(ALL, noise=0.01, base_block=100))
    assert found.by_block == ()
    assert found.notes == ("vs 1 rank: no block in common with none on 1 rank, so unpaired",)
    assert " ranks, unpaired; largest loss: " in headline(found)
    unpaired = [part.name for part in found.parts if part.loss.method.startswith("unpaired t")]
    assert unpaired == ["sharing the machine", "input stall"]
    narrow = {part.name: part.loss.high - part.loss.low for part in found.parts}
    assert (
        narrow["communication and waiting"] < narrow["sharing the machine"] / 3
    )  # the drift is in what is unpaired
    for part in found.parts:
        assert part.loss.low <= ALL.losses[part.name] <= part.loss.high


def linked(truth, *sizes, **options):
    """The base case in a job of its own, which trainings on other numbers of ranks link, each in a job and the next."""
    shared = [
        one.model_copy(update={"case": one.case.model_copy(update={"block": one.case.block + 100 * job})})
        for number, num_ranks in enumerate(sizes)
        for job in (number, number + 1)
        for one in plant(Planted(num_ranks=num_ranks, exposed=0.2 * MS), **options)
        if one.case.cell.num_ranks == num_ranks
    ]
    return [*plant(truth, base_block=100 * len(sizes), **options), *shared]


def on_4_ranks(records):
    return next(one for one in waterfalls_of(launches_of(records)) if one.cell.num_ranks == 4)


@pytest.mark.parametrize(
    ("sizes", "names"), [((2,), "ring on 2 ranks"), ((2, 8), "ring on 2 ranks and ring on 8 ranks")]
)
def test_the_base_case_of_another_job_is_reached_through_sizes_of_both(sizes, names):
    found = on_4_ranks(linked(ALL, *sizes))
    assert losses(found) == pytest.approx(ALL.losses, abs=1e-12)
    (note,) = found.notes
    assert note.endswith(f"; chained through {names}, which ran in both jobs")
    assert [part.loss.method for part in found.parts] == ["chained t"] * 2 + ["paired t"] * 2
    assert all(part.loss.high - part.loss.low < 1e-9 for part in found.parts)


@pytest.mark.parametrize("seed", range(4))
def test_a_chained_waterfall_has_the_efficiency_of_the_table(seed):
    records = linked(ALL, 2, noise=0.02, seed=seed)
    found = on_4_ranks(records)
    row = row_of(measure(records), backend="ring", num_ranks=4)
    assert found.efficiency.method == row.efficiency_none.method == "chained t"
    for end in ("center", "low", "high"):
        assert getattr(found.efficiency, end) == pytest.approx(getattr(row.efficiency_none, end))
    assert sum(part.loss.center for part in found.parts) == pytest.approx(found.loss.center, abs=1e-12)


def test_fewer_than_3_blocks_are_insufficient():
    found = only(plant(ALL, num_blocks=2))
    assert not found.sufficient
    assert {(part.loss.method, part.loss.low) for part in found.parts} == {("insufficient data", None)}


@pytest.mark.parametrize(
    ("num_ranks", "reason"),
    [(1, "vs 1 rank: none on 1 rank was not measured"), (4, "none on 4 ranks was not measured")],
)
def test_without_its_controls_there_is_a_reason_instead(num_ranks, reason):
    records = changed(
        plant(Planted()), None, lambda cell, _: (cell.backend, cell.num_ranks) == ("none", num_ranks)
    )
    found = only(records)
    assert (found.parts, found.efficiency, found.reason) == ((), None, reason)


@pytest.mark.parametrize(("num_nodes", "found"), [(1, 1), (2, 2), (3, 1)])
def test_none_on_as_many_nodes_comes_first_else_on_the_fewest(num_nodes, found):
    """Servers may need more nodes than the ranks alone."""
    none = {"num_ranks": 4, "evidence": "measured"}
    family = launches_of([make_record(num_nodes=nodes, **none) for nodes in (2, 1)])
    (mine,) = launches_of([make_record(backend="ring", num_nodes=num_nodes, **none)])
    assert without_communication(mine, family).cell.num_nodes == found


def test_controls_of_the_same_kind_of_evidence_come_first():
    emulated = plant(ALL, evidence="emulated")
    slower = plant(Planted(compute=2e-3, base_input=1e-3), study="elsewhere")
    measured = [record for record in slower if record.case.cell.backend == "none"]
    for records in ([*measured, *emulated], [*emulated, *measured]):
        found = only(records)
        assert (found.evidence, found.notes) == ("emulated", ())
        assert losses(found) == pytest.approx(ALL.losses, abs=1e-12)
