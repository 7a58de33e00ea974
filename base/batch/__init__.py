"""Schedulers: a file for each, with the variables of its jobs, the directives of its scripts, and its commands."""

from __future__ import annotations

import importlib

from dlscale.base.batch.scheduler import Scheduler

# The first whose variables are set is that of a job. Slurm first: a job of Flux may run inside one of Slurm. PBS before
# Torque, whose jobs have the same variables.
NAMES = ("slurm", "cobalt", "pbs", "torque", "lsf", "flux")


def scheduler(name: str) -> Scheduler:
    """The scheduler of that name. Raises ValueError for a system without one ("none")."""
    if name not in NAMES:
        raise ValueError(f"no scheduler {name!r}; there are: {', '.join(NAMES)}")
    loaded: Scheduler = importlib.import_module(f"dlscale.base.batch.{name}").SCHEDULER
    return loaded


def load_all() -> list[Scheduler]:
    """All of them, in the order in which a job is recognised."""
    return [scheduler(name) for name in NAMES]
