"""The search of learning rates that a study with a target asks for: its learning rate is an axis.

It is the same for every configuration: as many trainings at each rate, and at most as many samples.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import ValidationError

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.axes import leave_out
from dlscale.benchmarks.study.study import LARGEST_SEED, Study
from dlscale.benchmarks.study.target import TargetRules, expected_samples, own_rate
from dlscale.benchmarks.study.tuned import SEED_DISTANCE
from dlscale.collectives import capabilities
from dlscale.collectives.algorithms.registry import NAMES as ALGORITHMS
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.compression.options import Compression
from dlscale.collectives.sharding import NONE

MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of a workload's own rate: the grid where none is given
MOST_SAMPLES = 3  # times as many as a training is expected to need: more at a rate is no bargain
SHARED_AXES = {"batch", "sequence_length", "height", "precision"}  # that make configurations of their own
# What changes no update, with the values of the search.
UNCHANGED = {"shard": NONE, "split": 1}
# Options of backends on which updates depend: such cells are searched one by one.
OF_UPDATES = {
    *("asynchronous", "backup_workers", "pipelined", "pipelined_until_step", "wire"),
    *(field.name for field in dataclasses.fields(Compression)),
}


def needs_search(study: Study) -> bool:
    """Whether learning rates are searched before the study's trainings, or instead of them."""
    return study.tuning is not None and study.target is not None and not study.target.tuned


def search_of(study: Study) -> Study:
    """The study that searches the learning rates of one that has [tuning].

    Raises UsageError for what no search could decide.
    """
    asked, rules = study.target, study.tuning
    if asked is None or rules is None:
        raise UsageError(f"study {study.name} has no target to tune for; choose time-to-solution")
    if asked.tuned:
        raise UsageError("target.tuned in a search, which finds such rates; leave it out")
    if rules.learning_rates and (asked.learning_rate or "learning_rate" in study.axes):
        raise UsageError(
            "target.learning_rate is the middle of a grid that learning_rates gives; leave out one"
        )
    if asked.evaluate_seconds:
        raise UsageError(
            "evaluate_seconds in a search of learning rates, whose choice by samples would depend on how fast the "
            "machine is; set evaluate_samples"
        )
    shared = {name for name in study.axes if name in SHARED_AXES or _changes_updates(name)}
    if others := [name for name in study.axes if name not in shared | {"learning_rate", *UNCHANGED}]:
        raise UsageError(
            f"{others[0]} with several values in a search of learning rates, which changes no gradient; give one value"
        )
    if study.seed + SEED_DISTANCE > LARGEST_SEED:
        raise UsageError(
            f"--seed {study.seed} leaves no seeds above it to tune with; give {LARGEST_SEED - SEED_DISTANCE} at most"
        )
    named = rules.learning_rates or study.axes.get("learning_rate")
    if asked.learning_rate and not named:
        named = _own_grid(study, asked)
    grid = [float(rate) for rate in named or asked.search or _own_grid(study, asked)]
    own = [] if named else asked.grids
    values: dict[str, Any] = study.model_dump() | {
        "name": "tuning",
        "title": "Learning rates",
        "tuning": None,
        **UNCHANGED,
        "axes": {name: several for name, several in study.axes.items() if name in shared}
        | {"learning_rate": _middle(grid, rules.num_rates)},
        "launches": rules.launches or study.launches,
        "seed": study.seed + SEED_DISTANCE,
        "repeats": 0,  # other programs change no number of samples
    }
    values["target"] = values["target"] | {
        "learning_rate": None,  # the grid has what it says
        "max_samples": asked.max_samples or _most_samples(study),
        "search": _middle(grid, rules.num_rates) if own else [],
        "grids": [each.model_copy(update={"rates": _middle(each.rates, rules.num_rates)}) for each in own],
    }
    if not (rules.every_backend or _each_backend(study)):
        values |= {"backends": _backends(study), "named_backends": True}
        leave_out(values, "backend_options", left=set(values["backends"]), named=set())
    try:
        return Study.model_validate(values).model_copy(update={"own_files": study.own_files})
    except ValidationError as error:
        raise UsageError(f"study {study.name}: {definitions.first_problem(error)}") from None


