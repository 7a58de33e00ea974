"""The launches of a training with a target that is saved: what each record says of them, and of what was lost."""

import pytest

from dlscale.benchmarks.records.assemble import assemble
from dlscale.benchmarks.records.record import Failure, Record
from dlscale.benchmarks.records.spool import (
    CaseEnd,
    CaseResult,
    Checkpoint,
    Ended,
    Evaluation,
    MeasuredWindow,
    Phase,
    RankSpool,
    Resumption,
)
from dlscale.benchmarks.records.target import Target, TrainingLaunch
from tests.benchmarks.records.test_assemble import CASE, METADATA

TARGET = Target(
    metric="auc", threshold=0.9, held_out=0.1, evaluate_every=10, max_seconds=60.0, learning_rate=1e-3
)
TO_TARGET = CASE.model_copy(update={"cell": CASE.cell.model_copy(update={"target": TARGET})})
KILLED = Failure(kind="interrupted", rank=None, message="dlscale was killed while this case ran")


def launch(*, begin=0, steps, saved=(), ends=False, before=None, starts=True):
    """The record of a launch of 2 ranks: windows of 5 steps, 1 s and 2 s long, evaluations of 0.25 s."""
    spools = [RankSpool(0), RankSpool(1)]
    for rank, spool in enumerate(spools):
        events = spool.events
        if starts:
            events += [
                (None, Phase(name=name, seconds=1.0)) for name in ("start_up", "import_backend", "gates")
            ]
            events += [(None, Phase(name="connect", seconds=0.5 + rank))]
        events += [(1, Phase(name="set_up", seconds=99.0)), (0, Phase(name="set_up", seconds=0.5))]
        if begin:
            events.append((0, Resumption(step=begin, seconds=0.125)))
        for step in range(5, steps + 1, 5):
            if step > begin:
                events.append(
                    (0, MeasuredWindow(phase="steady", num_steps=5, start=float(step), seconds=1.0 + rank))
                )
            if step % 10 == 0:
                events.append((0, evaluation(step)))
            if step in saved:
                events.append((0, Checkpoint(step=step, seconds=0.1, num_bytes=10)))
        if ends:
            events.append((0, Ended(end="reached", set_up_seconds=0.5, num_held_out=9, num_training=63)))
            events.append((0, CaseResult()))
            events.append((0, CaseEnd(peak_rss_bytes=1, load=None)))
    return assemble(
        TO_TARGET,
        0,
        spools,
        attempt=len(before or []) + 1,
        metadata=METADATA,
        failure=None if ends else KILLED,
        saved_step=max(saved, default=begin),
        earlier=before or [],
    )


def evaluation(step):
    seconds = {"training_seconds": 2.0 * step / 5, "evaluating_seconds": 0.25 * step / 10}
    return Evaluation(step=step, samples=4 * step, **seconds, loss=0.5, metrics={"auc": 0.5})


def test_a_training_of_three_launches_says_what_each_of_them_took_and_lost():
    first = launch(steps=25, saved=(15,))
    assert first.solution is None
    assert first.launches == [
        TrainingLaunch(
            attempt=1,
            first_step=0,
            counts=True,
            start_seconds=1.0 + 1.0 + 1.5 + 0.5,  # each phase of its slowest rank, gates left out
            restoring_seconds=0.0,
            saving_seconds=0.1,
            lost_seconds=2 * 2.0 + 0.25,  # two windows, and the evaluation after step 20
        )
    ]
    second = launch(begin=15, steps=25, before=first.launches)
    assert [one.counts for one in second.launches] == [True, False]
    assert second.launches[1].lost_seconds == 2 * 2.0 + 0.25
    last = launch(begin=15, steps=40, saved=(30,), ends=True, before=second.launches)
    assert last.good
    assert [(one.attempt, one.first_step, one.counts) for one in last.launches] == [
        (1, 0, True),
        (2, 15, False),
        (3, 15, True),
    ]
    assert last.launches[-1].restoring_seconds == 0.125
    assert last.launches[-1].lost_seconds == 0.0
    assert [one.step for one in last.solution.evaluations] == [10, 20, 30, 40]
    assert Record.model_validate_json(last.model_dump_json()) == last


@pytest.mark.parametrize(
    ("saved", "launches"),
    [
        ((15,), [(2, 0, True)]),  # somebody deleted the checkpoint, or the training had ended: it began anew
        ((), [(1, 0, False), (2, 0, True)]),  # what was lost before the first checkpoint is told
    ],
)
def test_one_that_begins_at_0_has_no_saved_ones_before_it(saved, launches):
    again = launch(steps=40, ends=True, before=launch(steps=20, saved=saved).launches)
    found = [(one.attempt, one.first_step, one.counts) for one in again.launches]
    assert found == launches


@pytest.mark.parametrize("steps", [0, 20])
def test_a_launch_that_took_no_step_adds_nothing_and_forgets_nothing(steps):
    first = launch(steps=steps, saved=(15,) if steps else ())
    assert launch(begin=15, steps=15, before=first.launches).launches == first.launches


def test_a_start_that_is_not_known_is_none():
    assert launch(steps=10, starts=False).launches[0].start_seconds is None


def test_other_trainings_have_none_and_their_records_are_written_as_before():
    spools = [RankSpool(0), RankSpool(1)]
    record = assemble(CASE, 0, spools, attempt=1, metadata=METADATA, failure=KILLED)
    assert "launches" not in record.model_dump()
