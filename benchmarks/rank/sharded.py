"""The gate of sharded training: its first steps, gathered, are those of a training that nobody shards."""

from __future__ import annotations

from typing import Any

from dlscale.benchmarks.rank.deviation import Judged, Snapshot, bounds_for, deviation, noisy_weights
from dlscale.benchmarks.rank.replaying import judged_gate, make_slots, mean_over_ranks
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.backend import Backend
from dlscale.models.weights import NUM_DRAWN
from dlscale.models.workload import ReplicaFactory, Shard, State

NUM_STEPS = 3  # a part that is updated from an old one of another rank shows in the second


def sharding_gate(
    backend: Backend, factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> Gate:
    """Weights and what the network's own optimizer keeps, after a few steps; collective.

    Beside them a replica that has everything takes the same steps, with gradients that are averaged over the control
    plane. A part that is not updated, or twice, or is gathered as it was before a step, deviates.
    """
    own_seed = seed + shard.index
    trainer = backend.distribute(factory, shard=shard, seed=own_seed)
    try:
        state = trainer.state()
        reference = factory(shard=shard, seed=own_seed, drawn=False)
        make_slots(reference)
        reference.restore(state)
        before = {name: value.copy() for name, value in _changed(trainer.held()).items()}
        bounds = bounds_for(precision=precision, wire=backend.wire, device=reference.device)
        noisy: set[str] = set()
        for _ in range(NUM_STEPS):
            trainer.step()
            gradients = mean_over_ranks(reference.gradients(), control=control, order="K")
            noisy |= noisy_weights(gradients, bounds=bounds)
            reference.apply(gradients)
        trainer.synchronize()
        judged = Judged(bounds.window)
        changes = before, _changed(trainer.held()), _changed(reference.held())
        judged.add(deviation(*changes, bounds=bounds, noisy=noisy).share)
    finally:
        trainer.close()
    detail = f"change of each tensor in {NUM_STEPS} steps, gathered, against a training without shards"
    return judged_gate("sharding", judged, detail, control=control)


def _changed(held: State) -> Snapshot:
    return {name: value for name, value in held.items() if name != NUM_DRAWN}
