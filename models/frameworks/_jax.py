"""What the JAX networks of all workloads share: programs, and the replica that holds their weights.

A network is a function of its weights by name; what batch norm remembers comes back from it. A step is compiled by
XLA as a whole where nothing is exchanged, else in two halves, gradients and update.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dlscale.models.frameworks import check_execution
from dlscale.models.frameworks._jax_optimizers import Rule, first_slots, update
from dlscale.models.frameworks.replica import BatchedReplica, Build, as_factory
from dlscale.models.optimizers import OptimizerRule
from dlscale.models.samples import Arrays, LocalBatches
from dlscale.models.weights import Initial, check_names, draw_initial
from dlscale.models.workload import Execution, Preset, State, Weights

Values = Mapping[str, Any]  # name -> array
_config: Any = jax.config
Shapes = Sequence[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JaxProgram:
    """A workload's network and its one loss, before it has weights and batches.

    `remembered` are first values of what is not trained, by name. `loss` and `outputs` are functions of (weights,
    remembered, *batch) while training, and `loss` also returns what is remembered afterwards; `predict` is one of
    (weights, remembered, *samples), with running statistics and without dropout.
    """

    shapes: Shapes  # of the weights, in canonical order
    remembered: Mapping[str, NDArray[np.float32]]
    rule: Rule
    initial: Initial
    loss: Callable[..., tuple[Any, Values]]
    outputs: Callable[..., Any]
    predict: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JaxObjective:
    """The weights that the loss is differentiated for, and their optimizer (`workload.Objective`)."""

    names: Sequence[str]
    parameters: Sequence[Any]
    optimizer: Rule


def prepare(
    num_threads: int,
    *,
    device: str = "cpu",
    local_rank: int = 0,  # noqa: ARG001
    precision: str = "fp32",
    slept: bool = False,
    deferred: bool = False,  # noqa: ARG001
) -> None:
    """Give XLA's CPU client its threads, before anything was computed. Raises UsageError for what JAX is not run on.

    The client takes their number from the variable NPROC when it is made, or, without it, all of the process's cores.
    """
    check_execution("jax", device=device, precision=precision, slept=slept)
    _config.update("jax_platforms", "cpu")
    before = os.environ.get("NPROC")
    os.environ["NPROC"] = str(num_threads)
    try:
        jax.devices()
    finally:
        if before is None:
            del os.environ["NPROC"]
        else:
            os.environ["NPROC"] = before
    _threads[:] = [num_threads]


_threads: list[int] = []  # of the client; none before `prepare`


def numerics() -> dict[str, str]:
    """What in this process decides how precisely and with how many threads JAX computes."""
    return {
        "matrix precision": str(_config.jax_default_matmul_precision),
        "threads": ",".join(map(str, _threads)),
    }


@as_factory
def replica_factory(make_program: Callable[..., JaxProgram], preset: Preset, execution: Execution) -> Build:
    """Builds replicas of a program, which share what is compiled. Raises UsageError for what JAX is not run with."""
    check_execution(
        "jax",
        device=execution.device,
        precision=execution.precision,
        compiled=execution.compiled,
        slept=execution.slept is not None,
    )

    @cache
    def compiled(gate: bool) -> Compiled:
        program = make_program(preset, gate=gate)
        rule = OptimizerRule(name="sgd") if gate else execution.optimizer
        return Compiled(replace(program, rule=Rule(rule)) if rule else program)

    def build(make_batches: Callable[[], LocalBatches], *, seed: int | None, gate: bool) -> JaxReplica:
        replica = JaxReplica(compiled(gate), make_batches(), execution, seed=seed)
        replica.set_learning_rate(1.0 if gate else preset.learning_rate)
        return replica

    return build


class Compiled:
    """A program's functions of weights, what is remembered, and a batch; all replicas of a factory share them.

    Each is compiled when it is first called with arrays of new shapes. `step` and `update` take the memory of what they
    replace.
    """

    def __init__(self, program: JaxProgram) -> None:
        self.program, self.names = program, [name for name, _ in program.shapes]
        self.differentiate = jax.jit(self._gradients_of)
        self.update = jax.jit(self._updated, donate_argnums=(0, 1))
        self.step = jax.jit(self._stepped, donate_argnums=(0, 1, 2))
        self.outputs = jax.jit(self.outputs_of)
        self.predict = jax.jit(
            lambda weights, remembered, *samples: program.predict(self._named(weights), remembered, *samples)
        )

    def outputs_of(self, weights: list[Any], remembered: Values, *batch: Any) -> Any:
        """The network's outputs, traced or operation by operation."""
        return self.program.outputs(self._named(weights), remembered, *batch)

    def _named(self, weights: Sequence[Any]) -> Values:
        return dict(zip(self.names, weights, strict=True))

    def _gradients_of(
        self, weights: list[Any], remembered: Values, *batch: Any
    ) -> tuple[Any, list[Any], Values]:
        def loss(weights: list[Any]) -> tuple[Any, Values]:
            return self.program.loss(self._named(weights), remembered, *batch)

        (value, after), gradients = jax.value_and_grad(loss, has_aux=True)(weights)
        return value, gradients, after

    def _updated(self, weights: list[Any], slots: Any, rate: Any, gradients: Sequence[Any]) -> Any:
        shaped = [
            jnp.reshape(gradient, weight.shape) for gradient, weight in zip(gradients, weights, strict=True)
        ]
        return update(self.program.rule, self.names, weights, slots, shaped, rate)

    def _stepped(self, weights: list[Any], slots: Any, remembered: Values, rate: Any, *batch: Any) -> Any:
        loss, gradients, after = self._gradients_of(weights, remembered, *batch)
        return loss, *self._updated(weights, slots, rate, gradients), after


