"""CosmoGAN's first weights: normal with standard deviation 0.02, biases of zero, batch norm that changes nothing.

In the discriminator's convolutions the normal is cut off at two standard deviations, as TensorFlow's
`truncated_normal` does it (MustafaMustafa/cosmoGAN, `networks/models/ops.py`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlscale.models.initial import normal

STD = 0.02
CUT = 2.0  # standard deviations


def initial(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """`initial.Initial` of both frameworks' networks."""
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    if ".norms." in name:
        return np.ones(shape, np.float32)
    values = normal(rng, shape, std=STD)
    if name.startswith("discriminator.convolutions."):
        while (outside := np.abs(values) > CUT * STD).any():
            values[outside] = normal(rng, (int(outside.sum()),), std=STD)
    return values
