"""Made-up declarations: throughputs by block, without any record."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from dlscale.analysis.families import family_of
from dlscale.analysis.findings.contrast_declaration import Declaration, Declared, Side

DRIFT = (1.0, 0.82, 1.1, 0.95, 1.2, 0.9, 1.05, 0.85, 1.15, 1.0)
WOBBLE = (0.002, -0.001, 0.003, -0.002, 0.001, -0.003, 0.002, -0.002, 0.001, -0.001)


def steadily(log: float, num_blocks: int, noise: float = 1.0) -> list[float]:
    """Log ratios around one, with a little noise that is never the same."""
    return [log + noise * WOBBLE[block % 10] for block in range(num_blocks)]


@pytest.fixture
def make_side(make_record) -> Callable[..., Side]:
    """A side with these samples per second, by block."""

    def make(name: str, rates: Mapping[int, float] | Sequence[float], **cell: object) -> Side:
        found = make_record(**{"backend": name, "num_ranks": 2, **cell})
        by_block = rates if isinstance(rates, Mapping) else dict(enumerate(rates))
        return Side(
            name=name,
            cell=found.case.cell,
            family=family_of(found.case.cell, system=found.system),
            evidence=found.evidence,
            rates={("s", block): rate for block, rate in by_block.items()},
        )

    return make


@pytest.fixture
def declaration(make_side) -> Callable[..., Declaration]:
    """Contenders against `mpi`, each given by its log ratios to it; the machine drifts from block to block."""

    def make(**logs: Sequence[float]) -> Declaration:
        pairs = []
        for name, values in logs.items():
            drift = np.resize(DRIFT, len(values))
            reference = make_side("mpi", list(100 * drift))
            contender = make_side(name, list(100 * drift * np.exp(values)))
            pairs.append(Declared(contender=contender, reference=reference))
        return Declaration(factor="backend", pairs=tuple(pairs))

    return make
