"""The replica that holds a workload's TensorFlow networks and objectives.

Networks are `tf.Module`s of plain variables and `tf.nn` operations. One definition works in a `tf.function`,
under a strategy's scope and in a graph of version 1: nothing is assigned while a network computes. What batch
norm wants to remember comes back as a list of updates, which whoever takes the step assigns. Optimizers are those of
`tf.compat.v1`, which work in all three places and update a variable by one fused operation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.frameworks._tensorflow_layers import Network
from dlscale.models.frameworks._tensorflow_optimizers import Adam, HasRate, MakesSlots
from dlscale.models.frameworks.replica import BatchedReplica
from dlscale.models.samples import Arrays, LocalBatches
from dlscale.models.weights import WEIGHT, Initial, check_names
from dlscale.models.workload import Execution, State, Weights

Batch = tuple[Any, ...]  # of tf.Tensor
Update = tuple[Any, Any]  # (variable, its next value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowObjective:
    """The parameters that one loss, alone, is differentiated for, and their optimizer (`workload.Objective`)."""

    names: tuple[str, ...]
    parameters: tuple[Any, ...]
    optimizer: Any  # tf.compat.v1.train.Optimizer


class Forward(NamedTuple):
    """One pass through the networks: a mean loss per objective, and what is to be assigned afterwards."""

    losses: Sequence[Any]
    updates: Sequence[Update]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowProgram:
    """A workload's networks and objectives, before they have weights and batches."""

    networks: Sequence[Network]
    objectives: Sequence[TensorFlowObjective]
    initial: Initial | None = None
    first_weights: Callable[[int], Weights] | None = None  # by seed; None: `initial` draws them
    forward: Callable[..., Forward]  # (*batch), while training
    outputs: Callable[..., Sequence[Any]]  # (*batch) -> what the networks make of it, while training
    predict: Callable[..., Any]  # (*samples) -> (N, ...), with running statistics and without dropout
    schedule: Callable[[int], float] | None = None  # what rates are multiplied by, by the number of the step
    autograph: bool = (
        False  # whether the networks' Python may branch on tensors; tracing takes twice as long then
    )


