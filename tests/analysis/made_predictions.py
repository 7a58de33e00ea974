"""Made-up predictions of what `make_study` measures: hep_cnn tiny in torch, 8 samples per rank, one node."""

from __future__ import annotations

from collections.abc import Sequence

from dlscale.benchmarks.records.prediction import Band, PredictionRecord


def band(center: float, half: float = 0.1) -> Band:
    """Limits a share `half` below and above the centre."""
    return Band(low=(1 - half) * center, center=center, high=(1 + half) * center)


def prediction(
    backend: str = "ring", num_ranks: int = 2, *, efficiency: float = 0.9, half: float = 0.1, **fields: object
) -> PredictionRecord:
    """One that expects `efficiency` x 100 samples per second and rank."""
    rate = 100 * num_ranks * efficiency
    known: dict[str, object] = {
        "system": "local",
        "workload": "hep_cnn",
        "preset": "tiny",
        "framework": "torch",
        "backend": backend,
        "scaling_mode": "weak",
        "num_ranks": num_ranks,
        "num_servers": 0,
        "num_nodes": 1,
        "local_batch": 8,
        "global_batch": 8 * num_ranks,
        "samples_per_second": band(rate, half),
        "efficiency": band(efficiency, half),
        "step_seconds": band(8 * num_ranks / rate, half),
        "parts": {"stragglers": 0.02, "exposed communication": 0.98 - efficiency},
        "num_replicates": 200,
        "engine": "loggp",
        "engine_version": "1",
        "wire_seconds": 1e-3,
        "origins": [
            {"input": "time of a step", "value": "80 ms", "kind": "measured", "source": "a profile"},
            {"input": "latency of a message", "value": "2 us", "kind": "assumed", "source": "a guess"},
        ],
        "doubts": (),
        "commit": "0123456789ab",
        "command": "dlscale predict weak-scaling",
    }
    return PredictionRecord.model_validate(known | fields)


def predictions(
    backend: str = "ring", ranks: Sequence[int] = (1, 2, 4, 8, 16), **fields: object
) -> list[PredictionRecord]:
    """A curve that loses 2 % with each of its sizes; from the third on it is on several nodes."""
    return [
        prediction(backend, count, efficiency=0.99 - 0.02 * place, num_nodes=max(1, count // 2), **fields)  # type: ignore[arg-type]
        for place, count in enumerate(ranks)
    ]
