"""The gates before any timing, with ranks as threads and numbers that floats hold exactly."""

import math
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from dlscale.benchmarks.rank.gates import control_gate, update_gates
from dlscale.models.workload import NUM_DRAWN, WEIGHT, Shard, counted
from tests.benchmarks.rank.threads import Meeting, on_ranks

SEED = 5


class Replica:
    """Two tensors, whose gradients depend on the rank, the weights, and on whether it is the replica of a gate."""

    framework = "torch"

    def __init__(self, rank, seed, gate):
        self.rank, self.gate = rank, gate
        self._weights = [np.array([seed, 2.0]), np.array([-1.0 * seed])]

    def weights(self):
        return [weight.copy() for weight in self._weights]

    def load(self, weights):
        self._weights = [weight.copy() for weight in weights]

    def gradients(self):
        own = [np.array([1.0, -2.0]) * (self.rank + 1), np.array([4.0 - 8.0 * self.rank])]
        return [g + w / 16 + (0 if self.gate else 0.5) for g, w in zip(own, self._weights, strict=True)]

    def apply(self, gradients):
        self._weights = [w - g for w, g in zip(self._weights, gradients, strict=True)]

    def held(self, *, slots=True):  # noqa: ARG002 - plain SGD keeps nothing
        return {f"{WEIGHT}.{place}": weight for place, weight in enumerate(self._weights)}

    def state(self):
        return {NUM_DRAWN: counted(0)} | self.held()

    def restore(self, state):
        self.load([state[f"{WEIGHT}.{place}"] for place in range(len(self._weights))])


class Ranks:
    """A backend that exchanges gradients between threads, and what it was asked for.

    `harm` changes the gradients that a rank hands over, `spoil` the weights after a step; both are given the number of
    steps that the rank has taken.
    """

    def __init__(self, num_ranks, **options):
        self.num_ranks = num_ranks
        self.asynchronous = options.get("asynchronous", False)
        exchanges = options.get("exchanges", True)
        self.capabilities = SimpleNamespace(exchanges=exchanges, servers=self.asynchronous)
        self.delay = options.get("delay", 0)
        self.late = options.get("late", self.delay)
        self.compressor = self.rounds = None
        self.served = None
        self.broadcasts = options.get("broadcasts", True)
        self.root = options.get("root", 0)
        self.harm = options.get("harm", lambda _rank, _num_steps, gradients: gradients)
        self.spoil = options.get("spoil", lambda _rank, _num_steps, weights: weights)
        self.wires = Meeting(num_ranks)
        self.lock = threading.Lock()
        self.seeds, self.order, self.num_open = [], [], 0
        self.shared = None  # weights, of asynchronous ranks

    def factory(self, *, shard, seed, gate=False):
        return Replica(shard.index, seed, gate)

    def distribute(self, factory, *, shard, seed, gate=False):
        replica = factory(shard=shard, seed=seed, gate=gate)
        with self.lock:
            self.seeds.append(seed)
            self.num_open += 1
        if self.capabilities.exchanges and self.broadcasts:
            replica.load(self.wires.exchange(shard.index, "distribute", replica.weights())[self.root])
        if self.asynchronous:
            self.shared = replica.weights()
            self.wires.exchange(shard.index, "distributed", None)
        return Trainer(self, replica, shard)

    def gates(self, precision="fp32"):
        """What each rank is given; any rank's error is raised."""
        shards = [Shard(index=rank, count=self.num_ranks) for rank in range(self.num_ranks)]

        def gates(world):
            options = {"control": world, "shard": shards[world.rank], "seed": SEED}
            return update_gates(self, self.factory, precision=precision, **options)

        return on_ranks(self.num_ranks, gates, self.wires.barrier)


class Trainer:
    """Plain SGD with learning rate 1, on the mean of all gradients or on those of one rank in its turn."""

    def __init__(self, backend, replica, shard):
        self.backend, self.replica, self.rank = backend, replica, shard.index
        self.pipeline = [None] * backend.late
        self.num_steps = 0

    def step(self):
        backend, rank = self.backend, self.rank
        gradients = backend.harm(rank, self.num_steps, self.replica.gradients())
        self.num_steps += 1
        if backend.asynchronous:
            with backend.lock:
                backend.order.append(rank)
                backend.shared = [w - g for w, g in zip(backend.shared, gradients, strict=True)]
                weights = backend.shared
        else:
            self.pipeline.append(self._mean(gradients))
            change = self.pipeline.pop(0)
            weights = self.replica.weights()
            if change is not None:
                weights = [w - g for w, g in zip(weights, change, strict=True)]
        self.replica.load(backend.spoil(rank, self.num_steps, weights))

    def _mean(self, gradients):
        if not self.backend.capabilities.exchanges:
            return gradients
        handed = self.backend.wires.exchange(self.rank, "step", gradients)
        return [sum(parts) / len(handed) for parts in zip(*handed, strict=True)]

    def synchronize(self):
        pass

    def weights(self):
        return self.replica.weights()

    def settings(self):
        return {}

    def held(self, *, slots=True):
        return self.replica.held(slots=slots)

    def state(self):
        return self.replica.state()

    def served_state(self):
        self.replica.load(self.backend.shared)
        return self.replica.state()

    def close(self):
        with self.backend.lock:
            self.backend.num_open -= 1


