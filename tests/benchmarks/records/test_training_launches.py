"""The launches of a training with a target that is saved: what each record says of them, and of what was lost."""

from dlscale.benchmarks.records.assemble import assemble
from dlscale.benchmarks.records.cell import Target
from dlscale.benchmarks.records.record import Failure, Record, TrainingLaunch
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


def test_a_training_of_three_launches_says_what_those_took_that_it_went_on_from():
    first = launch(steps=25, saved=(15,))
    assert first.solution is None
    # Each phase of its slowest rank, gates left out.
    took = {"start_seconds": 1.0 + 1.0 + 1.5 + 0.5, "restoring_seconds": 0.0, "saving_seconds": 0.1}
    assert first.launches == [TrainingLaunch(first_step=0, **took)]
    second = launch(begin=15, steps=25, before=first.launches)
    assert second.launches == first.launches, "it has saved nothing"
    last = launch(begin=15, steps=40, saved=(30,), ends=True, before=second.launches)
    assert last.good
    resumed = TrainingLaunch(first_step=15, **took | {"restoring_seconds": 0.125})
    assert last.launches == [*first.launches, resumed]
    assert [one.step for one in last.solution.evaluations] == [10, 20, 30, 40]
    assert Record.model_validate_json(last.model_dump_json()) == last
    again = launch(steps=40, ends=True, before=first.launches)  # somebody deleted the checkpoint
    assert [one.first_step for one in again.launches] == [0]
    assert launch(steps=10, saved=(5,), starts=False).launches[0].start_seconds is None


def test_other_trainings_have_none_and_their_records_are_written_as_before():
    spools = [RankSpool(0), RankSpool(1)]
    record = assemble(CASE, 0, spools, attempt=1, metadata=METADATA, failure=KILLED)
    assert "launches" not in record.model_dump()
