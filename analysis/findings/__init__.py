"""What can be said about a study: a file per finding, in the order of the page."""

from typing import Any

from dlscale.analysis.finding import Finding, load

NAMES = (
    "interference",
    "solution_table",
    "pareto",
    "compression",
    "efficiency",
    "waterfall",
    "halos",
    "memory",
    "stragglers",
    "heat_maps",
    "contrast_table",
    "backends",
    "advice",
    "communication",
    "step_time",
    "step_distribution",
    "profiles",
    "throughput",
    "predicted_points",
    "scaling",
    "hardware_use",
    "launches",
    "energy",
    "startup",
    "input_cost",
    "checkpoints",
    "server_updates",
    "failures",
    "drift",
    "productivity",
    "environment",
)


def load_all() -> tuple[Finding[Any], ...]:
    """The findings of all files, in the order of `NAMES`."""
    return load(NAMES, __name__)
