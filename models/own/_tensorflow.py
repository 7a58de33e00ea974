"""A user's own Keras model under TensorFlow: its program for replicas, and what it says of itself.

Keras keeps the state of batch norm and of its random generators by itself while the network computes; here its
variables are those of TensorFlow below them, so that weights, exchange and checkpoints are as for every other network.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from dlscale.models.frameworks._tensorflow_optimizers import Optimizer, Sgd
from dlscale.models.frameworks._tensorflow_replica import (
    Forward,
    TensorFlowProgram,
    flops_in,
)
from dlscale.models.own import checks
from dlscale.models.own.data import open_source, read_good
from dlscale.models.own.file import OwnFile
from dlscale.models.own.model import OwnModel
from dlscale.models.samples import Arrays
from dlscale.models.workload import Execution, Objective, Preset, Weights

BUFFER_SEED = 7  # of what a network draws for itself besides trainable weights: the same on every rank
POLICIES = {"fp32": "float32", "tf32": "float32", "bf16": "mixed_bfloat16", "fp64": "float64"}
REMEDY = (
    "keep what it counts in a weight that is not trained, and draw by Keras's layers or keras.random with a "
    "keras.random.SeedGenerator of the layer, neither by tf.random nor by NumPy"
)


class KerasNetwork(tf.Module):  # type: ignore[misc]
    """The user's network with TensorFlow's variables: the trainable ones first, then what it keeps besides."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.trained = tuple(variable.value for variable in network.trainable_variables)
        kept = [variable for variable in network.variables if not variable.trainable]
        self.ordered = [*self.trained, *(variable.value for variable in kept)]
        self.generators = [
            variable.value for variable in kept if variable.path.endswith("seed_generator_state")
        ]

    def reseed(self, number: Any) -> None:
        """What the network draws from now on follows from that number."""
        for index, state in enumerate(self.generators):
            state.assign(tf.cast([number, index], state.dtype))

    def __call__(self, *inputs: Any, training: bool) -> Any:
        """The network's output."""
        return self.network(inputs[0] if len(inputs) == 1 else list(inputs), training=training)

    def loss(self, own: OwnFile, outputs: Any, labels: Any) -> Any:
        """The mean of what the file's loss gives, with the network's own terms of regularisation; float32."""
        values = own.names["loss"](labels, tf.cast(outputs, tf.float32))
        return tf.add_n([tf.reduce_mean(values), *self.network.losses])


class KerasOptimizer(Optimizer):
    """The user's optimizer as trainers call one: with TensorFlow's variables in the place of Keras's."""

    def __init__(self, optimizer: Any, network: Any) -> None:
        self.optimizer, self.rate = optimizer, optimizer.learning_rate
        self._variables = {id(variable.value): variable for variable in network.trainable_variables}

    def apply_gradients(self, pairs: Sequence[tuple[Any, Any]], **_: Any) -> None:
        """Update variables by gradients, averaged already, in (gradient, variable) pairs."""
        self.optimizer.apply(
            [gradient for gradient, _ in pairs], [self._variables[id(variable)] for _, variable in pairs]
        )

    def make_slots(self, parameters: Sequence[Any]) -> None:
        if not self.optimizer.built:
            self.optimizer.build([self._variables[id(parameter)] for parameter in parameters])

    def kept(self, parameters: Sequence[Any]) -> dict[str, Any]:  # noqa: ARG002
        """TensorFlow's variables of what it keeps, by name; the rate is no part of a training's state."""
        return {
            f"kept.{place}": variable.value
            for place, variable in enumerate(self.optimizer.variables)
            if variable is not self.rate
        }


def programs(own: OwnFile, model: OwnModel, execution: Execution) -> Callable[..., TensorFlowProgram]:
    """What builds the network and its one objective (`frameworks._tensorflow.replica_factory`)."""

    def program(preset: Preset, *, gate: bool) -> TensorFlowProgram:
        network = KerasNetwork(_built(own, seed=BUFFER_SEED, precision=execution.precision))

        def outputs(*batch: Any) -> Sequence[Any]:
            *inputs, _ = batch[:-1] if model.random else batch
            return [network(*inputs, training=True)]

        def forward(*batch: Any) -> Forward:
            if model.random:
                *batch, number = batch  # type: ignore[assignment]
                network.reseed(number[0])
            *inputs, labels = batch
            loss = network.loss(own, network(*inputs, training=True), labels)
            return Forward(losses=[loss], updates=[])

        def first_weights(seed: int) -> Weights:
            fresh = _built(own, seed=seed, precision=execution.precision)
            return [variable.numpy() for variable in fresh.trainable_variables]

        def make_optimizer() -> KerasOptimizer:
            made = own.call("optimizer")
            made.learning_rate = preset.learning_rate
            if own.clip_norm:
                made.global_clipnorm = own.clip_norm
            return KerasOptimizer(made, network.network)

        return TensorFlowProgram(
            networks=[network],
            objectives=[
                Objective(
                    names=tuple(variable.path for variable in network.network.trainable_variables),
                    parameters=network.trained,
                    optimizer=Sgd(1.0) if gate else make_optimizer(),
                )
            ],
            first_weights=first_weights,
            forward=forward,
            outputs=outputs,
            predict=lambda *inputs: network(*inputs, training=False),
            schedule=None if gate else own.schedule,
            autograph=True,
        )

    return program


def _built(own: OwnFile, *, seed: int, precision: str = "fp32") -> Any:
    """A new network of the file, with weights."""
    keras.utils.set_random_seed(seed)
    keras.config.set_dtype_policy(POLICIES[precision])
    network = own.call("model")
    if not network.built:
        *inputs, _ = map(tf.constant, read_good(open_source(own), 1)[0])
        whole = inputs[0] if len(inputs) == 1 else inputs
        own.run(lambda: network(whole), what="the network on a sample of data()")
    return network


