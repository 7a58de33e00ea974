"""What can be said about a study: a file per finding, in the order of the page."""

from dlscale.analysis.finding import Finding, load

NAMES = (
    "verdict",
    "cautions",
    "solution",
    "waterfall",
    "scaling",
    "predicted",
    "comparison",
    "evaluations",
    "stragglers",
    "communication",
    "launches",
    "memory",
    "hardware",
    "energy",
    "start_up",
    "profile",
    "checkpoints",
    "servers",
    "compression",
    "productivity",
    "halos",
    "failures",
    "environment",
)


def load_all() -> list[Finding]:
    """The findings of all files, in the order of `NAMES`."""
    return load(NAMES, __name__)
