"""A training with a target that is stopped and resumed, on one rank: it arrives where an uninterrupted one does."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank import checkpoints
from dlscale.benchmarks.rank.checkpoints import TrainingRun, save_checkpoint
from dlscale.benchmarks.rank.evaluations import Evaluator
from dlscale.benchmarks.rank.solution import ScheduledTrainer, TargetTraining
from dlscale.benchmarks.records.cell import Target
from dlscale.benchmarks.records.spool import Checkpoint, Ended, Evaluation, Resumption
from dlscale.collectives.registry import connect
from dlscale.models import load_workload
from dlscale.models.workload import Execution, Shard

FRAMEWORKS = [
    pytest.param("torch", id="torch"),
    # Each launch traces its steps, and the contract test has shown that state and steps are the same.
    pytest.param("tensorflow", id="tensorflow", marks=[pytest.mark.requires("tensorflow"), pytest.mark.slow]),
]
FACTS = load_workload("hep_cnn")
TARGET = Target(
    metric="auc", threshold=1.0, held_out=0.01, evaluate_every=4, max_seconds=600.0, learning_rate=3e-3
)
WORLD = SimpleNamespace(
    bcast=lambda value: value,
    gather=lambda value: [value],
    allgather=lambda value: [value],
    Bcast=lambda _: None,
    Get_rank=lambda: 0,
    Get_size=lambda: 1,
)
NO_AUDIT = SimpleNamespace(
    before=lambda: None, after=lambda _: None, num_to_next=lambda: 10**9, end=lambda *_: None
)
CONTROL = SimpleNamespace(barrier=lambda: None, maximum=lambda value: value)


class KilledError(Exception):
    """The end of a launch."""


def launch(folder, *, framework="torch", every=3, killed_after=None, **limits):
    """(events, windows, trainer) of one launch of the training."""
    events, windows = [], []
    source = replace(FACTS.input("tiny"), held_out=TARGET.held_out, order=5)
    factory = FACTS.factory(
        framework=framework,
        preset="tiny",
        local_batch=8,
        source=source,
        execution=Execution(learning_rate=TARGET.learning_rate),
    )
    shard = Shard(index=0, count=1)
    trainer = connect("none", control=None, framework=framework).distribute(factory, shard=shard, seed=7)
    known = {
        "facts": FACTS,
        "preset_facts": FACTS.preset("tiny"),
        "shard": "none",
        "target": TARGET.model_copy(update=limits),
    }
    cell = SimpleNamespace(**known, num_servers=0, algorithm="sync", num_ranks=1, global_batch=8)
    saving = TrainingRun(trainer, every, folder, control=CONTROL, world=WORLD, write=events.append)
    num_steps = saving.step

    def emit(window):
        nonlocal num_steps
        windows.append(window)
        num_steps += window.num_steps
        if killed_after and num_steps >= killed_after:
            raise KilledError

    evaluator = Evaluator(cell, source, factory(shard=shard, seed=7), world=WORLD, facts=cell.facts)
    context = SimpleNamespace(control=CONTROL, world=WORLD)
    training = TargetTraining(
        SimpleNamespace(cell=cell, context=context, emit=emit, write=events.append),
        ScheduledTrainer(trainer, None, cell, begin=saving.step),
        evaluator,
        NO_AUDIT,
        saving=saving,
    )
    try:
        training.run(set_up_seconds=0.1)
    except KilledError:
        assert killed_after
    return events, windows, trainer


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def quality(events):
    return [(event.step, event.samples, event.loss, event.metrics) for event in of(Evaluation, events)]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_resumed_training_arrives_at_the_same_bits(tmp_path, monkeypatch, framework):
    clock = iter(range(10**6))  # every look at it takes a second
    for module in ("checkpoints", "measure", "solution"):
        monkeypatch.setattr(f"dlscale.benchmarks.rank.{module}.time.perf_counter", lambda: float(next(clock)))
    # An evaluation takes a second, a window some: 1, 2, 3 | 4, evaluated | 6 | 8, evaluated | 9 ...
    budget = {"framework": framework, "max_samples": 12 * 8}
    whole, _, never_stopped = launch(tmp_path / "whole", **budget)
    assert whole[-1] == Ended(
        end="budget",
        set_up_seconds=0.1,
        num_training=whole[-1].num_training,
    )
    assert [event.step for event in of(Evaluation, whole)] == [4, 8, 12]
    assert [event.step for event in of(Checkpoint, whole)] == [3, 6, 9]

    folder = tmp_path / "parts"
    first, _, _ = launch(folder, killed_after=4, **budget)  # while it is evaluated: only 3 steps were saved
    assert quality(first) == []
    second, windows, _ = launch(folder, killed_after=8, **budget)
    assert of(Resumption, second)[0].step == 3
    assert [window.num_steps for window in windows] == [1, 2, 2]
    last, windows, resumed = launch(folder, **budget)
    assert of(Resumption, last)[0].step == 6
    assert [window.num_steps for window in windows] == [1, 1, 1, 3]
    assert quality(last) == quality(whole), "those of the second launch are among them"
    assert last[-1] == whole[-1]
    for expected, found in zip(never_stopped.weights(), resumed.weights(), strict=True):
        assert np.array_equal(expected, found)
    ends = [of(Evaluation, events)[-1] for events in (whole, last)]
    assert ends[1].evaluating_seconds == ends[0].evaluating_seconds, "each of 1 s"
    assert ends[1].training_seconds >= ends[0].training_seconds
    over, windows, _ = launch(folder, framework=framework, max_seconds=ends[1].training_seconds / 2)
    assert of(Resumption, over)[0].step == 9
    assert (over[-1].end, [window.num_steps for window in windows]) == ("budget", [1]), "of all launches"


def test_one_that_was_stopped_before_its_first_checkpoint_begins_anew(tmp_path):
    launch(tmp_path, every=50, killed_after=2)
    events, windows, _ = launch(tmp_path, every=50, max_samples=4 * 8)
    assert of(Resumption, events) == []
    assert [window.num_steps for window in windows] == [1, 3]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: "",
        lambda notes: notes[:-1],
        lambda notes: notes.replace("seconds", "minutes", 1),
    ],
)
def test_notes_of_something_else_are_one_line(tmp_path, spoil):
    launch(tmp_path, killed_after=4)
    state, notes = checkpoints.load_checkpoint(tmp_path, step=3)
    save_checkpoint(tmp_path, state, step=3, notes=spoil(notes))
    with pytest.raises(UsageError, match=r"belongs to another training \(.*\); delete it, and the") as caught:
        launch(tmp_path)
    assert "\n" not in str(caught.value)
