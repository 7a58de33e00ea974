"""HEP-CNN's first weights: He-normal kernels, biases of zero."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlscale.models.initial import he_normal


def initial(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """`initial.Initial` of both frameworks' networks."""
    return np.zeros(shape, np.float32) if name.endswith("bias") else he_normal(rng, shape)
