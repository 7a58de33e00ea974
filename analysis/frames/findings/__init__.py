"""What can be said about a study: a file per finding, in the order of the page."""

from dlscale.analysis.frames.finding import Finding, load

NAMES = (
    "verdict",
    "cautions",
    "waterfall",
    "scaling",
    "comparison",
    "solution",
    "evaluations",
    "stragglers",
    "communication",
    "launches",
    "memory",
    "hardware",
    "energy",
    "checkpoints",
    "servers",
    "compression",
)


def load_all() -> list[Finding]:
    """The findings of all files, in the order of `NAMES`."""
    return load(NAMES, __name__)
