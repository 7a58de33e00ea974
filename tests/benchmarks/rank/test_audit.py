"""Faults that begin when the gates before the first window are long over, planted in a trainer that is being timed.

Ranks are threads; a replica is two tensors, a momentum, and four samples per batch that depend on shard and step.
"""

import numpy as np
import pytest

from dlscale.benchmarks.rank import audit as audit_module
from dlscale.benchmarks.rank.deviation import ROUNDED, bounds_for
from dlscale.benchmarks.rank.reference import samples_at
from dlscale.models.samples import ORDER_SEED, shard_indices
from dlscale.models.workload import Shard
from tests.benchmarks.rank.audited import (
    LATER,
    LOCAL_BATCH,
    NUM_WINDOWS,
    WARM_UP,
    WINDOW_STEPS,
    Fault,
    Replica,
    failed,
    run,
)


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_a_training_that_does_what_it_says_passes(num_ranks):
    gates = run(num_ranks=num_ranks)
    assert failed(gates) == set()
    names = {"audit_step", "audit_scale", "audit_samples", "audit_window"}
    assert names == set(gates) - {"told"}
    assert "in the steps of timed window " in gates["audit_window"].detail
    assert gates["told"] == [1] * num_ranks
    assert gates["audit_step"].value < 1e-5


def test_of_windows_of_one_step_the_last_one_is_replayed():
    gates = run(window_steps=1)
    assert failed(gates) == set()
    assert gates["told"] == []
    assert f"timed window {NUM_WINDOWS} of {NUM_WINDOWS}" in gates["audit_window"].detail
    assert failed(run(AppliedTwice(), window_steps=1)) == {"audit_step", "audit_scale", "audit_window"}


def test_a_resumed_training_has_drawn_batches_before():
    gates = run(resumed_at=40)
    assert failed(gates) == set()
    assert gates["audit_samples"].value == 0
    assert "audit_samples" in failed(run(StandsStill(), resumed_at=40))


def adding_up_in_any_order(share):
    """Replicas whose gradients are never twice the same, as by a GPU's fastest algorithms."""
    rng = np.random.default_rng(1)

    class Restless(Replica):
        def gradients(self):
            return [
                gradient * (1 + share * rng.standard_normal(gradient.shape)).astype(np.float32)
                for gradient in super().gradients()
            ]

    return Restless


@pytest.mark.parametrize(
    ("share", "exact", "fault", "wrong", "unseen"),
    [
        (3e-3, True, None, {"audit_step"}, set()),
        (1e-3, False, None, set(), set()),
        (1e-3, False, "half", {"audit_step", "audit_scale"}, set()),
        (1e-3, False, "nor a batch", {"audit_step", "audit_samples"}, set()),
        (5.0, False, None, set(), {"audit_step", "audit_scale", "audit_window"}),
    ],
)
def test_what_replays_differ_by_is_no_fault_where_they_may(share, exact, fault, wrong, unseen):
    planted = FAULTS[fault][0] if fault else None
    bounds = bounds_for(precision="fp32", device="cpu" if exact else "gpu")
    gates = run(planted, kind=adding_up_in_any_order(share), bounds=bounds)
    assert wrong <= failed(gates)
    assert wrong or not failed(gates)
    said = {
        name for name, gate in gates.items() if name != "told" and "replays of the same steps" in gate.detail
    }
    assert said == unseen


class StandsStill(Fault):
    """Nor does it read a batch."""

    def begin(self, trainer):
        if trainer.number >= LATER:
            trainer.replica.num_drawn -= 1

    def mean(self, trainer, _handed, mean):
        return mean if trainer.number < LATER else None


class LaterMean(Fault):
    """From step LATER on `change(gradients of all ranks, their mean)` is applied instead of the mean."""

    def __init__(self, change):
        self.change = change

    def mean(self, trainer, handed, mean):
        return self.change(handed, mean) if trainer.number >= LATER else mean


def scaled(factor):
    return LaterMean(lambda _, mean: [part * np.float32(factor) for part in mean])


def one_element_forgotten(_, mean):
    mean[0][-1] = 0
    return mean


class EverySecondTimedStep(Fault):
    """Steps in windows only: single steps after a look are right."""

    def mean(self, trainer, _handed, mean):
        return None if trainer.since_look > 1 and trainer.number >= WARM_UP and trainer.number % 2 else mean


class OneShardForAll(Fault):
    def begin(self, trainer):
        if trainer.number >= LATER:
            trainer.replica.shard = Shard(index=0, count=2)


class HalfTheBatch(Fault):
    def begin(self, trainer):
        trainer.replica.num_read = LOCAL_BATCH // 2 if trainer.number >= LATER else LOCAL_BATCH


class AppliedTwice(Fault):
    def times(self, trainer):
        return 2 if trainer.number >= 4 else 1


class WrongOnOneRankAlone(Fault):
    """Rank 1 applies what rank 0 does not."""

    def times(self, trainer):
        return 2 if trainer.rank == 1 and trainer.number >= LATER else 1