class TensorFlowReplica(BatchedReplica):
    """`workload.Replica` in TensorFlow: objectives in order and an endless source of local batches.

    `differentiate` is what a step is built around, inside a `tf.function` or a graph.
    """

    framework = "tensorflow"

    def __init__(self, program: TensorFlowProgram, batches: LocalBatches, execution: Execution) -> None:
        if execution.compiled and any(getattr(net, "exchanges", None) for net in program.networks):
            raise UsageError(
                "XLA was asked for with samples split by rows, and cannot exchange them; choose compiled=no, or leave "
                "split out"
            )
        self.objectives = tuple(program.objectives)
        super().__init__(batches, execution, program.schedule)
        self._program = program
        self._dtype = {"bf16": tf.bfloat16, "fp64": tf.float64}.get(execution.precision, tf.float32)
        for network in program.networks:
            network.dtype = self._dtype
        self._only_gradients: Any = None  # a function of a batch, traced once
        self._predict = self.traced(
            lambda *samples: program.predict(*self._as_computed(samples)), reduce_retracing=True
        )

    def traced(self, function: Callable[..., Any], **options: Any) -> Any:
        """`tf.function` of what has the networks in it, as all around them: nothing of ours branches on tensors."""
        return tf.function(function, autograph=self._program.autograph, **options)

    def _as_batch(self, arrays: Sequence[NDArray[Any]]) -> Batch:
        """Tensors. Copied: lent by DLPack, memory that is not aligned to 64 bytes aborts the process."""
        return tuple(tf.constant(array) for array in arrays)

    def _read_samples(self) -> Iterator[Batch]:
        return iter(_Dataset(self._batches))

    def forward(self, *batch: Any) -> Forward:
        """One pass through the networks, in the precision asked for."""
        return self._program.forward(*self._as_computed(batch))

    def differentiate(
        self, *batch: Any, wrapped: Callable[[Any], Any] = lambda tape: tape
    ) -> tuple[list[Any], list[list[Any]], list[Update]]:
        """(a loss per objective, its gradients per parameter, updates), of one pass through the networks.

        Gradients are those of `wrapped(tape)`: a library may exchange them there.
        """
        with contextlib.ExitStack() as stack:
            tapes = [stack.enter_context(self._tape(objective)) for objective in self.objectives]
            forward = self.forward(*batch)
        tapes = [wrapped(tape) for tape in tapes]
        gradients = [
            # Those of an embedding's rows become whole tensors, which every exchange averages.
            [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, objective.parameters)]
            for tape, loss, objective in zip(tapes, forward.losses, self.objectives, strict=True)
        ]
        return list(forward.losses), gradients, list(forward.updates)

    @contextlib.contextmanager
    def _tape(self, objective: TensorFlowObjective) -> Iterator[tf.GradientTape]:
        """Records for one objective. Of several each sees its own parameters alone.

        Else a loss would go back through the others' networks too, and exchange rows there for nothing.
        """
        with tf.GradientTape(watch_accessed_variables=len(self.objectives) == 1) as tape:
            tape.watch(objective.parameters)
            yield tape

    def weights(self) -> Weights:
        return [np.array(value, order="C") for value in self._values(self._parameters())]

    def load(self, weights: Weights) -> None:
        for variable, weight in zip(self._parameters(), weights, strict=True):
            variable.assign(weight)

    def gradients(self) -> Weights:
        if self._only_gradients is None:
            self._only_gradients = self.traced(
                lambda *batch: self.differentiate(*batch)[:2], jit_compile=self.compiled
            )
        self._losses, gradients = self._only_gradients(*self.next_batch())
        return [np.asarray(gradient) for group in gradients for gradient in group]

    def apply(self, gradients: Weights) -> None:
        given = iter(gradients)
        for objective in self.objectives:
            pairs = [(tf.constant(next(given)), variable) for variable in objective.parameters]
            objective.optimizer.apply_gradients(pairs)

    def _read_rate(self) -> float:
        """Raises UsageError for an optimizer that does not tell."""
        optimizer = self.objectives[0].optimizer
        if not isinstance(optimizer, HasRate):
            raise UsageError(
                f"the learning rate of {type(optimizer).__name__} cannot be read; take an optimizer of "
                "models/frameworks/_tensorflow_optimizers.py"
            )
        return float(optimizer.rate)

    def _write_rate(self, learning_rate: float) -> None:
        """Raises UsageError for an optimizer whose rate is fixed."""
        for objective in self.objectives:
            if not isinstance(objective.optimizer, HasRate):
                raise UsageError(
                    f"learning rate {learning_rate:g}: that of {type(objective.optimizer).__name__} is fixed; take an "
                    "optimizer of models/frameworks/_tensorflow_optimizers.py"
                )
            objective.optimizer.set_rate(learning_rate)

    def outputs(self) -> Weights:
        outputs = self.traced(lambda *batch: self._program.outputs(*self._as_computed(batch)))
        return [tf.cast(output, tf.float32).numpy() for output in outputs(*self.next_batch())]

    def held(self, *, slots: bool = True) -> State:
        """What a step changes: on a CPU as it lies in TensorFlow's memory, which a step does not overwrite then."""
        values = self._values(self._parameters())
        weights = {f"{WEIGHT}.{place}": value for place, value in enumerate(values)}
        return self.counted() | weights | (self.slots() if slots else {})

    def slots(self) -> State:
        kept = {name: variable for name, variable in self._kept().items() if name.startswith("optimizer")}
        return dict(zip(kept, self._values(kept.values()), strict=True))

    def _read_state(self) -> State:
        kept = self._kept()
        return {name: np.array(value) for name, value in zip(kept, self._values(kept.values()), strict=True)}

    def _values(self, variables: Iterable[Any]) -> list[NDArray[Any]]:
        """Those of now, not to be changed."""
        return [np.asarray(_local(variable).read_value()) for variable in variables]

    def _write_state(self, state: State) -> None:
        """After `make_slots`."""
        kept = self._kept()
        check_names(state, {name: variable.shape for name, variable in kept.items()})
        for name, variable in kept.items():
            variable.assign(state[name])

    def make_slots(self) -> None:
        """Have the optimizers make what they keep, which they would in their first step."""
        for objective in self.objectives:
            if isinstance(objective.optimizer, MakesSlots):
                objective.optimizer.make_slots(objective.parameters)

    def _kept(self) -> dict[str, Any]:
        """This process's variables by name: networks', and once they are made the optimizers'."""
        kept = {
            f"network{index}.{place}": variable
            for index, network in enumerate(self._program.networks)
            for place, variable in enumerate(network.ordered)
        }
        for index, objective in enumerate(self.objectives):
            kept |= {f"optimizer{index}.{name}": variable for name, variable in _slots(objective)}
        return {name: _local(variable) for name, variable in kept.items()}

    def predict(self, *samples: NDArray[Any]) -> NDArray[np.float32]:
        outputs = self._predict(*self._as_batch(samples))
        result: NDArray[np.float32] = tf.cast(outputs, tf.float32).numpy()
        return result

    def forward_flops(self) -> int:
        """Floating-point operations of `outputs` per sample, counted in TensorFlow's graph."""
        batch = self.next_batch()
        outputs = self.traced(lambda *batch: self._program.outputs(*batch)).get_concrete_function(*batch)
        return sum(_flops(operation) for operation in outputs.graph.get_operations()) // int(
            batch[0].shape[0]
        )

    def _as_computed(self, batch: Sequence[Any]) -> list[Any]:
        """Real numbers in the precision of the computation: layers follow the type of their input."""
        return [tf.cast(tensor, self._dtype) if tensor.dtype.is_floating else tensor for tensor in batch]

    def _parameters(self) -> list[Any]:
        return [variable for objective in self.objectives for variable in objective.parameters]


