"""A user's own Keras model under TensorFlow: its program for replicas, and what it says of itself.

Keras keeps the state of batch norm and of its random generators by itself while the network computes; here its
variables are those of TensorFlow below them, so that weights, exchange and checkpoints are as for every other network.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.frameworks._tensorflow_optimizers import Optimizer, Sgd
from dlscale.models.frameworks._tensorflow_replica import (
    Forward,
    TensorFlowProgram,
    flops_in,
)
from dlscale.models.own import OwnModel
from dlscale.models.own.data import OwnSamples, read_good
from dlscale.models.own.file import SAME, SUM, UNREPEATABLE, OwnFile
from dlscale.models.own.sources import open_source
from dlscale.models.samples import Arrays
from dlscale.models.workload import Execution, Objective, Preset, Weights

BUFFER_SEED = 7  # of what a network draws for itself besides trainable weights: the same on every rank
POLICIES = {"fp32": "float32", "tf32": "float32", "bf16": "mixed_bfloat16", "fp64": "float64"}


def seed(number: int) -> None:
    """Seed TensorFlow's global generators."""
    tf.random.set_seed(number)


class KerasNetwork(tf.Module):  # type: ignore[misc]
    """The user's network with TensorFlow's variables: the trainable ones first, then what it keeps besides."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.trained = tuple(variable.value for variable in network.trainable_variables)
        kept = [variable for variable in network.variables if not variable.trainable]
        self.ordered = [*self.trained, *(variable.value for variable in kept)]
        self._generators = [
            variable.value for variable in kept if variable.path.endswith("seed_generator_state")
        ]

    def reseed(self, number: Any) -> None:
        """What the network draws from now on follows from that number."""
        for index, state in enumerate(self._generators):
            state.assign(tf.cast([number, index], state.dtype))

    def __call__(self, *inputs: Any, training: bool) -> Any:
        """The network's output."""
        return self.network(inputs[0] if len(inputs) == 1 else list(inputs), training=training)


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
            return Forward(
                losses=[_loss(own, network.network, network(*inputs, training=True), labels)], updates=[]
            )

        def first_weights(seed: int) -> Weights:
            fresh = _built(own, seed=seed, precision=execution.precision)
            return [variable.numpy() for variable in fresh.trainable_variables]

        return TensorFlowProgram(
            networks=[network],
            objectives=[
                Objective(
                    names=tuple(variable.path for variable in network.network.trainable_variables),
                    parameters=network.trained,
                    optimizer=Sgd(1.0) if gate else _optimizer(own, network.network, preset.learning_rate),
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


def _optimizer(own: OwnFile, network: Any, learning_rate: float) -> KerasOptimizer:
    made = own.call("optimizer")
    made.learning_rate = learning_rate
    if own.clip_norm:
        made.global_clipnorm = own.clip_norm
    return KerasOptimizer(made, network)


def _built(own: OwnFile, *, seed: int, precision: str = "fp32") -> Any:
    """A new network of the file, with weights."""
    if keras.backend.backend() != "tensorflow":
        raise UsageError(
            f"{own.name}: Keras computes with {keras.backend.backend()} here; set KERAS_BACKEND=tensorflow"
        )
    keras.utils.set_random_seed(seed)
    keras.config.set_dtype_policy(POLICIES[precision])
    network = own.call("model")
    if not network.built:
        samples = OwnSamples(open_source(own, "tensorflow"), own, framework="tensorflow", seed=(0, 0))
        *inputs, _ = map(tf.constant, read_good(samples, 1)[0])
        whole = inputs[0] if len(inputs) == 1 else inputs
        own.run(lambda: network(whole), what="the network on a sample of data()")
    return network


def _loss(own: OwnFile, network: Any, outputs: Any, labels: Any) -> Any:
    """The mean of what the file's loss gives, with the network's own terms of regularisation; float32."""
    values = own.names["loss"](labels, tf.cast(outputs, tf.float32))
    return tf.add_n([tf.reduce_mean(values), *network.losses])


def is_network(made: Any) -> bool:
    """Whether that is a Keras network."""
    return isinstance(made, keras.Model)


def facts(own: OwnFile, batch: Arrays) -> dict[str, Any]:
    """Facts of the network and its optimizer (fields of `OwnModel`), from one training step on `batch`.

    Raises UsageError for what cannot be trained here.
    """
    *inputs, labels = (tf.constant(array) for array in batch)
    if (policy := keras.config.dtype_policy().name) != POLICIES["fp32"]:
        raise UsageError(
            f"{own.name}: Keras's policy is {policy}; leave it out, and precision to --precision"
        )
    made = _built(own, seed=BUFFER_SEED)
    network = KerasNetwork(made)
    _check_weights(own, made)
    optimizer = _checked_optimizer(own)
    with tf.GradientTape() as tape:
        outputs = own.run(lambda: network(*inputs, training=True), what="the network on a batch of data()")
        if not tf.is_tensor(outputs) or outputs.shape[:1] != labels.shape[:1]:
            found = tuple(outputs.shape) if tf.is_tensor(outputs) else type(outputs).__name__
            raise UsageError(
                f"{own.name}: the network gives {found} for {len(labels)} samples; it must return one tensor, with the "
                "samples as its first axis"
            )
        loss = own.run(lambda: _loss(own, made, outputs, labels), what="loss(labels, outputs)")
    if not np.isfinite(float(loss)):
        raise UsageError(f"{own.name}: the first loss is {float(loss)}; it must be finite")
    _check_mean(own, outputs, labels)
    gradients = tape.gradient(loss, network.trained)
    if unused := [v.path for v, g in zip(made.trainable_variables, gradients, strict=True) if g is None]:
        raise UsageError(
            f"{own.name}: the loss does not depend on {', '.join(unused[:3])}; leave such weights out, or set their "
            "trainable to False"
        )
    inside = {id(variable) for variable in network.ordered}
    if others := [variable.name for variable in tape.watched_variables() if id(variable) not in inside]:
        raise UsageError(
            f"{own.name}: {others[0]} is trained and is no weight of model(), so that neither optimizer nor ranks "
            "would know of it; make it a part of the network"
        )
    classes = (
        outputs.shape[1]
        if len(outputs.shape) == 2 and outputs.shape[1] > 1 and labels.dtype.is_integer
        else 0
    )
    return {
        "num_parameters": sum(int(np.prod(variable.shape)) for variable in network.trained),
        "forward_flops_per_sample": flops_in(
            tf.function(lambda *given: network(*given, training=True)), inputs
        ),
        "optimizer": type(optimizer).__name__,
        "learning_rate": float(f"{float(optimizer.learning_rate):.7g}"),  # kept in float32
        "num_classes": classes if len(labels.shape) == 1 else 0,
        "running_statistics": len(network.ordered) > len(network.trained) + len(network._generators),
        "random": _draws(own, network, inputs, labels),
    }


def _check_weights(own: OwnFile, network: Any) -> None:
    """Raises UsageError for weights that ranks cannot train together."""
    if not network.trainable_variables:
        raise UsageError(f"{own.name}: model() has no trainable weights; return a network with some")
    if others := [f"{v.path} ({v.dtype})" for v in network.trainable_variables if v.dtype != "float32"]:
        raise UsageError(
            f"{own.name}: weights must be float32, found {others[0]}; leave precision to --precision"
        )
    for step in ("train_step", "compute_loss"):
        if getattr(type(network), step) is not getattr(keras.Model, step):
            raise UsageError(
                f"{own.name}: {type(network).__name__} has a {step} of its own, which is not called here; write what "
                "it computes into call() and loss(labels, outputs)"
            )
    layers = network._flatten_layers()
    if together := [layer.name for layer in layers if getattr(layer, "synchronized", False)]:
        raise UsageError(
            f"{own.name}: {together[0]} averages over ranks by itself, and here statistics are each rank's own; leave "
            "synchronized out"
        )
    first = {id(variable) for variable in network.trainable_variables}
    if again := [v.path for v in _built(own, seed=BUFFER_SEED).trainable_variables if id(v) in first]:
        raise UsageError(
            f"{own.where('model')}: model() returns {again[0]} again when it is called again; every replica needs "
            "weights of its own: make the layers inside of model()"
        )


def _check_mean(own: OwnFile, outputs: Any, labels: Any) -> None:
    """Raises UsageError for a loss that is a sum over samples: ranks average theirs."""
    outputs = tf.cast(outputs, tf.float32)
    once, twice = float(tf.reduce_mean(own.names["loss"](labels, outputs))), 0.0
    with contextlib.suppress(Exception):  # a loss may take whole batches alone
        both = own.names["loss"](tf.concat([labels] * 2, 0), tf.concat([outputs] * 2, 0))
        twice = float(tf.reduce_mean(both))
    if once and math.isclose(twice, 2 * once, rel_tol=SAME):
        raise UsageError(SUM.format(file=own.name, arguments="labels, outputs"))


def _draws(own: OwnFile, network: KerasNetwork, inputs: Sequence[Any], labels: Any) -> bool:
    """Whether a training step draws random numbers. Raises UsageError for one that seeding does not repeat."""
    kept = [(variable, variable.numpy()) for variable in network.ordered]
    values, drawn = [], False
    for _ in range(3):
        for variable, value in kept:
            variable.assign(value)
        network.reseed(BUFFER_SEED)
        seeds = [state.numpy() for state in network._generators]
        outputs = network(*inputs, training=True)
        values.append([*outputs.numpy().ravel(), float(_loss(own, network.network, outputs, labels))])
        pairs = zip(seeds, network._generators, strict=True)
        drawn = any(np.any(before != state.numpy()) for before, state in pairs)
    if not all(np.allclose(values[0], value, rtol=SAME, atol=0, equal_nan=True) for value in values[1:]):
        raise UsageError(UNREPEATABLE.format(file=own.name, remedy=REMEDY))
    return drawn


REMEDY = (
    "keep what it counts in a weight that is not trained, and draw by Keras's layers or keras.random with a "
    "keras.random.SeedGenerator of the layer, neither by tf.random nor by NumPy"
)


def _checked_optimizer(own: OwnFile) -> Any:
    optimizer = own.call("optimizer")
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise UsageError(
            f"{own.name}: optimizer() returned a {type(optimizer).__name__}; return one of keras.optimizers"
        )
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if scales or optimizer.loss_scale_factor is not None:
        raise UsageError(
            f"{own.where('optimizer')}: the optimizer divides gradients by a scale of the loss, which nobody "
            "multiplies here; leave the scale out, and precision to --precision"
        )
    if callable(optimizer._learning_rate):
        raise UsageError(
            f"{own.name}: the optimizer has a schedule of learning rates; give it one rate above 0, and write "
            "schedule(step), which returns what it is multiplied by in step 0, 1, ..."
        )
    return optimizer


def loss_value(own: OwnFile, outputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """The user's loss of outputs (N, ...) and labels (N, ...), without terms of regularisation."""
    return float(tf.reduce_mean(own.names["loss"](tf.constant(labels), tf.constant(outputs))))
