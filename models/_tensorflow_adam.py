"""Adam for TensorFlow as its paper's algorithm 1 has it, and torch: Kingma & Ba 2015, arXiv:1412.6980.

TensorFlow's own Adam is the variant of the paper's section 2, which adds epsilon to the root before the bias of
the second moment is taken out. In the first steps its epsilon is up to 30 times as large, and parameters with small
gradients move less: after three steps losses differ by a percent between the frameworks.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Adam(tf.compat.v1.train.AdamOptimizer):  # type: ignore[misc]
    """`tf.compat.v1.train.AdamOptimizer` with epsilon scaled to the bias of each step."""

    def powers(self) -> dict[str, Any]:
        """The variables that hold beta1 and beta2 to the power of the steps taken; after the first step."""
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
