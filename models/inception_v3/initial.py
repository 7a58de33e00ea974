"""Inception v3's first weights, as torchvision's `models/inception.py` has them.

Kernels are normal with standard deviation 0.1, in the auxiliary head's last convolution 0.01 and in its dense layer
0.001. torchvision cuts them off at 2, which is twenty standard deviations, and so does nothing. Batch norm begins with
a scale of 1, and all biases are 0 (torchvision leaves those of the two dense layers to torch's default).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlscale.models.initial import normal

_STD = {"auxiliary.2.convolution.weight": 0.01, "auxiliary_classifier.weight": 0.001}


def initial(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """`initial.Initial` of both frameworks' networks."""
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    return normal(rng, shape, std=_STD.get(name, 0.1))
