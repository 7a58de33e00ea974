"""What the states of both frameworks' replicas have in common (`workload.State`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from dlscale.models.errors import UsageError
from dlscale.models.workload import State

NUM_DRAWN = "num_drawn"  # batches: the number of the next step


def counted(num_drawn: int) -> NDArray[np.int64]:
    """The number of batches as an array of one."""
    return np.array([num_drawn], dtype=np.int64)


def check_names(state: State, wanted: Mapping[str, Iterable[int]]) -> None:
    """Returns if the state has exactly those names and shapes. Raises UsageError."""
    missing, unknown = sorted(set(wanted) - set(state)), sorted(set(state) - set(wanted))
    if missing or unknown:
        what = f"without {missing[0]}" if missing else f"with {unknown[0]}, which is unknown here"
        raise UsageError(f"the state is of another training: {what}")
    for name, shape in wanted.items():
        if state[name].shape != tuple(shape):
            raise UsageError(
                f"the state is of another training: {name} has shape {state[name].shape}, here {tuple(shape)}"
            )
