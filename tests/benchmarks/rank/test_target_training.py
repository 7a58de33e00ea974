"""When a training with a target ends, and what it says; the clock moves only when a step is taken."""

import itertools
import math
from types import SimpleNamespace

import pytest

from dlscale.benchmarks.rank import measure, solution
from dlscale.benchmarks.rank.solution import ScheduledTrainer, TargetTraining
from dlscale.benchmarks.records.cell import Target
from dlscale.benchmarks.records.record import Ended, Evaluation
from dlscale.models import load_workload

STEP, EVALUATION = 0.5, 2.0
NO_AUDIT = SimpleNamespace(
    before=lambda: None, after=lambda _: None, num_to_next=lambda: 10**9, end=lambda *_: None
)


class Trainer:
    """A trainer, a control, a world of 2 ranks and an evaluator in one, with a clock."""

    held_out = SimpleNamespace(num_training=40)

    def __init__(self, aucs, losses):
        self.now = 100.0
        self._aucs, self._losses = iter(aucs), itertools.chain(losses, itertools.repeat(0.5))

    steps = 0

    def step(self):
        self.now += STEP
        self.steps += 1

    def set_learning_rate(self, rate):
        raise AssertionError(f"the rate is constant, and {rate} was set")

    def synchronize(self):
        pass

    def settings(self):
        return {}

    def barrier(self):
        pass

    def maximum(self, value):
        return value

    def loss(self):
        return next(self._losses)

    def allgather(self, value):
        return [value, value]

    def metrics(self, trainer):  # noqa: ARG002
        self.now += EVALUATION
        value = next(self._aucs)
        return {} if value is None else {"auc": value}


def run(monkeypatch, aucs, losses=(), clock=None, longest_window=math.inf, **target):
    clock = clock or Trainer(aucs, losses)
    for module in (measure, solution):
        monkeypatch.setattr(module.time, "perf_counter", lambda: clock.now)
    written, windows = [], []
    values = {"metric": "auc", "threshold": 0.9, "held_out": 0.1, "evaluate_every": 4, "max_seconds": 60.0}
    wanted = Target(**values | {"learning_rate": 1e-3} | target)
    cell = SimpleNamespace(facts=load_workload("hep_cnn"), num_ranks=2, global_batch=32, target=wanted)
    monkeypatch.setattr(solution, "LONGEST_WINDOW", longest_window)
    context = SimpleNamespace(control=clock, world=clock)
    case = SimpleNamespace(cell=cell, context=context, emit=windows.append, write=written.append)
    steps = ScheduledTrainer(clock, clock, cell, begin=0)
    end = TargetTraining(case, steps, clock, NO_AUDIT).run(set_up_seconds=1.5)
    assert written[-1] == Ended(
        end=end,
        set_up_seconds=1.5,
        num_training=40,
    )
    return end, written[:-1], windows


def test_the_rate_is_set_where_the_schedule_changes_it(monkeypatch):
    schedule = {"first_rate": 1.0, "warm_up_samples": 64, "decay_samples": [5 * 32]}
    set_rates = []
    monkeypatch.setattr(Trainer, "set_learning_rate", lambda self, rate: set_rates.append((self.steps, rate)))
    run(monkeypatch, [0.5, 0.95], learning_rate=2.0, schedule=schedule)
    assert set_rates == [(0, 1.0), (1, 1.5), (2, 2.0), (5, 0.2)]


def test_it_ends_at_the_first_evaluation_that_is_good_enough(monkeypatch):
    end, evaluations, windows = run(monkeypatch, [0.5, 0.95, 0.99])
    assert end == "reached"
    assert [(window.phase, window.num_steps) for window in windows] == [
        ("warmup", 1),
        ("steady", 3),
        ("steady", 4),
    ]
    assert evaluations[-1] == Evaluation(
        step=8,
        samples=8 * 32,
        training_seconds=8 * STEP,
        evaluating_seconds=2 * EVALUATION,
        loss=0.5,
        metrics={"auc": 0.95},
    )


def test_it_gives_up_when_its_time_is_over(monkeypatch):
    end, evaluations, _ = run(monkeypatch, itertools.repeat(0.5), max_seconds=12.0)
    assert end == "budget"
    assert [evaluation.step for evaluation in evaluations] == [4, 8, 12], "of 4 s each"


def test_its_time_is_over_long_before_an_evaluation_is_due(monkeypatch):
    end, evaluations, windows = run(
        monkeypatch, itertools.repeat(0.5), evaluate_every=1_000_000, max_seconds=12.0, longest_window=5.0
    )
    assert end == "budget"
    assert [window.num_steps for window in windows] == [1, 10, 10, 3], "5 s at most, 12 s together"
    assert [evaluation.step for evaluation in evaluations] == [24]


def test_it_gives_up_when_it_had_its_samples(monkeypatch):
    end, evaluations, _ = run(monkeypatch, itertools.repeat(0.5), max_samples=200)
    assert end == "budget"
    assert [evaluation.samples for evaluation in evaluations] == [128, 256]
    assert run(monkeypatch, [0.5, 0.95], max_samples=200)[0] == "reached"


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_it_without_an_evaluation(monkeypatch, loss):
    end, evaluations, _ = run(monkeypatch, [0.5], losses=[0.4, loss])
    assert end == "diverged"
    assert (evaluations[-1].step, evaluations[-1].loss, evaluations[-1].metrics) == (8, None, {})


def test_scores_that_are_no_numbers_end_it(monkeypatch):
    assert run(monkeypatch, [0.5, None])[0] == "diverged"


def test_no_window_is_so_long_that_the_launch_looks_like_a_hang(monkeypatch):
    _, (evaluation,), windows = run(monkeypatch, [0.95], longest_window=10.0, evaluate_every=100)
    assert evaluation.step == 100
    assert [window.num_steps for window in windows] == [1, 20, 20, 20, 20, 19]
