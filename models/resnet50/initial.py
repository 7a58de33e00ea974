"""ResNet-50's first weights, as in Goyal et al. 2017, arXiv:1706.02677, section 5.1.

Convolutions are He-normal, by fan out as in torchvision (models/resnet.py), and the classifier is normal with standard
deviation 0.01. Batch norm begins with a scale of 1, but with 0 at the end of each block, which so begins as the
identity.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlscale.models.initial import he_normal, normal


def initial(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """`initial.Initial` of both frameworks' networks."""
    if name.endswith("expand.norm.weight"):
        return np.zeros(shape, np.float32)
    return initial_of_gate(rng, name, shape)


def initial_of_gate(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The same with all scales 1: behind a scale of 0 all gradients are 0, and none could be seen to be lost."""
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    if name == "classifier.weight":
        return normal(rng, shape, std=0.01)
    return he_normal(rng, shape, fan_out=True)
