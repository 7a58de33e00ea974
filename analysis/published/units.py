"""Quantities that are published, and the units that each may have; everything is computed in the first one's scale."""

from __future__ import annotations

_RATE = {"images/s": 1.0, "samples/s": 1.0}
_RATIO = {"1": 1.0, "%": 0.01}
_TIME = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0}
_SAMPLES = {"samples": 1.0, "K samples": 1024.0}
_COUNT = {"1": 1.0}

# Unit -> factor to the quantity's base unit. `K samples` as papers print 8K for 8192.
UNITS: dict[str, dict[str, float]] = {
    "throughput": _RATE,
    "throughput_per_device": _RATE,
    "speed_up": _COUNT,
    "efficiency": _RATIO,
    "relative_throughput": _COUNT,
    "relative_time": _COUNT,
    "seconds_per_sample": _TIME,
    "seconds_per_step": _TIME,
    "seconds_per_epoch": _TIME,
    "time_to_solution": _TIME,
    "training_loss": _COUNT,
    "top1_accuracy": _RATIO,
    "top1_error": _RATIO,
    "accuracy": _RATIO,
    "signal_efficiency": _RATIO,
    "background_rejection": _RATIO,
    "ams": _COUNT,
    "p_value": _COUNT,
    "global_batch": _SAMPLES,
    "local_batch": _SAMPLES,
    "images_per_epoch": {"images": 1.0},
    "gradient_bytes": {"MB": 1e6},
    "compression": _COUNT,
    "flop_rate": {"TFLOP/s": 1e12, "PFLOP/s": 1e15},
    "statements_added": _COUNT,
    "settings_faster": _COUNT,
}
HALF_WIDTH = "_half_width"  # ends the name of an uncertainty: `throughput_half_width`

# What is said of places on the x axis alone: where scaling is linear, where it ends, what was run.
PLACES = ("linear", "scaling_ends", "sweep")

X_UNITS = ("nodes", "GPUs", "devices", "processes", "machines", "images", "epochs", "s")


def factor(quantity: str, unit: str) -> float:
    """What a number in `unit` is multiplied by. Raises ValueError for a quantity or unit that is not known."""
    units = UNITS.get(quantity.removesuffix(HALF_WIDTH))
    if units is None:
        raise ValueError(f"no quantity {quantity!r}; choose one of: {', '.join((*UNITS, *PLACES))}")
    if unit not in units:
        raise ValueError(f"{quantity} in {unit or 'no unit'!r}; choose one of: {', '.join(units)}")
    return units[unit]


def check_x_unit(unit: str) -> str:
    """The unit, if there is one of that name. Raises ValueError."""
    if unit not in X_UNITS:
        raise ValueError(f"x in {unit or 'no unit'!r}; choose one of: {', '.join(X_UNITS)}")
    return unit
