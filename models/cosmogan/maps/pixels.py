"""Between convergence and pixels in [-1, 1], the range of the generator's tanh.

s = 2 x / (x + middle) - 1 with x = 1 + convergence / shift, and back. settings.toml has the two numbers and says
where they are from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_pixels(convergence: NDArray[Any], *, shift: float, middle: float) -> NDArray[Any]:
    """Pixels in [-1, 1) of convergence of -`shift` or more; -1 is a line of sight without matter."""
    x = 1 + convergence / shift
    pixels: NDArray[Any] = 2 * x / (x + middle) - 1
    return pixels


def to_convergence(pixels: NDArray[Any], *, shift: float, middle: float) -> NDArray[Any]:
    """The convergence that `to_pixels` has made into `pixels`, in float64, for all below 1."""
    values = pixels.astype(np.float64)
    convergence: NDArray[Any] = shift * (middle * (1 + values) / (1 - values) - 1)
    return convergence
