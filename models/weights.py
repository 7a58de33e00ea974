"""Weights by their names, the same in both frameworks, and how they are drawn at first.

Initial weights are drawn with NumPy and depend on the seed only. Shapes are canonical (models/workload.py): the last
axis of a kernel counts outputs, all before it inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray


def decays(name: str) -> bool:
    """True if weight decay applies to the parameter: to all but batch norm's scales and shifts.

    Source: Goyal et al. 2017, arXiv:1706.02677, section 5.1.
    """
    return not {"norm", "norms"} & set(name.split("."))


Initial = Callable[[np.random.Generator, str, tuple[int, ...]], NDArray[np.float32]]
"""(generator, name, canonical shape) -> the first value of that parameter; a network's rule of initialisation."""


def draw_initial(
    initial: Initial, named_shapes: Sequence[tuple[str, tuple[int, ...]]], *, seed: int
) -> list[NDArray[np.float32]]:
    """First values of all parameters, in order; each has a stream of its own, so that one may change alone."""
    return [
        np.ascontiguousarray(initial(np.random.default_rng((seed, index)), name, shape), dtype=np.float32)
        for index, (name, shape) in enumerate(named_shapes)
    ]


def normal(rng: np.random.Generator, shape: tuple[int, ...], *, std: float) -> NDArray[np.float32]:
    """Normal with mean 0 and standard deviation `std`."""
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(std)


def he_normal(
    rng: np.random.Generator, shape: tuple[int, ...], *, fan_out: bool = False
) -> NDArray[np.float32]:
    """Normal with variance 2 / fan in: keeps the scale of values through layers with ReLU (He et al. 2015).

    With `fan_out` it is 2 / fan out, which keeps that of gradients.
    """
    fan = np.prod(shape[:-2], dtype=int) * shape[-1 if fan_out else -2]
    return normal(rng, shape, std=float(np.sqrt(2 / fan)))
