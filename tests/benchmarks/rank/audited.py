"""A training of two tensors whose ranks are threads, audited as a timed one: what audits are tried on."""

from types import SimpleNamespace

import numpy as np

from dlscale.benchmarks.rank.audit import ReplayAudit
from dlscale.benchmarks.rank.deviation import EXACT
from dlscale.benchmarks.rank.reference import AuditedTraining
from dlscale.models.samples import ORDER_SEED, shard_indices
from dlscale.models.workload import NUM_DRAWN, WEIGHT, Shard, counted
from tests.benchmarks.rank.threads import Meeting, on_ranks

LOCAL_BATCH = 4
WARM_UP, NUM_WINDOWS, WINDOW_STEPS = 10, 6, 5
LATER = 16  # a step long after the first audit
NUM_SAMPLES = 30  # a step of two ranks reaches over the end of an epoch now and then


class Replica:
    """SGD with momentum; a sample's gradient depends on itself and on the weights."""

    framework = "torch"

    def __init__(self, shard, num_read=LOCAL_BATCH):
        self.shard, self.num_read, self.num_drawn = shard, num_read, 0
        self.tensors = [np.linspace(1, 2, 6, dtype=np.float32), np.array([0.5, -0.5], np.float32)]
        self.momenta = [np.zeros_like(tensor) for tensor in self.tensors]

    def weights(self):
        return [tensor.copy() for tensor in self.tensors]

    def gradients(self):
        rng = np.random.default_rng((self.shard.index, self.num_drawn))
        self.samples = next(
            shard_indices(
                NUM_SAMPLES, shard=self.shard, local_batch=LOCAL_BATCH, seed=ORDER_SEED, begin=self.num_drawn
            )
        )
        self.num_drawn += 1
        noise = [rng.standard_normal((LOCAL_BATCH, tensor.size)) for tensor in self.tensors]
        return [
            (tensor / 4 + 1 + values[: self.num_read].mean(axis=0)).astype(np.float32)
            for tensor, values in zip(self.tensors, noise, strict=True)
        ]

    def last_samples(self):
        return self.samples

    def num_samples(self):
        return NUM_SAMPLES

    def apply(self, gradients):
        for tensor, momentum, gradient in zip(self.tensors, self.momenta, gradients, strict=True):
            momentum[:] = np.float32(0.9) * momentum + gradient
            tensor -= np.float32(0.01) * momentum

    def state(self):
        kept = {
            f"optimizer0.{place}.momentum": momentum.copy() for place, momentum in enumerate(self.momenta)
        }
        network = {f"network0.{place}": tensor.copy() for place, tensor in enumerate(self.tensors)}
        return {NUM_DRAWN: counted(self.num_drawn)} | network | kept

    def slots(self):
        return {name: value for name, value in self.state().items() if name.startswith("optimizer")}

    def held(self, *, slots=True):
        weights = {f"{WEIGHT}.{place}": tensor for place, tensor in enumerate(self.tensors)}
        kept = self.slots() if slots else {}
        return {NUM_DRAWN: counted(self.num_drawn)} | weights | kept

    def restore(self, state):
        self.num_drawn = int(state[NUM_DRAWN][0])
        for place in range(len(self.tensors)):
            self.tensors[place][:] = state[f"network0.{place}"]
            self.momenta[place][:] = state[f"optimizer0.{place}.momentum"]


class Trainer:
    """Data-parallel training, `delay` steps late, with what a test plants in it.

    `fault(trainer, gradients of all ranks, their mean)` gives what is applied instead of the mean; None is nothing.
    """

    def __init__(self, replica, rank, meeting, fault, delay=0, settings=None):
        self.replica, self.rank, self.meeting, self.fault = replica, rank, meeting, fault
        self.pipeline, self.number, self.since_look = [None] * delay, -1, 0
        self.delay, self._settings = delay, settings or {}

    def step(self):
        self.number += 1
        self.since_look += 1
        until = self._settings.get("pipelined_until_step", 0)
        if until and self.number == until:
            self._apply(self.pipeline.pop())
        self.fault.begin(self)
        handed = self.meeting.exchange(self.rank, "step", self.replica.gradients())
        mean = [sum(parts) / np.float32(len(handed)) for parts in zip(*handed, strict=True)]
        found = self.fault.mean(self, handed, mean)
        if not until or self.number < until:
            self.pipeline.append(found)
            found = self.pipeline.pop(0)
        self._apply(found)

    def _apply(self, mean):
        if mean is not None:
            for _ in range(self.fault.times(self)):
                self.replica.apply(mean)

    def synchronize(self):
        pass

    def weights(self):
        return self.replica.weights()

    def state(self):
        self.since_look = 0
        return self.replica.state()

    def held(self, *, slots=True):
        return self.replica.held(slots=slots)

    def settings(self):
        return self._settings


class Fault:
    """None; a subclass has one."""

    def begin(self, trainer):
        pass

    def mean(self, _trainer, _handed, mean):
        return mean

    def times(self, _trainer):
        return 1


def run(
    fault=None,
    *,
    num_ranks=2,
    resumed_at=0,
    delay=0,
    settings=None,
    bounds=EXACT,
    skipped=0,
    kind=Replica,
    window_steps=WINDOW_STEPS,
):
    """{gate: (passed, gate)} of a training of 6 windows of 5 steps after a warm-up of 10."""
    wires, told = Meeting(num_ranks), []
    backend = SimpleNamespace(
        delay=delay,
        compressor=None,
        capabilities=SimpleNamespace(exchanges=True, servers=False),
        asynchronous=False,
        served=None,
        shard="none",
        rounds=None,
    )

    def audited(world):
        shard = Shard(index=world.rank, count=num_ranks)
        replica = kind(shard)
        replica.num_drawn = resumed_at
        trainer = Trainer(replica, world.rank, wires, fault or Fault(), delay, settings)
        audit = ReplayAudit(
            AuditedTraining(
                trainer=trainer,
                backend=backend,
                make_reference=lambda: kind(shard),
                control=world,
                shard=shard,
                bounds=bounds,
                passed=told.append,
                num_skipped=lambda: skipped if world.rank == num_ranks - 1 else 0,
            )
        )
        for _ in range(WARM_UP):
            trainer.step()
            audit.count(1)
        audit.begin(NUM_WINDOWS, num_steps=window_steps)
        for window in range(NUM_WINDOWS):
            audit.before(window)
            for _ in range(window_steps):
                trainer.step()
            audit.count(window_steps)
            audit.after(window)
        audit.end()
        return {gate.name: gate for gate in audit.gates()}

    results = on_ranks(num_ranks, audited, wires.barrier)
    assert all(result == results[0] for result in results), "ranks agree"
    return results[0] | {"told": told}


def failed(gates):
    return {name for name, gate in gates.items() if name != "told" and not gate.passed}
