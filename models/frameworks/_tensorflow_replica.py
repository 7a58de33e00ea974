"""The replica that holds a workload's TensorFlow networks and objectives.

Networks are `tf.Module`s of plain variables and `tf.nn` operations. One definition works in a `tf.function`, under a
strategy's scope and in a graph of version 1: nothing is assigned while a network computes. What batch norm wants to
remember comes back as a list of updates, which the trainer of the step assigns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.frameworks.replica import BatchedReplica, Program
from dlscale.models.samples import LocalBatches
from dlscale.models.workload import Execution, State, Weights, check_names

Batch = tuple[Any, ...]  # of tf.Tensor
Update = tuple[Any, Any]  # (variable, its next value)


class Forward(NamedTuple):
    """One pass through the networks: a mean loss per objective, and what is to be assigned afterwards."""

    losses: Sequence[Any]
    updates: Sequence[Update]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowProgram(Program):
    """A workload's networks and objectives; their optimizers are of `_tensorflow_optimizers`."""

    forward: Callable[..., Forward]  # (*batch), while training
    autograph: bool = False  # whether the networks' Python may branch on tensors; tracing takes twice as long


class TensorFlowReplica(BatchedReplica):
    """`workload.Replica` in TensorFlow; `differentiate` is what a step is built around, in a `tf.function` or graph."""

    framework = "tensorflow"

    def __init__(self, program: TensorFlowProgram, batches: LocalBatches, execution: Execution) -> None:
        if execution.compiled and any(getattr(net, "exchanges", None) for net in program.networks):
            raise UsageError(
                "XLA was asked for with samples split by rows, and cannot exchange them; choose compiled=no, or leave "
                "split out"
            )
        super().__init__(program, batches, execution)
        self._dtype = {"bf16": tf.bfloat16, "fp64": tf.float64}.get(execution.precision, tf.float32)
        for network in program.networks:
            network.dtype = self._dtype
        self._only_gradients = self.traced(
            lambda *batch: self.differentiate(*batch)[:2], jit_compile=self.compiled
        )
        self._predict = self.traced(
            lambda *samples: program.predict(*self._as_computed(samples)), reduce_retracing=True
        )

    def traced(self, function: Callable[..., Any], **options: Any) -> Any:
        """`tf.function` of what has the networks in it, as all around them: nothing of ours branches on tensors."""
        return tf.function(function, autograph=self.program.autograph, **options)

    def _as_batch(self, arrays: Sequence[NDArray[Any]]) -> Batch:
        """Tensors. Copied: lent by DLPack, memory that is not aligned to 64 bytes aborts the process."""
        return tuple(tf.constant(array) for array in arrays)

    def forward(self, *batch: Any) -> Forward:
        """One pass through the networks, in the precision asked for."""
        forward: Forward = self.program.forward(*self._as_computed(batch))
        return forward

    def differentiate(
        self, *batch: Any, wrapped: Callable[[Any], Any] = lambda tape: tape
    ) -> tuple[list[Any], list[list[Any]], list[Update]]:
        """(a loss per objective, its gradients per parameter, updates), of one pass through the networks.

        Gradients are those of `wrapped(tape)`: a library may exchange them there.
        """
        with contextlib.ExitStack() as stack:
            # Of several objectives each tape sees its own parameters alone. Else a loss would go back through the
            # others' networks too, and exchange rows there for nothing.
            alone = len(self.objectives) == 1
            tapes = [
                stack.enter_context(tf.GradientTape(watch_accessed_variables=alone)) for _ in self.objectives
            ]
            for tape, objective in zip(tapes, self.objectives, strict=True):
                tape.watch(objective.parameters)
            forward = self.forward(*batch)
        gradients = [
            # Those of an embedding's rows become whole tensors, which every exchange averages.
            [tf.convert_to_tensor(found) for found in wrapped(tape).gradient(loss, objective.parameters)]
            for tape, loss, objective in zip(tapes, forward.losses, self.objectives, strict=True)
        ]
        return list(forward.losses), gradients, list(forward.updates)

    def weights(self) -> Weights:
        return [np.array(value, order="C") for value in self._views()]

    def load(self, weights: Weights) -> None:
        for variable, weight in zip(self._parameters(), weights, strict=True):
            variable.assign(weight)

    def gradients(self) -> Weights:
        self._losses, gradients = self._only_gradients(*self.next_batch())
        return [np.asarray(gradient) for group in gradients for gradient in group]

    def apply(self, gradients: Weights) -> None:
        given = iter(gradients)
        for objective in self.objectives:
            pairs = [(tf.constant(next(given)), variable) for variable in objective.parameters]
            objective.optimizer.apply_gradients(pairs)

    def _read_rate(self) -> float:
        return float(self.objectives[0].optimizer.rate)

    def _write_rate(self, learning_rate: float) -> None:
        for objective in self.objectives:
            objective.optimizer.set_rate(learning_rate)

    def outputs(self) -> Weights:
        outputs = self.traced(lambda *batch: self.program.outputs(*self._as_computed(batch)))
        return [tf.cast(output, tf.float32).numpy() for output in outputs(*self.next_batch())]

    def _views(self) -> Weights:
        return self._values(self._parameters())

    def slots(self) -> State:
        kept = self._kept_by_optimizers()
        return dict(zip(kept, self._values(kept.values()), strict=True))

    def _read_state(self) -> State:
        kept = self._kept()
        return {name: np.array(value) for name, value in zip(kept, self._values(kept.values()), strict=True)}

    def _values(self, variables: Iterable[Any]) -> list[NDArray[Any]]:
        """Those of now, on a CPU where TensorFlow has them, which a step does not overwrite then."""
        return [np.asarray(_local(variable).read_value()) for variable in variables]

    def _write_state(self, state: State) -> None:
        """After `make_slots`."""
        kept = self._kept()
        check_names(state, {name: variable.shape for name, variable in kept.items()})
        for name, variable in kept.items():
            _local(variable).assign(state[name])

    def make_slots(self) -> None:
        """Have the optimizers make what they keep, which they would in their first step."""
        for objective in self.objectives:
            objective.optimizer.make_slots(objective.parameters)

    def _kept(self) -> dict[str, Any]:
        """Variables by name: networks', and once they are made the optimizers'."""
        kept = {
            f"network{index}.{place}": variable
            for index, network in enumerate(self.program.networks)
            for place, variable in enumerate(network.ordered)
        }
        return kept | self._kept_by_optimizers()

    def _kept_by_optimizers(self) -> dict[str, Any]:
        return {
            f"optimizer{index}.{name}": variable
            for index, objective in enumerate(self.objectives)
            for name, variable in objective.optimizer.kept(objective.parameters).items()
        }

    def predict(self, *samples: NDArray[Any]) -> NDArray[np.float32]:
        outputs = self._predict(*self._as_batch(samples))
        result: NDArray[np.float32] = tf.cast(outputs, tf.float32).numpy()
        return result

    def _as_computed(self, batch: Sequence[Any]) -> list[Any]:
        """Real numbers in the precision of the computation: layers follow the type of their input."""
        return [tf.cast(tensor, self._dtype) if tensor.dtype.is_floating else tensor for tensor in batch]


