"""The random generators that a user's file may draw from: seeded together, so that a step can be taken again."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np


def generators_of(*owners: Any) -> list[Any]:
    """NumPy's, Python's and torch's generators among the attributes of these objects, or the values of these dicts."""
    values = [
        value for owner in owners for value in (owner if isinstance(owner, dict) else vars(owner)).values()
    ]
    return list({id(value): value for value in values if _is_generator(value)}.values())


def seed_generators(number: int, generators: Iterable[Any] = ()) -> None:
    """Seed the global generators of Python and NumPy, and each of those given."""
    random.seed(number)
    np.random.seed(number)
    for generator in generators:
        _seed(generator, number)


class GeneratorStates:
    """The states of the global generators and of some others: to go back to, and to see whether any was drawn from."""

    def __init__(self, generators: Iterable[Any]) -> None:
        self._generators = list(generators)
        self._states = self._now()

    def restore(self) -> None:
        """All generators go on from there, but for the framework's own."""
        python, numpys, _, *own = self._states
        random.setstate(python)
        np.random.set_state(numpys)
        for generator, state in zip(self._generators, own, strict=True):
            _set_state(generator, state)

    def drawn_from(self) -> bool:
        """Whether any was drawn from, or seeded, meanwhile."""
        return not _same(self._now(), self._states)

    def _now(self) -> list[Any]:
        torch = sys.modules.get("torch")
        own = [copy.deepcopy(_state(generator)) for generator in self._generators]
        return [random.getstate(), np.random.get_state(), torch.get_rng_state() if torch else None, *own]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return all(map(_same, one, other))
    return bool(np.all(np.asarray(one) == np.asarray(other)))


def _is_generator(value: Any) -> bool:
    known = isinstance(value, np.random.Generator | np.random.RandomState | random.Random)
    return known or _is_torchs(value)


def _is_torchs(value: Any) -> bool:
    return type(value).__module__.startswith("torch") and hasattr(value, "manual_seed")


def _seed(generator: Any, number: int) -> None:
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        bits.state = type(bits)(number).state
    elif _is_torchs(generator):
        generator.manual_seed(number)
    else:
        generator.seed(number)


def _state(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.get_state()


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)
