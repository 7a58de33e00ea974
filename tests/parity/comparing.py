"""A workload's networks in two frameworks are the same program.

Structure is compared for every preset: names and shapes of all weights, parameters, FLOPs. Numbers are compared for
one: from the same weights and the same batches, the networks' outputs, the gradients, and the loss of the first and of
the fourth step, both frameworks training with their own optimizers. Rule M27 of the methodology.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dlscale.benchmarks.rank.gates import SHIFT
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.registry import connect
from dlscale.models.frameworks import FRAMEWORKS
from dlscale.models.workload import Execution, Input, Replica, Shard, Weights, Workload

SEED = 1
NUM_STEPS = 3

# Of the outputs' largest value, of the gradient's norm, of the loss. What float32 leaves after sums in another
# order, some ten layers deep; bfloat16 keeps 8 bits, and the frameworks round at different places.
TOLERANCES = {
    "fp32": {"outputs": 1e-4, "gradient": 1e-3, "loss": 1e-5, "loss_after": 1e-3},
    "bf16": {"outputs": 5e-2, "gradient": 2e-1, "loss": 2e-2, "loss_after": 1e-1},
}


def structure(workload: Workload, preset: str, frameworks: tuple[str, str] = FRAMEWORKS) -> Iterator[Gate]:
    """Names, shapes, parameters and FLOPs of a preset, between the frameworks and against its facts."""
    facts = workload.preset(preset)
    pair = Pair(workload, preset, "fp32", local_batch=2, frameworks=frameworks).built()
    layers = [
        list(zip(replica.names(), (weight.shape for weight in replica.weights()), strict=True))
        for replica in pair
    ]
    differing = [pair for pair in zip(*layers, strict=False) if pair[0] != pair[1]]
    differing_count = len(differing) + abs(len(layers[0]) - len(layers[1]))
    first = f", first {differing[0]}" if differing else ""
    detail = f"{len(layers[0])}; {differing_count} differ in name or shape{first}"
    yield Gate.at_most(0.0, float(differing_count), name=f"{preset}: weights", detail=detail)
    for replica in pair:
        name = f"{preset}: {{}} in {replica.framework}"
        yield _exact(name.format("parameters"), _num_parameters(replica), facts.num_parameters)
        yield _exact(name.format("FLOPs"), _flops(replica), facts.forward_flops_per_sample)


class Pair:
    """The same replica in both frameworks, from the same seed: equal weights, batches and masks."""

    def __init__(
        self,
        workload: Workload,
        preset: str,
        precision: str,
        *,
        local_batch: int = 4,
        frameworks: tuple[str, str] = FRAMEWORKS,
    ) -> None:
        self._frameworks = frameworks
        self._workload, self._preset, self._precision = workload, preset, precision
        self._local_batch = local_batch
        self._tolerances = TOLERANCES[precision]

    def built(self) -> tuple[Replica, Replica]:
        """One in each framework, with the weights that it begins with."""
        first, second = (self._build(framework) for framework in self._frameworks)
        return first, second

    @functools.cached_property
    def alike(self) -> tuple[Replica, Replica]:
        """Those that are compared, of equal weights. What is asked of one takes the next batch, of both the same."""
        first, second = self.built()
        weights = [
            weight + np.float32(SHIFT) if "norm" in name and name.endswith("bias") else weight
            for weight, name in zip(first.weights(), first.names(), strict=True)
        ]
        first.load(weights)
        second.load(weights)
        return first, second

    def numbers(self) -> Iterator[Gate]:
        """Outputs, gradient, and the loss before and after some steps."""
        one, other = self.alike
        pairs = zip(one.outputs(), other.outputs(), strict=True)
        worst = max(output_difference(output, others) for output, others in pairs)
        yield self._close("outputs", worst, "of the largest output")
        deviation = gradient_difference(one.gradients(), other.gradients())
        yield self._close("gradient", deviation, "of the gradient's norm")
        losses = [self._losses(replica) for replica in self.alike]
        for name, step, text in (
            ("loss", 0, "of the first step"),
            ("loss_after", NUM_STEPS, f"after {NUM_STEPS} steps"),
        ):
            first, second = (of_framework[step] for of_framework in losses)
            yield self._close(name, abs(first - second) / abs(first), f"{text}: {first:.6g}, {second:.6g}")

    def _build(self, framework: str) -> Replica:
        factory = self._workload.factory(
            framework=framework,
            preset=self._preset,
            local_batch=self._local_batch,
            source=Input(),
            execution=Execution(precision=self._precision),
        )
        return factory(shard=Shard(), seed=SEED)

    def _losses(self, replica: Replica) -> list[float]:
        """The loss of NUM_STEPS + 1 training steps, by the backend that exchanges nothing."""

        def given(**_: Any) -> Replica:
            return replica

        backend = connect("none", control=None)
        trainer = backend.distribute(given, shard=Shard(), seed=SEED)
        losses = []
        for _ in range(NUM_STEPS + 1):
            trainer.step()
            losses.append(trainer.loss())
        trainer.close()
        return losses

    def _close(self, name: str, value: float, detail: str) -> Gate:
        return Gate.at_most(self._tolerances[name], value, name=f"{self._preset}: {name}", detail=detail)


def _exact(name: str, actual: int, expected: int) -> Gate:
    return Gate(
        name=name,
        passed=actual == expected,
        value=float(actual - expected),
        tolerance=0.0,
        detail=f"{actual:,}" if actual == expected else f"{actual:,}, expected {expected:,}",
    )


def _flops(replica: Any) -> int:
    """Floating-point operations of a sample's outputs, as the framework counts them."""
    outputs, batch = replica.program.outputs, replica.next_batch()
    if replica.framework == "tensorflow":
        from dlscale.models.frameworks._tensorflow_replica import flops_in

        return flops_in(replica.traced(outputs), batch)
    from dlscale.models.frameworks._torch import flop_counter

    with flop_counter() as counter:
        outputs(*batch)
    return int(counter.get_total_flops()) // len(batch[0])


def _num_parameters(replica: Replica) -> int:
    return sum(weight.size for weight in replica.weights())


def output_difference(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    """The largest, of the first one's largest value; infinite where shapes differ."""
    if first.shape != second.shape:
        return math.inf
    return float(np.max(np.abs(first - second)) / np.max(np.abs(first)))


def gradient_difference(first: Weights, second: Weights) -> float:
    """The length of the difference, of that of the first."""

    def norm(arrays: Weights) -> float:
        return math.sqrt(math.fsum(float(np.sum(np.square(array, dtype=np.float64))) for array in arrays))

    return norm([a - b for a, b in zip(first, second, strict=True)]) / norm(first)
