"""Frameworks compared, from made-up records with known speeds, starts and times to a target."""

import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.data_formats import data_is_prepared, format_uses, to_format_row
from dlscale.analysis.findings.framework_choice import (
    choices,
    num_pairs,
    pays_after,
    to_answer_row,
    to_comparison_rows,
)
from dlscale.analysis.findings.programs import loss_rows, programs, to_program_row
from dlscale.analysis.measured import measure
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.preparation import Preparation
from dlscale.benchmarks.records.record import Checkpoint
from tests.analysis.findings.test_solutions import training
from tests.made_records import make_record

DRIFT = (1.0, 0.82, 1.1, 0.95, 1.2, 0.9, 1.05, 0.85)
# Samples per second of each program on 2 ranks; with eight blocks six comparisons can be decided.
SPEEDS = {
    ("torch", False): 100.0,
    ("torch", True): 150.0,
    ("tensorflow", False): 80.0,
    ("tensorflow", True): 120.0,
}


def study(speeds=SPEEDS, num_blocks=8, changed=lambda *_: 1.0):
    """Eight launches of each program; `changed` multiplies speeds by block."""
    return [
        make_record(
            backend="ring",
            num_ranks=num_ranks,
            block=block,
            local_batch=16,
            framework=framework,
            compiled=compiled,
            samples_per_second=rate
            * num_ranks
            / 2
            * DRIFT[block]
            * (1 + 0.01 * (-1) ** (block + compiled))
            * changed((framework, compiled), block),
            study="frameworks",
        )
        for block in range(num_blocks)
        for (framework, compiled), rate in speeds.items()
        for num_ranks in (1, 2)
    ]


def with_start(record, seconds):
    return record.model_copy(
        update={"phases": record.phases.model_copy(update={"first_step": [seconds] * len(record.ranks)})}
    )


def asked(*tables):
    items = programs(tables)
    return items, choices(items, tables)


def test_a_program_has_its_speed_start_memory_and_lines():
    items = programs([measure(study())])
    assert [(item.cell.num_ranks, item.name) for item in items] == [
        (ranks, name)
        for ranks in (1, 2)
        for name in ("torch eager", "torch compiled", "tensorflow graph", "tensorflow XLA")
    ]
    row = to_program_row(items[5])
    assert row["samples_per_second"] == pytest.approx(150, rel=0.05)
    assert row["step_seconds"] == pytest.approx(32 / row["samples_per_second"])
    assert row["samples_per_second_low"] < row["samples_per_second"] < row["samples_per_second_high"]
    # Start 1, import 0.1, connect 1 and the first step 1, as the made-up records have them; gates are apart.
    assert (row["start_seconds"], row["gates_seconds"]) == (pytest.approx(3.1), 1.0)
    assert (row["peak_rss_bytes"], row["script"]) == (400 << 20, "torch/ring.py")
    assert row["lines_added"] + row["lines_changed"] + row["lines_removed"] == 11
    assert row["script_command"] == "mpiexec -n 2 python SCRIPT"
    assert row["epoch_seconds"] is row["solution_seconds"] is row["job_share"] is None


