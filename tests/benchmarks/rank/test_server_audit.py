"""Audits of training on servers: weights that workers fetch, and not the servers' count, show that updates are made."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from dlscale.benchmarks.rank.audit import AuditedTraining
from dlscale.benchmarks.rank.deviation import EXACT
from dlscale.benchmarks.rank.sample_order import samples_at
from dlscale.benchmarks.rank.server_audit import OPENING_STEPS, ServerAudit
from dlscale.collectives.algorithms.downpour import Options
from tests.benchmarks.rank.threads import on_ranks

NUM_WINDOWS, WINDOW_STEPS = 4, 3


pytestmark = pytest.mark.usefixtures("mpi_constants")


class Replica:
    """Plain SGD of two tensors, with a gradient that depends on rank, step and weights."""

    def __init__(self, rank, num_ranks=2):
        self.rank, self.number, self.num_ranks = rank, 0, num_ranks
        self.tensors = [np.linspace(1, 2, 6, dtype=np.float32), np.array([0.5, -0.5], np.float32)]

    def weights(self):
        return [tensor.copy() for tensor in self.tensors]

    def load(self, weights):
        self.tensors = [weight.copy() for weight in weights]

    def last_samples(self):
        return samples_at(
            ((self.number - 1) * self.num_ranks + self.rank) * 2, 2, num_samples=self.num_samples()
        )

    def num_samples(self):
        return 9

    def gradients(self):
        rng = np.random.default_rng((self.rank, self.number))
        self.number += 1
        return [(t / 8 + rng.standard_normal(t.shape)).astype(np.float32) for t in self.tensors]

    def apply(self, gradients):
        for tensor, gradient in zip(self.tensors, gradients, strict=True):
            tensor -= np.float32(0.125) * gradient


class Server:
    """Holds the weights; applies what `update(number of the update, gradients)` makes of gradients, and counts."""

    def __init__(self, num_ranks, update):
        self.held, self.update, self.num_ranks = Replica(0), update, num_ranks
        self.num_updates = self.num_counted = 0
        self.lock, self.meeting = threading.Lock(), threading.Barrier(num_ranks, timeout=10)
        self.handed = {}

    def push(self, gradients):
        with self.lock:
            self.held.apply(self.update(self.num_updates, gradients))
            self.num_updates += 1
            self.num_counted += 1
            return self.held.weights()

    def push_together(self, rank, gradients):
        self.handed[rank] = gradients
        if self.meeting.wait() == 0:
            parts = zip(*(self.handed[one] for one in range(self.num_ranks)), strict=True)
            self.push([sum(one) / np.float32(self.num_ranks) for one in parts])
            self.num_counted += self.num_ranks - 1
        self.meeting.wait()
        return self.held.weights()


class Trainer:
    def __init__(self, rank, server, asynchronous):
        self.replica = Replica(rank, server.num_ranks)
        self.server, self.asynchronous = server, asynchronous
        self.replica.load(server.held.weights())

    def step(self):
        gradients = self.replica.gradients()
        if self.asynchronous:
            self.replica.load(self.server.push(gradients))
        else:
            self.replica.load(self.server.push_together(self.replica.rank, gradients))

    def synchronize(self):
        pass

    def weights(self):
        return self.replica.weights()

    def num_applied(self):
        return self.server.num_counted

    def settings(self):
        return {"learning_rate": 1.0}


def run(
    update=lambda _, gradients: gradients,
    *,
    num_ranks=2,
    asynchronous=True,
    num_accepted=None,
    kind=Server,
    trainer_kind=Trainer,
    served=None,
):
    """{gate: the gate}, the same on all ranks, and the steps that were told."""
    server = kind(num_ranks, update)
    told = []

    def audited(world):
        trainer = trainer_kind(world.rank, server, asynchronous)
        training = AuditedTraining(
            trainer=trainer,
            backend=SimpleNamespace(
                asynchronous=asynchronous,
                num_accepted=num_accepted,
                served=served,
                in_step=not asynchronous and (num_accepted is None or issubclass(trainer_kind, BackedUp)),
            ),
            make_reference=lambda: Replica(world.rank),
            control=world,
            bounds=EXACT,
            passed=told.append,
            num_skipped=lambda: 0,
        )
        world.Barrier()
        audit = ServerAudit(training, trainer, trainer.replica)
        audit.opening()
        audit.warmed_up()
        audit.begin(NUM_WINDOWS)
        for window in range(NUM_WINDOWS):
            world.Barrier()
            audit.before(window)
            world.Barrier()
            for _ in range(WINDOW_STEPS):
                trainer.step()
            audit.count(WINDOW_STEPS)
            world.Barrier()
            audit.after(window)
        audit.end()
        return {gate.name: gate for gate in audit.gates()}

    results = on_ranks(num_ranks, audited, server.meeting)
    assert all(result == results[0] for result in results)
    return results[0], told


def checked(gates):
    return {name for name, gate in gates.items() if gate.value is not None}


def failed(gates):
    return {name for name, gate in gates.items() if not gate.passed}


def stops_after(num_updates):
    return lambda number, gradients: gradients if number < num_updates else [0 * one for one in gradients]


class OldServer(Server):
    """Has taken up many batches before."""

    def __init__(self, num_ranks, update):
        super().__init__(num_ranks, update)
        self.num_counted = 40_000


@pytest.mark.parametrize(
    ("optimizer", "share", "missed"),
    [("adagrad", 1 / 200, set()), ("adagrad", 1e-6, {"audit_movement"}), ("sgd", 1e-3, {"audit_movement"})],
)
def test_updates_of_adagrad_may_shrink_with_their_number(optimizer, share, missed):
    """After 40,000 equal gradients one is 1 / 200 of the first, which is less than 1 % of it."""
    gates, _ = run(
        lambda _, gradients: [share * gradient for gradient in gradients],
        kind=OldServer,
        served=Options(optimizer=optimizer),
    )
    assert failed(gates) == missed


def test_servers_that_apply_what_comes_pass():
    gates, told = run()
    assert failed(gates) == set()
    assert checked(gates) == {"audit_movement", "audit_count"}
    assert "not audited" in gates["audit_step"].detail
    assert told == [2, 2]
    gates, told = run(asynchronous=False)
    assert failed(gates) == set()
    assert checked(gates) == {"audit_opening", "audit_movement", "audit_count", "audit_samples"}
    assert gates["audit_opening"].value < 1e-6
    assert sorted(told) == [2, 2] + [OPENING_STEPS] * 2


LATER = OPENING_STEPS + WINDOW_STEPS


class StandsStill(Trainer):
    """From some step on it only says that it steps."""

    def step(self):
        if self.replica.number < LATER:
            super().step()


class AnotherShard(Trainer):
    def step(self):
        super().step()
        if self.replica.number == LATER:
            self.replica.rank = 0


class CountsTwice(Server):
    def push(self, gradients):
        self.num_counted += 1
        return super().push(gradients)


def halving(number, gradients):
    return [one * np.float32(0.5) for one in gradients] if number else gradients


def broken(number, gradients):
    return gradients if number < 5 else [one * np.float32(np.nan) for one in gradients]


TOGETHER = {"asynchronous": False}
LAST = WINDOW_STEPS * NUM_WINDOWS
FAULTS = {
    "stops": ({"update": stops_after(3)}, {"audit_movement"}),
    "stops, together": ({"update": stops_after(3)} | TOGETHER, {"audit_opening", "audit_movement"}),
    "stops after the windows": ({"update": stops_after(2 * LAST)}, {"audit_movement"}),
    "stops after the windows, together": (
        {"update": stops_after(OPENING_STEPS + LAST)} | TOGETHER,
        {"audit_movement"},
    ),
    "stops after the windows of the first to come": (
        {"update": stops_after(LAST), "num_accepted": 2} | TOGETHER,
        {"audit_movement"},
    ),
    "halves from its second update": ({"update": halving} | TOGETHER, {"audit_opening"}),
    # One worker's steps can be replayed whatever the servers wait for.
    "halves for one worker": ({"update": halving, "num_ranks": 1}, {"audit_opening"}),
    "counts twice": ({"kind": CountsTwice}, {"audit_count"}),
    "no numbers do not count as moved": ({"update": broken}, {"audit_movement"}),
    "another shard": ({"trainer_kind": AnotherShard} | TOGETHER, {"audit_samples"}),
    "a worker stands still": (
        {"trainer_kind": StandsStill} | TOGETHER,
        {"audit_movement", "audit_count", "audit_samples"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_fails_the_audits_that_see_it(name):
    options, names = FAULTS[name]
    gates, _ = run(**options)
    assert failed(gates) == names
    if name.startswith("stops,"):
        assert gates["audit_movement"].value == 0


def test_where_only_the_first_gradients_count_the_opening_is_not_replayed():
    gates, told = run(asynchronous=False, num_accepted=1)
    assert checked(gates) == {"audit_movement"}
    assert told == [2, 2]


class BackedUp(Trainer):
    """Rank 0's gradients make the updates. The others' come late; in every third step they compute none."""

    computed, last = 0, None

    def step(self):
        number = self.number = getattr(self, "number", -1) + 1
        mine, self.last = self.replica.rank == 0, None
        gradients = [0 * tensor for tensor in self.replica.weights()]
        if mine or number % 3 < 2:
            gradients = self.replica.gradients()
            self.computed += 1
            self.last = [np.full_like(tensor, mine) for tensor in gradients]
        used = [2 * one if mine else 0 * one for one in gradients]
        self.replica.load(self.server.push_together(self.replica.rank, used))

    def num_applied(self):
        return self.server.num_updates

    def taken(self):
        return self.last

    def num_computed(self):
        return self.computed


class Liar(BackedUp):
    """Says that the other rank's gradients were taken."""

    def taken(self):
        return self.last and [1 - part for part in self.last]


def test_updates_of_the_first_to_come_are_replayed_with_those_that_came():
    gates, _ = run(asynchronous=False, num_accepted=1, trainer_kind=BackedUp)
    assert failed(gates) == set()
    assert gates["audit_opening"].value < 1e-6
    assert "audit_samples" in checked(gates)
    assert "audit_opening" in failed(run(asynchronous=False, num_accepted=1, trainer_kind=Liar)[0])


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_an_algorithms_turns_are_audited_whole_and_its_beginning_not(num_ranks):
    """Its rule is the servers', and not that of the reference's own optimizer."""
    gates, told = run(num_ranks=num_ranks, served=Options(fetch_every=2, push_every=3))
    assert failed(gates) == set()
    assert "audit_opening" not in checked(gates)
    assert told == [1 + 6] * num_ranks


def test_ranks_of_a_group_have_their_turn_together():
    assert failed(run(num_ranks=3, served=Options(groups=2))[0]) == set()