def is_network(made: Any) -> bool:
    """Whether that is a Keras network."""
    return isinstance(made, keras.Model)


def facts(own: OwnFile, batch: Arrays) -> dict[str, Any]:
    """Facts of the network and its optimizer (fields of `OwnModel`), from one training step on `batch`.

    Raises UsageError for what cannot be trained here.
    """
    *inputs, labels = (tf.constant(array) for array in batch)
    if (policy := keras.config.dtype_policy().name) != POLICIES["fp32"]:
        raise own.wrong(f"Keras's policy is {policy}; leave it out, and precision to --precision")
    network = KerasNetwork(made := _built(own, seed=BUFFER_SEED))
    _check_network(own, made)
    optimizer = _checked_optimizer(own)
    first = [variable.numpy() for variable in network.ordered]

    def step() -> tuple[Any, Any]:
        """(outputs, loss) of the network as it was made."""
        for variable, value in zip(network.ordered, first, strict=True):
            variable.assign(value)
        network.reseed(BUFFER_SEED)
        outputs = own.run(lambda: network(*inputs, training=True), what="the network on a batch of data()")
        checks.check_outputs(
            own, outputs.shape if tf.is_tensor(outputs) else None, outputs, num_samples=len(labels)
        )
        return outputs, own.run(lambda: network.loss(own, outputs, labels), what="loss(labels, outputs)")

    with tf.GradientTape() as tape:
        outputs, loss = step()
    twice = 0.0
    with contextlib.suppress(Exception):  # a loss may take whole batches alone
        given, doubled = tf.concat([labels] * 2, 0), tf.concat([tf.cast(outputs, tf.float32)] * 2, 0)
        twice = float(tf.reduce_mean(own.names["loss"](given, doubled)))
    plain = float(loss) - float(tf.add_n([*made.losses, tf.constant(0.0)]))
    checks.check_loss(own, "labels, outputs", plain, twice=twice)
    gradients = tape.gradient(loss, network.trained)
    unused = [v.path for v, g in zip(made.trainable_variables, gradients, strict=True) if g is None]
    checks.check_used(own, unused, "trainable")
    inside = {id(variable) for variable in network.ordered}
    checks.check_inside(own, [v.name for v in tape.watched_variables() if id(v) not in inside], "")
    once, again = [np.append(found.numpy(), value.numpy()) for found, value in (step() for _ in range(2))]
    if not np.allclose(once, again, rtol=checks.SAME, atol=0, equal_nan=True):
        raise checks.unrepeatable(own, REMEDY)
    return {
        "num_parameters": sum(int(np.prod(variable.shape)) for variable in network.trained),
        "forward_flops_per_sample": flops_in(
            tf.function(lambda *given: network(*given, training=True)), inputs
        ),
        "optimizer": type(optimizer).__name__,
        "learning_rate": float(f"{float(optimizer.learning_rate):.7g}"),  # kept in float32
        "num_classes": checks.classes_in(outputs.shape, labels.shape, are_whole=labels.dtype.is_integer),
        "running_statistics": len(network.ordered) > len(network.trained) + len(network.generators),
        "random": any(
            list(state.numpy()) != [BUFFER_SEED, index] for index, state in enumerate(network.generators)
        ),
    }


def _check_network(own: OwnFile, network: Any) -> None:
    """Raises UsageError for weights that ranks cannot train together."""
    problem = ""
    if not network.trainable_variables:
        problem = "model() has no trainable weights; return a network with some"
    elif others := [f"{v.path} ({v.dtype})" for v in network.trainable_variables if v.dtype != "float32"]:
        problem = f"weights must be float32, found {others[0]}; leave precision to --precision"
    for method in ("train_step", "compute_loss"):
        if getattr(type(network), method) is not getattr(keras.Model, method):
            problem = (
                f"{type(network).__name__} has a {method} of its own, which is not called here; write what it computes "
                "into call() and loss(labels, outputs)"
            )
    if together := [layer.name for layer in network._flatten_layers() if getattr(layer, "synchronized", 0)]:
        problem = (
            f"{together[0]} averages over ranks by itself, and here statistics are each rank's own; leave synchronized "
            "out"
        )
    if problem:
        raise own.wrong(problem, at="model")
    seen = {id(variable) for variable in network.trainable_variables}
    again = _built(own, seed=BUFFER_SEED).trainable_variables
    checks.check_new(own, [variable.path for variable in again if id(variable) in seen])


def _checked_optimizer(own: OwnFile) -> Any:
    optimizer = own.call("optimizer")
    problem = ""
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        problem = f"optimizer() returned a {type(optimizer).__name__}; return one of keras.optimizers"
    elif (
        isinstance(optimizer, keras.optimizers.LossScaleOptimizer) or optimizer.loss_scale_factor is not None
    ):
        problem = (
            "the optimizer divides gradients by a scale of the loss, which nothing multiplies here; leave the scale "
            "out, and precision to --precision"
        )
    elif callable(optimizer._learning_rate) or float(optimizer.learning_rate) <= 0:
        problem = (
            "the optimizer needs one learning rate above 0, without a schedule of its own; write schedule(step), which "
            "returns what it is multiplied by in step 0, 1, ..."
        )
    if problem:
        raise own.wrong(problem, at="optimizer")
    return optimizer


def loss_value(own: OwnFile, outputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """The user's loss of outputs (N, ...) and labels (N, ...), without terms of regularisation."""
    return float(tf.reduce_mean(own.names["loss"](tf.constant(labels), tf.constant(outputs))))
