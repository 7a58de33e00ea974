"""How schedulers are spoken to: one module each, which fills a table of small functions."""

from __future__ import annotations

import importlib

from dlscale.benchmarks.schedulers.request import Request, Scheduler, State

NAMES = ("slurm", "pbs", "torque", "cobalt", "lsf", "flux")

__all__ = ["NAMES", "Request", "Scheduler", "State", "scheduler"]


def scheduler(name: str) -> Scheduler:
    """The functions of that scheduler. Raises ValueError for a system without one ("none")."""
    if name not in NAMES:
        raise ValueError(f"no scheduler {name!r}; there are: {', '.join(NAMES)}")
    found: Scheduler = importlib.import_module(f"dlscale.benchmarks.schedulers.{name}").SCHEDULER
    return found
