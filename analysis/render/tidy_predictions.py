"""The tidy table of predictions, which stands by itself: no launch is behind a row of it."""

from __future__ import annotations

from dlscale.analysis.records import settings_text
from dlscale.benchmarks.records.prediction import PredictionRecord

QUANTITIES = {
    "samples_per_second": "samples_per_second",
    "efficiency": "efficiency",
    "step_seconds": "seconds_per_step",  # as launches have it
}


def tidy_prediction(record: PredictionRecord) -> dict[str, object]:
    """The columns of a prediction, those that it has from its record under their own names."""
    row: dict[str, object] = record.model_dump(exclude={*QUANTITIES, "parts"})
    for field, name in QUANTITIES.items():
        band = getattr(record, field)
        row |= {name: band.center, f"{name}_low": band.low, f"{name}_high": band.high}
    return {
        **row,
        **{f"{name.replace(' ', '_')}_loss": share for name, share in record.parts.items()},
        "backend_options": settings_text(record.backend_options),
        "doubts": "; ".join(record.doubts),
    }