def _middle(grid: list[float], number: int | None) -> list[float]:
    """So many rates around the middle of a grid. Raises UsageError where it has fewer."""
    if number is None:
        return grid
    if number > len(grid):
        raise UsageError(f"num_rates = {number} of a grid of {len(grid)} rates; give {len(grid)} at most")
    first = (len(grid) - number) // 2
    return grid[first : first + number]


def _changes_updates(name: str) -> bool:
    """Whether a setting is an algorithm's, or an option of a backend on which updates depend."""
    owner, _, option = name.partition(".")
    return owner in ALGORITHMS or option in OF_UPDATES


def _each_backend(study: Study) -> bool:
    """Whether rates of one backend are none of another: updates differ by options, or no backend makes all of them.

    Named backends with several algorithms are all searched, as an algorithm may be another one over servers.
    """
    options = [name for own in study.backend_options.values() for name in own]
    if OF_UPDATES & {*options, *(name.partition(".")[2] for name in study.axes)}:
        return True
    several = [name for name in study.backends if capabilities(name).exchanges]
    carried = [set(study.algorithms) <= set(capabilities(name).algorithms) for name in several]
    if study.algorithms == [SYNC] or len(several) == 1:
        return False
    return study.named_backends or not any(carried)


def _backends(study: Study) -> list[str]:
    """The backend to train over, after `none` where the study has that: its first one for all its frameworks.

    Raises UsageError if the user named several, or none is left.
    """
    alone = [name for name in study.backends if name == "none"]
    exchanging = [name for name in study.backends if capabilities(name).exchanges]
    if study.named_backends and len(exchanging) > 1:
        raise UsageError(
            f"--backends {','.join(study.backends)} in a search of learning rates: backends with equal batches compute "
            f"the same gradients, so one is enough; give --backends {','.join([*alone, exchanging[0]])}"
        )
    fitting = [
        name
        for name in exchanging
        if set(study.frameworks) <= set(capabilities(name).frameworks)
        and set(study.algorithms) <= set(capabilities(name).algorithms)
    ]
    if exchanging and not fitting:
        what = " and ".join([*study.frameworks, *(name for name in study.algorithms if name != SYNC)])
        raise UsageError(
            f"no backend of {', '.join(exchanging)} supports {what}; name another one with "
            "--backends none,BACKEND, or tune one framework at a time"
        )
    return [*alone, *fitting[:1]]


def _most_samples(study: Study) -> int:
    """The samples after which trainings give up. Raises UsageError where the study expects no number."""
    expected = []
    for workload, preset in _presets(study):
        samples = expected_samples(study.target, workload, preset) if study.target else None
        if samples is None:
            raise UsageError(
                f"{workload} with preset {preset}: the study does not say how many samples a training needs, and all "
                "rates are to have the same limit; set max_samples"
            )
        expected.append(samples)
    return MOST_SAMPLES * max(expected)


def _own_grid(study: Study, rules: TargetRules) -> list[float]:
    """Multiples of the rate that all workloads of the study have. Raises UsageError if they have several."""
    rates = {
        workload: own_rate(
            rules,
            facts := study.facts(workload),
            facts.preset(preset, study.sequence_length, height=study.height),
        )
        for workload, preset in _presets(study)
    }
    if len(set(rates.values())) > 1:
        own = ", ".join(f"{workload} {rate:g}" for workload, rate in rates.items())
        raise UsageError(
            f"workloads with learning rates of their own ({own}) have no grid in common; set learning_rates, or "
            "tune one workload at a time"
        )
    return [multiple * next(iter(rates.values())) for multiple in MULTIPLES]


def _presets(study: Study) -> list[tuple[str, str]]:
    """The study's workloads, each with its preset."""
    return [(name, study.facts(name).preset(study.preset).name) for name in study.workloads]
