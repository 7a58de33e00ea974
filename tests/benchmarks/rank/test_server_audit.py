"""Audits of training on servers: all that they hold is replayed, in step or in turns, and windows have to move."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from dlscale.benchmarks.rank.audit import ReplayAudit
from dlscale.benchmarks.rank.deviation import EXACT
from dlscale.benchmarks.rank.reference import AuditedTraining
from dlscale.benchmarks.rank.sample_order import samples_at
from dlscale.benchmarks.records.record import SERVER_AUDITS
from dlscale.models.weights import NUM_DRAWN, WEIGHT, counted
from dlscale.models.workload import Shard
from tests.benchmarks.rank.threads import on_ranks

NUM_WINDOWS, WINDOW_STEPS = 4, 3


MOMENTUM = np.float32(0.875)


class Replica:
    """SGD with momentum of two tensors, with a gradient that depends on rank, step and weights."""

    framework = "torch"

    def __init__(self, rank, num_ranks=2):
        self.rank, self.number, self.num_ranks = rank, 0, num_ranks
        self.tensors = [np.linspace(1, 2, 6, dtype=np.float32), np.array([0.5, -0.5], np.float32)]
        self.kept = [0 * tensor for tensor in self.tensors]

    def state(self):
        kept = {f"optimizer0.u.{place}": tensor.copy() for place, tensor in enumerate(self.kept)}
        network = {f"network0.{place}": tensor.copy() for place, tensor in enumerate(self.tensors)}
        return kept | network | {NUM_DRAWN: counted(self.number)}

    def slots(self):
        return {name: value for name, value in self.state().items() if name.startswith("optimizer")}

    def held(self, *, slots=True):
        weights = {f"{WEIGHT}.{place}": tensor for place, tensor in enumerate(self.tensors)}
        return {NUM_DRAWN: counted(self.number)} | weights | (self.slots() if slots else {})

    def restore(self, state):
        self.tensors, self.kept = (
            [state[f"{name}.{place}"].copy() for place in range(2)] for name in ("network0", "optimizer0.u")
        )
        self.number = int(state[NUM_DRAWN][0])

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
        for tensor, u, gradient in zip(self.tensors, self.kept, gradients, strict=True):
            u[:] = MOMENTUM * u + gradient
            tensor -= np.float32(0.125) * u


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

    def held(self, *, slots=True):
        return self.replica.held(slots=False) | (self.server.held.slots() if slots else {})

    def num_applied(self):
        return self.server.num_counted

    def served_state(self):
        self.replica.load(self.server.held.weights())  # the next step begins with them
        held = self.server.held.state()
        return held | {NUM_DRAWN: self.replica.state()[NUM_DRAWN]}


def run(
    update=lambda _, gradients: gradients,
    *,
    num_ranks=2,
    asynchronous=True,
    num_accepted=None,
    kind=Server,
    trainer_kind=Trainer,
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
                served=None,
                shard="none",
                delay=0,
                rounds=None,
                compressor=None,
                capabilities=SimpleNamespace(servers=True, exchanges=True),
                in_step=not asynchronous and (num_accepted is None or issubclass(trainer_kind, BackedUp)),
            ),
            make_reference=lambda: Replica(world.rank, num_ranks),
            control=world,
            shard=Shard(index=world.rank, count=num_ranks),
            bounds=EXACT,
            passed=told.append,
        )
        world.Barrier()
        audit = ReplayAudit(training)
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


ALL = set(SERVER_AUDITS)
IN_TURN = {"audit_step", "audit_scale", "audit_samples", "audit_count"}


@pytest.mark.parametrize(
    ("options", "looked_at"),
    [
        ({}, IN_TURN),
        ({"num_ranks": 1}, IN_TURN),
        ({"asynchronous": False}, IN_TURN | {"audit_window"}),
    ],
)
def test_servers_that_apply_what_comes_pass(options, looked_at):
    gates, told = run(**options)
    assert failed(gates) == set()
    assert checked(gates) == looked_at
    assert gates.keys() == ALL
    assert gates["audit_step"].value < 1e-6
    assert sum(told) > 0


LATER = 1  # step, which is looked at


class AnotherShard(Trainer):
    def step(self):
        super().step()
        if self.replica.number == LATER:
            self.replica.rank = 0


class CountsTwice(Server):
    def push(self, gradients):
        self.num_counted += 1
        return super().push(gradients)


def broken(number, gradients):
    return gradients if number < 5 else [one * np.float32(np.nan) for one in gradients]


TOGETHER = {"asynchronous": False}
LAST = WINDOW_STEPS * NUM_WINDOWS
REPLAYED = {"audit_step", "audit_scale"}


def one_tensor_stops(number, gradients):
    return gradients if number < 2 else [gradients[0], 0 * gradients[1]]


def a_little_less(number, gradients):
    return gradients if number < 3 else [gradient * np.float32(0.99) for gradient in gradients]


def every_second_of_one_tensor(number, gradients):
    return [gradients[0], gradients[1] * np.float32(number % 2)]


FAULTS = {
    "takes every second push for one tensor": ({"update": every_second_of_one_tensor}, REPLAYED),
    "stops": ({"update": stops_after(2)}, REPLAYED),
    "stops, together": ({"update": stops_after(2)} | TOGETHER, REPLAYED | {"audit_window"}),
    "stops after the windows": ({"update": stops_after(2 * LAST + 4)}, REPLAYED),
    "stops after the windows, together": ({"update": stops_after(1 + LAST)} | TOGETHER, REPLAYED),
    "stops for one tensor": ({"update": one_tensor_stops}, REPLAYED),
    "stops for one tensor, together": ({"update": one_tensor_stops} | TOGETHER, REPLAYED | {"audit_window"}),
    "takes a little less": ({"update": a_little_less}, REPLAYED),
    "takes a little less, together": ({"update": a_little_less} | TOGETHER, REPLAYED),
    "counts twice": ({"kind": CountsTwice}, {"audit_count"}),
    "counts twice, together": ({"kind": CountsTwice} | TOGETHER, {"audit_count"}),
    "no numbers do not count as moved": ({"update": broken}, REPLAYED),
    "another shard": ({"trainer_kind": AnotherShard} | TOGETHER, REPLAYED | {"audit_window"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_fails_the_audits_that_see_it(name):
    options, names = FAULTS[name]
    gates, _ = run(**options)
    assert failed(gates) == names


def test_of_the_first_to_come_nothing_is_known():
    gates, told = run(asynchronous=False, num_accepted=2)
    assert (checked(gates), failed(gates), sum(told)) == (set(), set(), 0)
    assert "whose gradients an update took is not known" in gates["audit_step"].detail


class BackedUp(Trainer):
    """Rank 0's gradients make the updates. The others' come late; in every third step they compute none."""

    computed = 0

    def step(self):
        self.all = getattr(self, "all", [])
        number, mine = len(self.all), self.replica.rank == 0
        self.all.append(None)
        gradients = [0 * tensor for tensor in self.replica.weights()]
        if mine or number % 3 < 2:
            gradients = self.replica.gradients()
            self.computed += 1
            self.all[-1] = [np.full_like(tensor, mine) for tensor in gradients]
        used = [2 * one if mine else 0 * one for one in gradients]
        self.replica.load(self.server.push_together(self.replica.rank, used))

    def num_applied(self):
        return self.server.num_updates

    def taken(self, step):
        return self.all[step]

    def num_computed(self):
        return self.computed


class Liar(BackedUp):
    """Says that the other rank's gradients were taken."""

    def taken(self, step):
        return self.all[step] and [1 - part for part in self.all[step]]


def test_updates_of_the_first_to_come_are_replayed_with_those_that_came():
    gates, _ = run(asynchronous=False, num_accepted=1, trainer_kind=BackedUp)
    assert failed(gates) == set()
    assert checked(gates) == IN_TURN | {"audit_window"}
    assert "audit_step" in failed(run(asynchronous=False, num_accepted=1, trainer_kind=Liar)[0])
