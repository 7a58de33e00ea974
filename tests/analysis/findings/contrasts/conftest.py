"""Made-up declarations: throughputs by block, without any record."""

from collections.abc import Mapping, Sequence

import numpy as np

from dlscale.analysis.families import family_of
from dlscale.analysis.findings.contrast_declaration import Declaration, Declared, Side
from tests.made_records import make_record

DRIFT = (1.0, 0.82, 1.1, 0.95, 1.2, 0.9, 1.05, 0.85, 1.15, 1.0)
WOBBLE = (0.002, -0.001, 0.003, -0.002, 0.001, -0.003, 0.002, -0.002, 0.001, -0.001)


def steadily(log: float, num_blocks: int, noise: float = 1.0) -> list[float]:
    """Log ratios around one, with a little noise that is never the same."""
    return [log + noise * WOBBLE[block % 10] for block in range(num_blocks)]


def make_side(name: str, rates: Mapping[int, float] | Sequence[float]) -> Side:
    """A side on 2 ranks with these samples per second, by block."""
    found = make_record(backend=name, num_ranks=2)
    by_block = rates if isinstance(rates, Mapping) else dict(enumerate(rates))
    return Side(
        name=name,
        cell=found.case.cell,
        family=family_of(found.case.cell, system=found.system),
        evidence=found.evidence,
        rates={("s", block): rate for block, rate in by_block.items()},
    )


def declaration(**logs: Sequence[float]) -> Declaration:
    """Contenders against `mpi`, each given by its log ratios to it; the machine drifts from block to block."""
    pairs = []
    for name, values in logs.items():
        drift = np.resize(DRIFT, len(values))
        reference = make_side("mpi", list(100 * drift))
        contender = make_side(name, list(100 * drift * np.exp(values)))
        pairs.append(Declared(contender=contender, reference=reference))
    return Declaration(factor="backend", pairs=tuple(pairs))