FAULTS = {
    "no exchange and no update": (LaterMean(lambda *_: None), {"audit_step", "audit_scale"}),
    "nor a batch": (StandsStill(), {"audit_step", "audit_scale", "audit_samples"}),
    "half": (scaled(0.5), {"audit_step", "audit_scale"}),
    "slightly less": (scaled(0.9995), {"audit_scale"}),
    "no number": (scaled(np.nan), {"audit_step", "audit_scale"}),
    "the smaller of two buckets forgotten": (
        LaterMean(lambda _, mean: [mean[0], 0 * mean[1]]),
        {"audit_step"},
    ),
    "one element forgotten": (LaterMean(one_element_forgotten), {"audit_step"}),
    "rank 0 alone": (LaterMean(lambda handed, _: handed[0]), {"audit_step"}),
    "every second timed step": (EverySecondTimedStep(), {"audit_window"}),
    "one shard for all": (OneShardForAll(), {"audit_step"}),
    "half the batch": (HalfTheBatch(), {"audit_step"}),
    "applied twice": (AppliedTwice(), {"audit_step", "audit_scale"}),
    "wrong on one rank alone": (WrongOnOneRankAlone(), {"audit_step", "audit_scale"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_begins_later_fails(name):
    """The last audit is certain to see what stays wrong; the drawn window sees what is wrong in every window."""
    fault, names = FAULTS[name]
    assert names <= failed(run(fault))


@pytest.mark.parametrize("window", range(NUM_WINDOWS))
def test_a_fault_in_one_window_is_seen_if_that_is_drawn(window, monkeypatch):
    class InOneWindow(Fault):
        def mean(self, trainer, _handed, mean):
            first = WARM_UP + WINDOW_STEPS * 2  # of window 2
            return None if first <= trainer.number < first + WINDOW_STEPS else mean

    monkeypatch.setattr(audit_module, "draw", lambda count, control: window)  # noqa: ARG005
    assert failed(run(InOneWindow())) == ({"audit_window"} if window == 2 else set())


@pytest.mark.parametrize("delay", [1, 2])
def test_late_gradients_are_replayed_where_they_are_applied(delay):
    gates = run(delay=delay)
    assert failed(gates) == set()
    assert gates["told"] == [1 + delay] * 2
    assert failed(run(scaled(0.5), delay=delay)) >= {"audit_step", "audit_scale"}
    assert failed(run(AppliedTwice(), delay=delay)) >= {"audit_step", "audit_scale"}
    assert failed(run(StandsStill(), delay=delay)) >= {"audit_samples"}


@pytest.mark.parametrize("until", [20, 40, 41, 42, 50])
def test_a_cool_down_before_within_or_after_the_audited_steps(until):
    settings = {"pipelined_until_step": until}
    assert failed(run(delay=1, settings=settings)) == set()
    assert failed(run(scaled(0.5), delay=1, settings=settings)) >= {"audit_step", "audit_scale"}


@pytest.mark.parametrize(("factor", "passed"), [(1.0, True), (0.995, False), (0.99, False)])
def test_rounding_cancels_in_the_scale_and_a_mean_that_is_too_small_does_not(factor, passed):
    """bfloat16: every element is off by up to 2^-8, more than the mean itself."""

    class Rounded(Fault):
        def mean(self, trainer, _handed, mean):
            errors = np.random.default_rng(trainer.number)
            off = [1 + errors.uniform(-(2.0**-8), 2.0**-8, part.shape) for part in mean]
            return [(part * (factor * one)).astype(np.float32) for part, one in zip(mean, off, strict=True)]

    class Many(Replica):
        def __init__(self, shard, num_read=LOCAL_BATCH):
            super().__init__(shard, num_read)
            self.tensors = [np.linspace(1, 2, 20_000, dtype=np.float32), np.ones(500, np.float32)]
            self.momenta = [np.zeros_like(tensor) for tensor in self.tensors]

    found = failed(run(Rounded(), bounds=ROUNDED, kind=Many, window_steps=1))
    assert found == (set() if passed else {"audit_scale"})


class OneShardForEverybody(Replica):
    """Its own reading is wrong, and a replay's with it: only what should have been read shows that."""

    def gradients(self):
        own, self.shard = self.shard, Shard(index=0, count=self.shard.count)
        found = super().gradients()
        self.shard = own
        return found


class OneBatchForEver(Replica):
    def gradients(self):
        num_drawn, self.num_drawn = self.num_drawn, min(self.num_drawn, LATER)
        found = super().gradients()
        self.num_drawn = num_drawn + 1
        return found


@pytest.mark.parametrize("kind", [OneShardForEverybody, OneBatchForEver])
def test_samples_that_a_replay_reads_wrongly_too_fail(kind):
    assert failed(run(kind=kind)) == {"audit_samples"}


@pytest.mark.parametrize("num_samples", [1, 7, 1000])
def test_the_definition_of_shards_is_that_of_the_input(num_samples):
    for index in range(3):
        shard = Shard(index=index, count=3)
        batches = shard_indices(num_samples, shard=shard, local_batch=4, seed=ORDER_SEED)
        for step in range(6):
            expected = samples_at((step * 3 + index) * 4, 4, num_samples=num_samples)
            np.testing.assert_array_equal(next(batches), expected)


def test_samples_that_were_left_out_are_said_to_stop_the_audit():
    gates = run(skipped=1)
    assert failed(gates) == set()
    assert "samples were left out" in gates["audit_step"].detail
    assert gates["audit_step"].value is None
