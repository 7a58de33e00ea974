"""The random generators that a user's file may draw from: seeded together, so that a step can be taken again."""

from __future__ import annotations

import copy
import random
import sys
from typing import Any

import numpy as np

SEED_LIMIT = 2**31  # of NumPy's global generator, and of those that take fewer bits than torch's


class Generators:
    """The global ones, and NumPy's, Python's and torch's among the attributes of objects or the values of dicts."""

    def __init__(self, *owners: Any) -> None:
        values = [
            value
            for owner in owners
            for value in (owner if isinstance(owner, dict) else vars(owner)).values()
        ]
        self._own = list({id(value): value for value in values if _is_generator(value)}.values())

    def seed(self, number: int) -> None:
        """Seed all, those of the frameworks that are imported included."""
        seed_frameworks(number)
        for generator in (random, np.random, *self._own):
            if isinstance(generator, np.random.Generator):
                bits = generator.bit_generator
                bits.state = type(bits)(number).state
            else:
                _method(generator, "manual_seed", "seed")(number % SEED_LIMIT)

    def states(self) -> list[Any]:
        """Where all are but the frameworks'."""
        return [
            copy.deepcopy(generator.bit_generator.state)
            if isinstance(generator, np.random.Generator)
            else _method(generator, "getstate", "get_state")()
            for generator in (random, np.random, *self._own)
        ]

    def restore(self, states: list[Any]) -> None:
        """All but the frameworks' go on from there."""
        for generator, state in zip((random, np.random, *self._own), states, strict=True):
            if isinstance(generator, np.random.Generator):
                generator.bit_generator.state = state
            else:
                _method(generator, "setstate", "set_state")(state)


def seed_frameworks(number: int) -> None:
    """Seed the global generators of torch and TensorFlow, if they are imported."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(number)
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.random.set_seed(number)


def same_states(one: Any, other: Any) -> bool:
    """Whether nothing was drawn between two `Generators.states`."""
    if isinstance(one, dict):
        return all(same_states(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return all(map(same_states, one, other))
    return bool(np.all(np.asarray(one) == np.asarray(other)))


def _is_generator(value: Any) -> bool:
    known = isinstance(value, np.random.Generator | np.random.RandomState | random.Random)
    return known or (type(value).__module__.startswith("torch") and hasattr(value, "manual_seed"))


def _method(generator: Any, *names: str) -> Any:
    return next(getattr(generator, name) for name in names if hasattr(generator, name))