def _local(variable: Any) -> Any:
    """A variable, or this process's own of one that a strategy has in several."""
    return variable.values[0] if isinstance(variable, tf.distribute.DistributedValues) else variable


def flops_in(function: Any, inputs: Sequence[Any]) -> int:
    """Floating-point operations per sample of a `tf.function`: 2 per multiply-add of convolutions and products.

    0 where some are in loops or functions, which hide them.
    """
    operations = function.get_concrete_function(*inputs).graph.get_operations()
    if any("While" in operation.type or "Call" in operation.type for operation in operations):
        return 0
    return sum(map(_flops, operations)) // int(inputs[0].shape[0])


def _flops(operation: Any) -> int:
    match operation.type:
        case "Conv2D":
            sums, terms = operation.outputs[0].shape, operation.inputs[1].shape[:3]
        case "Conv2DBackpropInput":  # a transposed convolution
            sums, terms = operation.inputs[2].shape, operation.inputs[1].shape[:3]
        case "MatMul":
            axis = 0 if operation.get_attr("transpose_a") else 1
            sums, terms = operation.outputs[0].shape, operation.inputs[0].shape[axis]
        case "BatchMatMulV2":
            axis = -2 if operation.get_attr("adj_x") else -1
            sums, terms = operation.outputs[0].shape, operation.inputs[0].shape[axis]
        case _:
            return 0
    return 2 * int(np.prod(sums)) * int(np.prod(terms))