class _Dataset:
    """Local batches of samples as a tf.data pipeline, without threads of its own: it runs when it is asked."""

    def __init__(self, batches: LocalBatches) -> None:
        self._batches = batches
        self._error: Exception | None = None
        self._iterator: Any = None

    def __iter__(self) -> _Dataset:
        return self

    def __next__(self) -> Batch:
        """The next element. Raises what reading it raised, not TensorFlow's account of it."""
        if self._iterator is None:
            self._iterator = self._open()
        try:
            batch: Batch = next(self._iterator)
        except (tf.errors.OpError, StopIteration):
            if self._error:
                raise self._error from None
            raise
        return batch

    def _open(self) -> Any:
        first = next(elements := self._elements())
        signature = tuple(tf.TensorSpec(array.shape, array.dtype) for array in first)

        def generate() -> Iterator[Arrays]:
            yield first
            yield from elements

        # The default options fetch ahead in TensorFlow's only thread for operations, and can wait for it for ever.
        options = tf.data.Options()
        options.autotune.enabled = False
        options.threading.private_threadpool_size = 1
        return iter(
            tf.data.Dataset.from_generator(generate, output_signature=signature).with_options(options)
        )

    def _elements(self) -> Iterator[Arrays]:
        try:
            yield from self._batches.samples()
        except Exception as error:
            self._error = error
            raise


def _slots(objective: TensorFlowObjective) -> Iterator[tuple[str, Any]]:
    """What an optimizer keeps, by name; nothing before it was made.

    `Optimizer.variables` leaves out what was made inside a `tf.function` under a strategy.
    """
    optimizer = objective.optimizer
    if hasattr(optimizer, "kept"):  # Keras has no slots
        yield from optimizer.kept().items()
        return
    for name in optimizer.get_slot_names():
        for place, parameter in enumerate(objective.parameters):
            if (slot := optimizer.get_slot(parameter, name)) is not None:  # else a sharded trainer has it
                yield f"{name}.{place}", slot
    if optimizer.get_slot_names() and isinstance(optimizer, Adam):
        yield from optimizer.powers().items()


def _local(variable: Any) -> Any:
    """A variable, or this process's own of one that a strategy has in several."""
    return variable.values[0] if isinstance(variable, tf.distribute.DistributedValues) else variable


def flops_in(network: Callable[..., Any], inputs: Sequence[Any]) -> int:
    """Floating-point operations per sample of a network; 0 where some are in loops or functions, which hide them."""
    graph = tf.function(network).get_concrete_function(*inputs).graph
    if any("While" in operation.type or "Call" in operation.type for operation in graph.get_operations()):
        return 0
    return sum(_flops(operation) for operation in graph.get_operations()) // int(inputs[0].shape[0])


def _flops(operation: Any) -> int:
    """2 per multiply-add of convolutions and products of matrices."""
    if operation.type == "Conv2D":
        kernel, result = operation.inputs[1].shape, operation.outputs[0].shape
    elif operation.type == "Conv2DBackpropInput":  # a transposed convolution
        kernel, result = operation.inputs[1].shape, operation.inputs[2].shape
    elif operation.type == "MatMul":
        rows = 0 if operation.get_attr("transpose_a") else 1
        return 2 * int(np.prod(operation.outputs[0].shape)) * int(operation.inputs[0].shape[rows])
    elif operation.type == "BatchMatMulV2":
        rows = -2 if operation.get_attr("adj_x") else -1
        return 2 * int(np.prod(operation.outputs[0].shape)) * int(operation.inputs[0].shape[rows])
    else:
        return 0
    return 2 * int(np.prod(result)) * int(np.prod(kernel[:3]))
