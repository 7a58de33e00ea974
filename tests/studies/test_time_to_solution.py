"""Trainings that go on until they reach a target, as a user runs them."""

import json

import pytest

from dlscale.benchmarks.records.record import required_gates

pytestmark = [pytest.mark.requires("mpiexec", "ring"), pytest.mark.timeout(300)]
# Tiny networks tell the classes apart after a few hundred samples.
LEARN = "--set target.evaluate_samples=480 --set target.learning_rate=3e-3"
QUICK = f"--backends ring --ranks 2 --set base=smallest {LEARN} --launches 2 --target auc=0.75".split()


@pytest.mark.slow
def test_trainings_reach_their_target_and_the_screen_says_when(bench):
    done = bench.run(*QUICK, study="time-to-solution")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 trainings reached auc 0.75" in " ".join(done.stdout.split())
    records = bench.records()
    assert {(r.case.cell.backend, r.case.cell.num_ranks) for r in records} == {("ring", 2)}
    for record in records:
        solution, cell = record.solution, record.case.cell
        assert solution.end == "reached"
        *before, last = solution.evaluations
        assert last.metrics["auc"] >= 0.75 > max((e.metrics["auc"] for e in before), default=0.0)
        assert [e.step for e in solution.evaluations] == [
            cell.target.evaluate_every * (place + 1) for place in range(len(solution.evaluations))
        ]
        assert last.samples == record.windows.num_steps.sum() * cell.global_batch
        windows = record.windows.world.sum()
        assert last.training_seconds == pytest.approx(windows)
    losses = {block: _losses(records, block) for block in (0, 1)}
    assert losses[0] != losses[1], "each block has a seed of its own"
    (row, *_) = json.loads(bench.ask("report", "--json").stdout)["solution"]
    assert (row["num_reached"], row["num_trainings"], row["seconds_low"]) == (2, 2, None)
    assert list(bench.folder.glob("results/*/*/figures/*-time-to-target.png"))


@pytest.mark.slow
def test_ranks_that_train_in_rounds_reach_the_target_with_what_they_learnt_together(bench):
    """The last evaluation is that of the centre: no rank has it itself."""
    words = (
        f"--backends ring --ranks 2 --set base=smallest --launches 1 --target auc=0.75 {LEARN} "
        "--set algorithms=easgd --set easgd.interval=2"
    )
    done = bench.run(*words.split(), study="time-to-solution")
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = bench.records()
    assert {gate.name for gate in record.gates} >= set(required_gates(record.case.cell))
    assert record.solution.end == "reached"
    num_steps = record.solution.evaluations[-1].step
    # The audit at the end goes on until a round more.
    assert record.backend_settings["num_rounds"] - (num_steps - 1) // 2 in (0, 1)
    assert record.backend_settings["round_bytes"] == 4 * 9634
    rows = json.loads(bench.ask("report", "--json").stdout)["solution"]
    found = [(row["algorithm"], row["algorithm_options"]) for row in rows]
    assert found == [("easgd", "interval=2")]


@pytest.mark.slow
def test_a_target_out_of_reach_and_a_training_that_diverges_are_results(bench):
    """A learning rate of 1e30 makes the loss no number; 1e-9 changes nothing."""
    for rate in ("1e30", "1e-9"):
        words = (
            "--backends none --ranks 1 --launches 1 --target auc=1.0 --set target.max_seconds=1s "
            f"--set target.evaluate_samples=160 --set target.learning_rate={rate}"
        )
        done = bench.run(*words.split(), study="time-to-solution")
        assert done.returncode == 4, done.stdout + done.stderr
        assert "0 of 1 training reached auc 1" in " ".join(done.stdout.split())
    ends = {record.solution.end: record for record in bench.records()}
    assert ends.keys() == {"budget", "diverged"}
    assert all(record.good for record in ends.values())


def _losses(records, block):
    return {e.loss for r in records if r.case.block == block for e in r.solution.evaluations}