NOISE = (1.2, 0.8, 1.3, 0.7, 1.1, 0.9, 1.25, 0.75)
# What is measured, what to use, and what the first sentence has.
ANSWERS = {
    "one is faster than all others": (
        {},
        ["torch compiled"],
        "HEP-CNN tiny on 2 ranks over ring: use torch compiled, which is 1.25 [1.25, 1.25] times as fast as "
        "tensorflow XLA, ",
    ),
    "two cannot be told apart": (
        {
            "speeds": {**SPEEDS, ("tensorflow", True): 148.0},
            "changed": lambda program, block: NOISE[block] if program == ("tensorflow", True) else 1.0,
        },
        ["torch compiled", "tensorflow XLA"],
        "no difference between",
    ),
    "too few launches": (
        {"num_blocks": 3},
        [],
        "no answer yet (3 launches cannot decide 6 comparisons: --launches 8 can).",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_which_program_to_use(case):
    options, best, said = ANSWERS[case]
    items, (choice,) = asked(measure(study(**options)))
    row = to_answer_row(choice)
    assert sorted(row["best"]) == sorted(best)
    assert said in row["sentences"][0]
    rows = list(to_comparison_rows(choice))
    assert len(rows) == num_pairs(item.cell for item in items) == 6, (
        "all pairs on the most ranks, none on 1 rank"
    )


def test_compiling_pays_after_the_steps_that_its_longer_start_takes():
    records = [
        with_start(record, 13.0 if record.case.cell.compiled else 1.0)
        for record in study({("torch", False): 100.0, ("torch", True): 160.0})
    ]
    items, (choice,) = asked(measure(records))
    compiled = items[-1]
    assert compiled.name == "torch compiled"
    steps = 12 / (32 / 100 - 32 / 160)
    assert pays_after(compiled, choice) == pytest.approx(steps, rel=0.05)
    assert "compiling makes torch 1.6" in choice.sentences[-1]
    slow = study({("torch", False): 100.0, ("torch", True): 70.0})
    items, (choice,) = asked(measure(slow))
    assert pays_after(items[-1], choice) is None
    assert "compiling does not pay in torch" in choice.sentences[-1]


def test_trainings_to_a_target_are_joined_to_the_speed_of_their_cells():
    steps = {("torch", False): 100, ("tensorflow", False): 150}
    trainings = [
        training(
            backend="ring",
            num_ranks=2,
            block=block,
            framework=framework,
            steps=number + block,
            step_seconds=0.1,
            num_training=3200,
            study="framework-losses",
        )
        for block in range(6)
        for (framework, _), number in steps.items()
    ]
    saved = [
        record.model_copy(update={"checkpoints": [Checkpoint(step=50, seconds=0.2, num_bytes=3_000_000)]})
        for record in trainings
    ]
    plain = {program: rate for program, rate in SPEEDS.items() if not program[1]}
    items, (choice,) = asked(measure(study(plain)), measure(saved))
    rows = [to_program_row(item) for item in items if item.cell.num_ranks == 2]
    assert [row["program"] for row in rows] == ["torch eager", "tensorflow graph"]
    assert rows[0]["solution_steps"] == pytest.approx(102.5)
    # 3200 samples are 100 steps of 32.
    assert rows[0]["epoch_seconds"] == pytest.approx(100 * rows[0]["step_seconds"])
    assert (rows[0]["state_bytes"], rows[0]["saving_seconds"]) == (3_000_000, 0.2)
    assert rows[0]["job_share"] == pytest.approx((3.1 + 0.2) / 1800)
    assert any("torch eager is soonest" in text for text in choice.sentences)
    losses = list(loss_rows(items))
    assert len(losses) == 2 * 6 * 2, "two evaluations of each training"
    assert (losses[1]["step"], losses[1]["samples"], losses[1]["auc"]) == (100, 3200, 0.95)
    assert programs([measure(saved)])[0].solution, "also without a study of speed"


def test_a_cell_in_two_studies_is_refused():
    table = measure(study())
    with pytest.raises(
        UsageError, match="hep_cnn in tensorflow graph over ring on 1 rank is in two of the studies"
    ):
        programs([table, table])


def test_a_program_without_a_number_is_named():
    failed = [
        make_record(
            backend="ring",
            num_ranks=2,
            block=block,
            local_batch=16,
            framework="tensorflow",
            failure="it hangs",
        )
        for block in range(8)
    ]
    records = [record for record in study() if record.case.cell.framework == "torch"]
    _, (choice,) = asked(measure([*records, *failed]))
    assert "tensorflow graph: no number (0 of 8 launches)." in choice.sentences[0]


def test_formats_have_their_preparation_and_the_rates_of_reading_and_training():
    sizes = {"num_samples": 100, "image_bytes": 1000, "num_bytes": 2000, "num_files": 2}
    names = {"name": "images-1a2b3c4d-lmdb", "format": "lmdb", "source": "images"}
    prepared = Preparation(**names, **sizes, source_format="class folders", seconds=1.5)
    data = f"{prepared.name}:123456789abc"
    records = [
        make_record(block=block, data=data, framework=framework, control=control, samples_per_second=rate)
        for block in range(6)
        for framework, control, rate in (
            *(("torch", "train", 100.0), ("torch", "loader", 400.0)),
            *(("tensorflow", "train", 80.0), ("tensorflow", "loader", 300.0)),
        )
    ]
    table = measure(records)
    uses = format_uses([table], [prepared])
    rows = {row["framework"]: row for row in map(to_format_row, uses)}
    assert rows["torch"]["reading_samples_per_second"] == pytest.approx(400)
    assert rows["tensorflow"]["training_samples_per_second"] == pytest.approx(80)
    assert rows["torch"]["input_stall"] == pytest.approx(0.25)
    assert (rows["torch"]["preparation_seconds"], rows["torch"]["num_bytes"]) == (1.5, 2000)
    assert all(data_is_prepared(row, [prepared]) for row in scaling.FINDING.of(table))
    assert not data_is_prepared(scaling.FINDING.of(measure([make_record()]))[0], [prepared])