class JaxReplica(BatchedReplica):
    """`workload.Replica` in JAX: weights, what optimizer and network remember, and an endless source of batches."""

    framework = "jax"

    def __init__(
        self, functions: Compiled, batches: LocalBatches, execution: Execution, *, seed: int | None
    ) -> None:
        super().__init__(batches, execution)
        program = functions.program
        self._functions, self._rate = functions, 0.0
        self._weights: list[Any] = (
            [jnp.zeros(shape, jnp.float32) for _, shape in program.shapes]
            if seed is None
            else _arrays(draw_initial(program.initial, program.shapes, seed=seed))
        )
        self._slots: dict[str, list[Any]] = first_slots(program.rule, self._weights)
        self._remembered: Values = {name: jnp.array(value) for name, value in program.remembered.items()}

    @property
    def objectives(self) -> tuple[JaxObjective, ...]:  # type: ignore[override]
        rule = self._functions.program.rule
        return (JaxObjective(names=self._functions.names, parameters=tuple(self._weights), optimizer=rule),)

    def _as_batch(self, arrays: Arrays) -> tuple[Any, ...]:
        return tuple(_arrays(arrays))

    def train(self, *batch: Any) -> Any:
        """One step without any exchange; its loss, which may still be on its way."""
        loss, self._weights, self._slots, self._remembered = self._functions.step(
            self._weights, self._slots, self._remembered, self._rate, *batch
        )
        return loss

    def differentiate(self, *batch: Any) -> tuple[Any, list[Any]]:
        """(the loss, its gradients in the order of `weights`); what batch norm remembers is the batch's from now on."""
        loss, gradients, self._remembered = self._functions.differentiate(
            self._weights, self._remembered, *batch
        )
        return loss, gradients

    def update(self, gradients: Sequence[Any]) -> None:
        """One update with these gradients, arrays of NumPy or JAX of as many elements as the weights.

        They may be read until the next `differentiate` has computed its gradients, and not after.
        """
        self._weights, self._slots = self._functions.update(self._weights, self._slots, self._rate, gradients)

    def synchronize(self) -> None:
        wait: Any = jax.block_until_ready
        wait((self._weights, self._slots, self._remembered))

    def weights(self) -> Weights:
        return [np.array(weight, order="C") for weight in self._weights]

    def load(self, weights: Weights) -> None:
        self._weights = _arrays(weights)

    def gradients(self) -> Weights:
        loss, gradients = self.differentiate(*self.next_batch())
        self._losses = [loss]
        return [np.array(gradient, order="C") for gradient in gradients]

    def apply(self, gradients: Weights) -> None:
        self.update(_arrays(gradients))

    def learning_rate(self) -> float:
        return self._rate

    def set_learning_rate(self, learning_rate: float) -> None:
        """From the next step on the rate is that; nothing is compiled again for it."""
        self._rate = learning_rate

    def outputs(self) -> Weights:
        return [np.array(self._functions.outputs(self._weights, self._remembered, *self.next_batch()))]

    def predict(self, *samples: NDArray[Any]) -> NDArray[np.float32]:
        return np.array(self._functions.predict(self._weights, self._remembered, *_arrays(samples)))

    def forward_flops(self) -> int:
        """Floating-point operations of `outputs` per sample: 2 per multiply-add of what JAX traces."""
        batch = self.next_batch()
        traced = jax.make_jaxpr(self._functions.outputs_of)(self._weights, self._remembered, *batch)
        return sum(map(_flops, traced.jaxpr.eqns)) // int(batch[0].shape[0])

    def _read_state(self) -> State:
        return {name: np.array(value) for name, value in self._kept().items()}

    def _write_state(self, state: State) -> None:
        check_names(state, {name: value.shape for name, value in self._kept().items()})
        places = range(len(self._weights))
        self._weights = [jnp.array(state[f"network0.{place}"]) for place in places]
        self._remembered = {name: jnp.array(state[f"network0.{name}"]) for name in self._remembered}
        self._slots = {
            name: [jnp.array(state[f"optimizer0.{name}.{place}"]) for place in range(len(values))]
            for name, values in self._slots.items()
        }

    def _kept(self) -> dict[str, Any]:
        """All arrays by name: the network's, and the optimizer's."""
        return (
            {f"network0.{place}": weight for place, weight in enumerate(self._weights)}
            | {f"network0.{name}": value for name, value in self._remembered.items()}
            | {
                f"optimizer0.{name}.{place}": value
                for name, values in self._slots.items()
                for place, value in enumerate(values)
            }
        )


def _arrays(arrays: Arrays | Weights) -> list[Any]:
    """Copies on the device: what NumPy holds may be read into again."""
    return [jnp.array(array, copy=True) for array in arrays]


def _flops(equation: Any) -> int:
    """2 per multiply-add of convolutions and products of matrices, those of functions within included."""
    inner = [value for value in equation.params.values() if hasattr(value, "eqns") or hasattr(value, "jaxpr")]
    if inner:
        return sum(_flops(e) for value in inner for e in getattr(value, "jaxpr", value).eqns)
    result = int(np.prod(equation.outvars[0].aval.shape)) if equation.outvars else 0
    if equation.primitive.name == "conv_general_dilated":
        return 2 * result * int(np.prod(equation.invars[1].aval.shape[:-1]))
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2 * result * int(np.prod([equation.invars[0].aval.shape[axis] for axis in contracted]))
    return 0
