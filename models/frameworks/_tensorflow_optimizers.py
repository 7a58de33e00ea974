"""Optimizers of the TensorFlow networks, and those by name (models/optimizers.py).

They are those of `tf.compat.v1`, which work eagerly, in a `tf.function`, under a strategy's scope and in a graph of
version 1. Their learning rate is a variable that can be set between steps, and no step is traced again for it; in a
graph of version 1 it is a constant.

Adam is algorithm 1 of its paper (Kingma & Ba 2015, arXiv:1412.6980), as in torch. TensorFlow's own Adam is the
variant of the paper's section 2, which adds epsilon to the root before the bias of the second moment is taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from dlscale.models.optimizers import ADAM_EPSILON, BETAS, OptimizerRule
from dlscale.models.weights import decays


def named_optimizer(rule: OptimizerRule, *, learning_rate: float) -> Any:
    """The optimizer of a rule."""
    if rule.name == "adam":
        return Adam(learning_rate, beta1=BETAS[0], beta2=BETAS[1], epsilon=ADAM_EPSILON)
    momentum = rule.momentum or 0.0
    return MomentumSgd(learning_rate=learning_rate, momentum=momentum, weight_decay=0.0, nesterov=False)


class HasRate:
    """Its learning rate can be set between steps."""

    rate: Any  # a variable; a number in a graph of version 1

    def set_rate(self, learning_rate: float) -> None:
        """From the next step on the rate is that; not in a graph of version 1."""
        self.rate.assign(learning_rate)


def _settable(learning_rate: float) -> Any:
    if not tf.executing_eagerly():
        return learning_rate
    return tf.Variable(learning_rate, dtype=tf.float32, trainable=False, name="learning_rate")


class MakesSlots:
    """What an optimizer keeps can be made before its first step.

    Made while that step is traced, its variables have TensorFlow trace the step a second time.
    """

    _create_slots: Callable[[Sequence[Any]], None]  # TensorFlow's hook for optimizers

    def make_slots(self, parameters: Sequence[Any]) -> None:
        """Make the variables that updates of `parameters` need; nothing where they are there."""
        self._create_slots(parameters)


class Sgd(HasRate, tf.compat.v1.train.GradientDescentOptimizer):  # type: ignore[misc]
    """Plain SGD."""

    def __init__(self, learning_rate: float) -> None:
        self.rate = _settable(learning_rate)
        super().__init__(self.rate)


class Adam(HasRate, MakesSlots, tf.compat.v1.train.AdamOptimizer):  # type: ignore[misc]
    """`tf.compat.v1.train.AdamOptimizer` with epsilon scaled to the bias of each step."""

    def __init__(self, learning_rate: float, **options: float) -> None:
        self.rate = _settable(learning_rate)
        super().__init__(self.rate, **options)

    def powers(self) -> dict[str, Any]:
        """The variables that hold beta1 and beta2 to the power of the steps taken; after `make_slots`."""
        beta1_power, beta2_power = self._get_beta_accumulators()
        return {"beta1_power": beta1_power, "beta2_power": beta2_power}

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


class MomentumSgd(HasRate, MakesSlots, tf.compat.v1.train.MomentumOptimizer):  # type: ignore[misc]
    """SGD with momentum, Nesterov's or the plain one; `weight_decay` times the weight joins the gradient where it
    applies.

    It does so where the update is made, behind the exchange of gradients: it is added once, whatever the strategy.
    """

    def __init__(
        self, *, learning_rate: float, momentum: float, weight_decay: float, nesterov: bool = True
    ) -> None:
        self.rate = _settable(learning_rate)
        super().__init__(self.rate, momentum, use_nesterov=nesterov)
        self._weight_decay = weight_decay

    def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
        decay = self._weight_decay if decays(var.name) else 0.0
        return super()._resource_apply_dense(grad + decay * _in_place(var) if decay else grad, var)


def _in_place(var: Any) -> Any:
    """The weights, read where they lie.

    Where a worker caches a variable of a server, its value is the worker's copy: an update on the server would have the
    weights sent to the worker and back.
    """
    return tf.raw_ops.ReadVariableOp(resource=var.handle, dtype=var.dtype)
