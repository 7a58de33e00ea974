"""What training over a backend does to one rank, and which samples it reads, said a second time for gates and audits.

A reference takes the steps of a trainer, from the state that the trainer had, by a replica that no backend touches.
What ranks exchange goes over the control plane. One class per rule: the mean of all ranks' gradients, whatever carries
them and compressed or not; elastic averaging, in rounds over collectives and one rank after the other on servers; and
Downpour.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlscale.benchmarks.rank.deviation import CENTRE, Bounds, Snapshot, noisy_weights, snapshot
from dlscale.collectives.algorithms import downpour, easgd
from dlscale.collectives.algorithms.rounds import RoundsTrainer
from dlscale.collectives.backend import OWN, SERVED, SERVED_COUNTS, Backend, CountingTrainer, Trainer
from dlscale.collectives.compression import CompressedTrainer
from dlscale.collectives.compression.compressors import BucketState
from dlscale.collectives.compression.halves import from_halves, to_halves
from dlscale.collectives.control import Communicator
from dlscale.models.samples import ORDER_SEED
from dlscale.models.workload import NUM_DRAWN, WEIGHT, Indices, Replica, Shard, State, Weights

FEWEST_PUSHES = 3  # of a turn on servers: one that ignores every second one is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedTraining:
    """A trainer, and what its replay needs beside it."""

    trainer: Trainer
    backend: Backend
    make_reference: Callable[[], Replica]  # with the samples and seed of the trainer's replica; called once
    control: Communicator  # of the ranks
    shard: Shard  # the trainer's
    bounds: Bounds
    passed: Callable[[int], None] = lambda _: None  # is given the number of steps outside of windows
    num_skipped: Callable[[], int] = lambda: 0  # samples that this rank left out so far
    held_out: float = 0.0  # share of the input's samples that no batch has
    order: int = 0  # of the samples, beside the order that all trainings share
    follow: Callable[[Replica, int], None] = lambda *_: None  # sets what that step has of its own
    step: Callable[[], None] | None = None  # takes an audited step; None: the trainer's own
    # Around what is no part of the training, so that nothing else is counted meanwhile.
    aside: Callable[[], AbstractContextManager[Any]] = nullcontext


class Reference:
    """A rank whose steps apply the mean of the gradients of the ranks that step together. Methods are collective.

    Steps are numbered as those of the training, the first is 0.
    """

    most_waiting = 0  # steps of a rank that servers may not have taken up yet

    def __init__(self, training: AuditedTraining) -> None:
        self._trainer, self._backend, self._control = training.trainer, training.backend, training.control
        self._bounds, self._follow = training.bounds, training.follow
        self.replica = replica = training.make_reference()
        self._sees_trainer = not self._backend.asynchronous and self._backend.rounds is None
        self.noisy: set[str] = set()  # tensors whose changes are rounding, of all steps so far
        self.turn = range(self._control.Get_size())  # the ranks whose mean is applied
        if replica.framework != "torch":  # whose optimizers make what they keep in their first step
            replica.apply([np.zeros_like(weight) for weight in replica.weights()])

    def turn_steps(self, num_taken: int, *, gate: bool) -> tuple[int, int]:  # noqa: ARG002
        """Steps of a rank's turn: those until a replay can begin, and those that are replayed."""
        return 0, FEWEST_PUSHES if self._backend.asynchronous and not gate else 1

    def state(self) -> State:
        """All that the trainer's next steps depend on, to `begin` with."""
        if self._backend.capabilities.servers:
            return cast(CountingTrainer, self._trainer).served_state()
        return self._trainer.state()

    def begin(self, state: State) -> None:
        """Be where the trainer was when `state` was that."""
        self.replica.restore(state)

    def seen(self) -> Snapshot:
        """All that steps change; valid until the next step."""
        return _changed(self.replica.held())

    def seen_in_trainer(self) -> Snapshot:
        """The same of the trainer as it is; valid until its next step. The reference is anywhere then."""
        if self._sees_trainer:
            return _changed(self._trainer.held())
        self.begin(self.state())
        return {name: array.copy() for name, array in self.seen().items()}

    def gradients(self, number: int) -> Weights:
        """What the update of that step is made of."""
        self._follow(self.replica, number)
        gradients = self._mean(self.replica.gradients())
        self.noisy |= noisy_weights(gradients, bounds=self._bounds)
        return gradients

    def apply(self, gradients: Weights, number: int) -> None:  # noqa: ARG002
        """Update by them."""
        self.replica.apply(gradients)

    def idle(self, num_steps: int) -> None:
        """Steps of a turn that other ranks have."""
        for _ in range(num_steps * (len(self.turn) > 1)):
            self._mean([np.zeros_like(weight) for weight in self.replica.weights()])

    def _mean(self, gradients: Weights) -> Weights:
        if not self._backend.capabilities.exchanges or len(self.turn) == 1:
            return gradients
        return mean_over_ranks(gradients, control=self._control, count=len(self.turn))