def verdicts(results):
    """Name -> whether it passed, the same on all ranks."""
    by_rank = [{gate.name: gate.passed for gate in gates} for gates in results]
    assert all(rank == by_rank[0] for rank in by_rank)
    return by_rank[0]


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_the_mean_of_all_gradients_passes(num_ranks):
    backend = Ranks(num_ranks)
    results = backend.gates()
    assert verdicts(results) == {"broadcast": True, "gradient": True}
    assert results[0][1].value == 0.0
    assert sorted(backend.seeds) == [SEED + rank for rank in range(num_ranks)]
    assert backend.num_open == 0


def test_without_a_backend_each_rank_has_its_own_gradient():
    results = Ranks(2, exchanges=False).gates()
    assert verdicts(results) == {"gradient": True}


def only_on(rank, change):
    """Harm to the gradients of one rank."""
    return lambda index, _, gradients: [change(g) for g in gradients] if index == rank else gradients


def one_rank_went_wrong(rank, _, weights):
    return [w + 0.5 * (rank == 1) for w in weights]


def only_skipped_at_the_start(_, num_steps, gradients):
    return [g * (num_steps > 0) for g in gradients]


FAULTS = {
    "wrong gradients of rank 0": (3, {"harm": only_on(0, lambda g: g * 1.01)}, {"gradient"}),
    "wrong gradients of rank 1": (3, {"harm": only_on(1, lambda g: g * 1.01)}, {"gradient"}),
    "wrong gradients of rank 2": (3, {"harm": only_on(2, lambda g: g * 1.01)}, {"gradient"}),
    "of ranks alone": (2, {"exchanges": False, "harm": only_on(1, lambda g: 2 * g)}, {"gradient"}),
    "wrong weights of one rank": (3, {"spoil": one_rank_went_wrong}, {"gradient"}),
    "weights that were not broadcast": (3, {"broadcasts": False}, {"broadcast"}),
    "another rank's weights": (3, {"root": 1}, {"broadcast"}),
    "another rank's between turns": (2, {"asynchronous": True, "root": 1}, {"broadcast"}),
    "nor between turns": (2, {"asynchronous": True, "broadcasts": False}, {"broadcast", "gradient"}),
    "weights that change too early": (2, {"delay": 1, "late": 0}, {"gradient"}),
    "skipped, not late": (2, {"delay": 1, "late": 0, "harm": only_skipped_at_the_start}, {"gradient"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_fails_its_gates_on_all_ranks(name):
    num_ranks, options, gates = FAULTS[name]
    assert {
        gate for gate, passed in verdicts(Ranks(num_ranks, **options).gates()).items() if not passed
    } == gates


@pytest.mark.parametrize("delay", [1, 2])
def test_gradients_that_are_late_by_what_was_said(delay):
    results = Ranks(2, delay=delay).gates()
    assert verdicts(results) == {"broadcast": True, "gradient": True}


@pytest.mark.parametrize(
    ("num_ranks", "order"),
    [(1, [0]), (2, [0, 1, 1, 0]), (3, [0, 1, 2, 2, 0, 1]), (4, [0, 1, 2, 3, 3, 0, 1, 2])],
)
def test_the_first_and_the_last_rank_both_take_the_first_turn(num_ranks, order):
    backend = Ranks(num_ranks, asynchronous=True)
    results = backend.gates()
    assert verdicts(results) == {"broadcast": True, "gradient": True}
    assert results[0][1].value == 0.0
    assert backend.order == order
    assert set(backend.seeds) == {SEED + rank for rank in range(num_ranks)}
    assert backend.num_open == 0


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize(
    "change", [lambda g: 2 * g, lambda g: -g, lambda g: g * math.nan], ids=["twice", "up", "nan"]
)
def test_a_turn_that_changes_the_weights_by_something_else_fails_all(rank, change):
    results = Ranks(3, asynchronous=True, harm=only_on(rank, change)).gates()
    assert verdicts(results) == {"broadcast": True, "gradient": False}


class OneForAll:
    """A control plane that knows this rank alone."""

    def __init__(self, world):
        self.world = world

    def __getattr__(self, name):
        return getattr(self.world, name)

    def allgather(self, value):
        return [value] * self.world.Get_size()


class WaitsForNobody(OneForAll):
    def allgather(self, value):
        return self.world.allgather(value)

    def Barrier(self):  # noqa: N802
        pass


@pytest.mark.parametrize(
    ("kind", "passed"), [(lambda world: world, True), (OneForAll, False), (WaitsForNobody, False)]
)
def test_a_control_plane_that_is_local_fails(kind, passed):
    assert [gate.passed for gate in on_ranks(3, lambda world: control_gate(kind(world)))] == [passed] * 3
