"""Optimizers of the TensorFlow networks, and those by name (models/optimizers.py).

They are those of `tf.compat.v1`, which work eagerly, in a `tf.function`, under a strategy's scope and in a graph of
version 1, and update a variable by one fused operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from dlscale.models.optimizers import ADAM_EPSILON, BETAS, OptimizerRule
from dlscale.models.weights import decays


def named_optimizer(rule: OptimizerRule, parameters: Sequence[Any], *, learning_rate: float) -> Any:  # noqa: ARG001
    """The optimizer of a rule."""
    if rule.name == "adam":
        return Adam(learning_rate)
    if rule.momentum:
        return MomentumSgd(learning_rate, momentum=rule.momentum, nesterov=False)
    return Sgd(learning_rate)


class Optimizer:
    """What replicas and trainers ask of an optimizer besides `apply_gradients`."""

    rate: Any  # a variable, so that no step is traced again for another one; a number in a graph of version 1

    def set_rate(self, learning_rate: float) -> None:
        """From the next step on the rate is that; not in a graph of version 1."""
        self.rate.assign(learning_rate)

    def make_slots(self, parameters: Sequence[Any]) -> None:
        """Make what updates of `parameters` need: made while a step is traced, it has the step traced twice."""
        self._create_slots(parameters)  # type: ignore[attr-defined]  # TensorFlow's hook for optimizers

    def kept(self, parameters: Sequence[Any]) -> dict[str, Any]:
        """Its variables, by name, once they are made; TensorFlow's own list has not all of them under a strategy."""
        return {
            f"{name}.{place}": slot
            for name in self.get_slot_names()  # type: ignore[attr-defined]
            for place, parameter in enumerate(parameters)
            if (slot := self.get_slot(parameter, name)) is not None  # type: ignore[attr-defined]
        }


def _settable(learning_rate: float) -> Any:
    if not tf.executing_eagerly():
        return learning_rate
    return tf.Variable(learning_rate, dtype=tf.float32, trainable=False, name="learning_rate")


class Sgd(Optimizer, tf.compat.v1.train.GradientDescentOptimizer):  # type: ignore[misc]
    """Plain SGD."""

    def __init__(self, learning_rate: float) -> None:
        self.rate = _settable(learning_rate)
        super().__init__(self.rate)


class Adam(Optimizer, tf.compat.v1.train.AdamOptimizer):  # type: ignore[misc]
    """Algorithm 1 of its paper (Kingma & Ba 2015, arXiv:1412.6980), as in torch.

    TensorFlow's own is the variant of the paper's section 2, which adds epsilon to the root before the bias of the
    second moment is taken out: here epsilon is scaled to the bias of each step.
    """

    def __init__(self, learning_rate: float, *, beta1: float = BETAS[0]) -> None:
        self.rate = _settable(learning_rate)
        super().__init__(self.rate, beta1=beta1, beta2=BETAS[1], epsilon=ADAM_EPSILON)

    def kept(self, parameters: Sequence[Any]) -> dict[str, Any]:
        powers = self._get_beta_accumulators() if self.get_slot_names() else ()
        return super().kept(parameters) | dict(zip(("beta1_power", "beta2_power"), powers, strict=False))

    def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
        beta1_power, beta2_power = (tf.convert_to_tensor(power) for power in self._get_beta_accumulators())
        return tf.raw_ops.ResourceApplyAdam(
            var=var.handle,
            m=self.get_slot(var, "m").handle,
            v=self.get_slot(var, "v").handle,
            beta1_power=beta1_power,
            beta2_power=beta2_power,
            lr=self._lr_t,
            beta1=self._beta1_t,
            beta2=self._beta2_t,
            epsilon=self._epsilon_t * tf.sqrt(1 - beta2_power),
            grad=grad,
            use_locking=self._use_locking,
        )


class MomentumSgd(Optimizer, tf.compat.v1.train.MomentumOptimizer):  # type: ignore[misc]
    """SGD with momentum, Nesterov's or the plain one; `weight_decay` times a weight that decays joins its gradient.

    It does so where the update is made, behind the exchange of gradients: it is added once, whatever the strategy.
    """

    def __init__(
        self, learning_rate: float, *, momentum: float, weight_decay: float = 0.0, nesterov: bool = True
    ) -> None:
        self.rate = _settable(learning_rate)
        super().__init__(self.rate, momentum, use_nesterov=nesterov)
        self._weight_decay = weight_decay

    def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
        if self._weight_decay and decays(var.name):
            # Read where it lies: of a server's variable that a worker caches, the value would come from the worker.
            weights = tf.raw_ops.ReadVariableOp(resource=var.handle, dtype=var.dtype)
            grad += self._weight_decay * weights
        return super()._resource_apply_dense(grad, var)