class Compressed(Reference):
    """The mean of what ranks' messages say, compressed by the same rule from what the trainer had left over.

    What travels, by which operation, into which bucket and with which residual is the backend's doing, and is what is
    checked. The compressors themselves are tested against references of their own (tests/collectives/compression).
    """

    def turn_steps(self, num_taken: int, *, gate: bool) -> tuple[int, int]:  # noqa: ARG002
        """For a gate a second step, which sends what the first left over."""
        return 0, 2 if gate else 1

    def state(self) -> State:
        return super().state() | self._trainer.own_state()

    def begin(self, state: State) -> None:
        self._kept: dict[int, BucketState] = {}
        for name in [name for name in state if name.startswith(OWN)]:
            number, _, kept = name.removeprefix(f"{OWN}bucket").partition(".")
            self._kept.setdefault(int(number), {})[kept] = state[name].copy()
        super().begin({name: value for name, value in state.items() if not name.startswith(OWN)})

    def _mean(self, gradients: Weights) -> Weights:
        trainer, compressor = cast(CompressedTrainer, self._trainer), self._backend.compressor
        flat = np.empty(sum(gradient.size for gradient in gradients), np.float32)
        places = _shaped(np.arange(flat.size), [gradient.shape for gradient in gradients])
        buckets = zip(trainer.flat(places), trainer.flat(gradients), strict=True)
        for index, (place, bucket) in enumerate(buckets):
            if self._control.Get_size() > 1 and compressor:
                compressor.average(bucket, self._kept.setdefault(index, {}), _Carrier(self._control))
            flat[place] = bucket
        return [flat[place].copy() for place in places]


class _Carrier:
    """What compressors ask of a collective, by the control plane alone (`compression.compressors.Carrier`)."""

    def __init__(self, control: Any) -> None:
        self._control = control
        self.rank: int = control.Get_rank()
        self.size: int = control.Get_size()

    def allgather_bytes(self, message: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        messages: list[NDArray[np.uint8]] = self._control.allgather(message)
        return messages

    def average_halves(self, values: NDArray[Any]) -> None:
        total = np.sum(self._control.allgather(from_halves(values)), axis=0, dtype=np.float64)
        values[:] = to_halves(np.asarray(total / self.size, np.float32), values.dtype)


class Centred(Reference):
    """A rank that trains by its own optimizer and exchanges weights now and then; a centre is what was learnt."""

    def __init__(self, training: AuditedTraining, options: Any) -> None:
        super().__init__(training)
        self._options, self._in_rounds = options, not self._backend.capabilities.servers
        self.most_waiting = options.interval

    def turn_steps(self, num_taken: int, *, gate: bool) -> tuple[int, int]:
        """A round, in which the rank exchanges once; in step with others a step is enough."""
        if self._in_rounds:
            return 0, 1
        return 0, max(self._options.interval + (num_taken == 0), FEWEST_PUSHES * (not gate))

    def state(self) -> State:
        if not self._in_rounds:
            return super().state()
        trainer = cast(RoundsTrainer, self._trainer)
        centre = {f"{SERVED}0.{place}": weight for place, weight in enumerate(trainer.weights())}
        state: State = trainer.state()
        return state | centre

    def begin(self, state: State) -> None:
        self.replica.restore({k: value for k, value in state.items() if not k.startswith(SERVED)})
        self._own = self.replica.weights()
        self._centre = [state[f"{SERVED}0.{place}"] for place in range(len(self._own))]

    def seen(self) -> Snapshot:
        return snapshot(self._own, self.replica.slots(), centre=self._centre)

    def gradients(self, number: int) -> Weights:
        gradients = super().gradients(number)
        # The others' rounding arrives here with their weights.
        names = self.noisy.union(*self._control.allgather(self.noisy)) if self._in_rounds else self.noisy
        self.noisy = names | {name.replace(WEIGHT, CENTRE, 1) for name in names}
        return gradients

    def _mean(self, gradients: Weights) -> Weights:
        return gradients


class Elastic(Centred):
    """A rank that is tied to the centre (`algorithms.easgd`).

    In a step that exchanges the centre moves by the forces of all ranks, or on servers by this rank's alone.
    """

    def __init__(self, training: AuditedTraining, options: easgd.Options) -> None:
        super().__init__(training, options)
        self._share = np.float32(options.moving_rate / self._control.Get_size())

    def apply(self, gradients: Weights, number: int) -> None:
        own, force = self._own, None
        if number and number % self._options.interval == 0:
            force = [self._share * (x - c) for x, c in zip(own, self._centre, strict=True)]
            total = mean_over_ranks(force, control=self._control, count=1) if self._in_rounds else force
            self._centre = [c + f for c, f in zip(self._centre, total, strict=True)]
        self.replica.apply(gradients)
        self._own = self.replica.weights()
        if force:
            self._own = [new - f for new, f in zip(self._own, force, strict=True)]
        self.replica.load(self._own)


class Downpour(Reference):
    """A rank that fetches and pushes, and servers with a rule of their own (`algorithms.downpour`).

    It begins where the rank fetches next and has nothing accrued.
    """

    def __init__(self, training: AuditedTraining, options: downpour.Options) -> None:
        super().__init__(training)
        self._options, self.most_waiting = options, options.push_every - 1
        self._rate = float(self._trainer.settings()["learning_rate"])
        self._shapes = [weight.shape for weight in self.replica.weights()]

    def turn_steps(self, num_taken: int, *, gate: bool) -> tuple[int, int]:
        """From a fetch with nothing accrued to the next."""
        period = math.lcm(self._options.fetch_every, self._options.push_every)
        return -num_taken % period, period * (1 if gate else math.ceil(FEWEST_PUSHES / period))

    def begin(self, state: State) -> None:
        own = {name: value for name, value in state.items() if not name.startswith(SERVED)}
        self.replica.restore(self.replica.state() | own)
        options = self._options
        self._weights = _flat([state[f"{SERVED}0.{place}"] for place in range(len(self._shapes))])
        self._rule = downpour.Rule(options.optimizer, self._weights.size, momentum=options.momentum)
        for number, kept in enumerate(self._rule.kept, start=1):
            kept[:] = _flat([state[f"{SERVED}{number}.{place}"] for place in range(len(self._shapes))])
        self._rule.num_updates = int(state[SERVED_COUNTS][0])
        self._local, self._accrued = self._weights.copy(), np.zeros_like(self._weights)

    def seen(self) -> Snapshot:
        kept = {
            f"optimizer0.{place}.kept{number}": part
            for number, array in enumerate(self._rule.kept)
            for place, part in enumerate(_shaped(array.copy(), self._shapes))
        }
        return snapshot(_shaped(self._weights.copy(), self._shapes), kept)

    def gradients(self, number: int) -> Weights:
        if number % self._options.fetch_every == 0:
            self._local = self._weights.copy()
        self.replica.load(_shaped(self._local, self._shapes))
        return super().gradients(number)

    def apply(self, gradients: Weights, number: int) -> None:
        gradient = _flat(gradients)
        self._accrued += gradient
        self._local -= np.float32(self._rate) * gradient
        if (number + 1) % self._options.push_every == 0:
            self._rule.apply(self._weights, self._accrued, self._rate)
            self._accrued = np.zeros_like(self._accrued)


# By the options of an algorithm.
RULES: dict[type, Callable[..., Reference]] = {easgd.Options: Elastic, downpour.Options: Downpour}


def reference_of(training: AuditedTraining, *, gate: bool = False) -> Reference:
    """That of the rule by which a backend trains; of a `gate`'s trainer, whose rounds are short."""
    backend = training.backend
    options = backend.rounds if backend.rounds is not None else backend.served
    if options is not None:
        return RULES[type(options)](training, options.for_gate() if gate else options)
    return Compressed(training) if backend.compressor else Reference(training)


def mean_over_ranks(gradients: Sequence[Any], *, control: Any, count: int | None = None) -> Weights:
    """The means in the gradients' own type, summed over `control` in float64; of two in that type, rounded as once.

    The sum is divided by `count`, else by the number of ranks. Arrays are summed as they lie in memory, which must be
    alike on all ranks but where they are zero.
    """
    num_ranks = control.Get_size()
    if num_ranks == 1:
        return list(gradients)
    means = [np.empty_like(gradient, order="K") for gradient in gradients]
    for gradient, mean in zip(gradients, means, strict=True):
        source, into = gradient.ravel(order="K"), mean.ravel(order="K")  # a view: `mean` has no gaps
        total = np.divide(source, count or num_ranks, dtype=None if num_ranks == 2 else np.float64)
        control.Allreduce(None, total)
        into[:] = total
    return means


def _changed(held: State) -> Snapshot:
    """What a step changes of what is held: all but the number of batches."""
    return {name: value for name, value in held.items() if name != NUM_DRAWN}


def _shaped(flat: NDArray[Any], shapes: Sequence[tuple[int, ...]]) -> Weights:
    """Parts of a flat array, in order."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends), shapes, strict=True)]


def _flat(arrays: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    return np.concatenate([array.reshape(-1) for array in arrays])


def num_wrong_samples(
    replica: Replica, step: int, *, shard: Shard, held_out: float = 0.0, order: int = 0
) -> int:
    """How many samples that a replica read last are not, by definition, those of this shard of `step`."""
    found = replica.last_samples()
    if found is None:
        return 0
    trained = np.flatnonzero(~all_held_out(replica.num_samples(), share=held_out))
    place = (step * shard.count + shard.index) * len(found)
    return int(np.sum(found != trained[samples_at(place, len(found), num_samples=len(trained), order=order)]))


@lru_cache(maxsize=1)  # hashing a million samples takes a second
def all_held_out(num_samples: int, *, share: float) -> NDArray[np.bool_]:
    """Which samples no training may see: those whose index's hash, as a part of all hashes, is below the share.

    `models.held_out` selects by the same rule. The array is not to be changed.
    """
    if not share:
        return np.zeros(num_samples, np.bool_)
    limit = math.ceil(share * 2**64)
    hashes = (
        hashlib.blake2b(struct.pack("<Q", index), digest_size=8).digest() for index in range(num_samples)
    )
    return np.array([int.from_bytes(found, "little") < limit for found in hashes], np.bool_)


def samples_at(first: int, count: int, *, num_samples: int, order: int = 0) -> Indices:
    """Samples at so many places, from `first` on, of the endless row of shuffled epochs that all ranks train on.

    `models.samples.shard_indices` cuts shards from it; an audit by the same lines would be none.
    """
    places = np.arange(first, first + count)
    return np.array(
        [_epoch(place // num_samples, num_samples, order)[place % num_samples] for place in places]
    )


@lru_cache(maxsize=2)  # a batch may reach into the next one
def _epoch(number: int, num_samples: int, order: int) -> Indices:
    return np.random.default_rng((ORDER_SEED + order, int(number))).permutation(num_samples)
