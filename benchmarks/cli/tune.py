"""`dlscale tune`: a study of time to solution whose learning rate is an axis, the same for every configuration."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from typing import Any

import click

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import F, start_options, study_of, study_options, system_of
from dlscale.benchmarks.cli.run import plan_and_run
from dlscale.benchmarks.study.study import LARGEST_SEED, Study
from dlscale.benchmarks.study.target import TargetRules, expected_samples, own_rate
from dlscale.benchmarks.study.tuned import SEED_DISTANCE
from dlscale.collectives import capabilities
from dlscale.collectives.algorithms.registry import NAMES as ALGORITHMS
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.compression.options import Compression

STUDY = "time-to-solution"
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of a workload's own rate: the grid where none is given
NUM_SEEDS = 3
MOST_SAMPLES = 3  # times as many as a training is expected to need: more at a rate is no bargain
SHARED_AXES = {"batch", "precision"}  # that make configurations of their own
# Options of backends on which updates depend: such cells are searched one by one.
OF_UPDATES = {
    *("asynchronous", "backup_workers", "pipelined", "pipelined_until_step", "wire"),
    *(field.name for field in dataclasses.fields(Compression)),
}


class Rates(click.ParamType[list[float]]):
    """Learning rates between `|`, a grid to search."""

    name = "rates"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        """The rates in ascending order; a malformed one is a one-line error."""
        if isinstance(value, list):
            return value
        try:
            rates = sorted(float(word) for word in value.split("|"))
        except ValueError:
            self.fail(f"{value!r} is not a grid of numbers; write e.g. 0.0005|0.001|0.002", param, ctx)
        if wrong := [rate for rate in rates if not 0 < rate < math.inf]:
            self.fail(
                f"{value!r} has {wrong[0]:g}, which no training can use; give numbers above 0", param, ctx
            )
        if len(rates) < 2:
            self.fail(f"{value!r} is one rate, and a search needs two or more", param, ctx)
        if twice := [rate for rate, following in pairwise(rates) if rate == following]:
            self.fail(f"{value!r} has {twice[0]:g} twice; give each once", param, ctx)
        return rates


def rate_options(command: F) -> F:
    """Add --learning-rates and --num-rates."""
    command = click.option(
        "--num-rates",
        type=click.IntRange(min=2),
        help="Rates of each grid to try, from its middle; default: all.",
    )(command)
    return click.option(
        "--learning-rates",
        type=Rates(),
        help="Grid of learning rates of 1 rank, e.g. 0.0005|0.001|0.002; default: the study's, or 1/4, 1/2, 1, 2 and 4 "
        "times the workload's own, or --learning-rate.",
    )(command)


@click.command()
@click.argument("study", default=STUDY)
@rate_options
@study_options
@start_options
def tune(
    study: str,
    learning_rates: list[float] | None,
    num_rates: int | None,
    dry_run: bool,
    in_allocation: bool,
    wait_quiet: str | None,
    **options: Any,
) -> int:
    """Search the learning rate of each configuration of STUDY (default: time-to-solution) with an equal budget.

    Every configuration (workload, framework, ranks, global batch) is trained at every rate of the grid, with as many
    seeds (--launches, default 3) and at most as many samples (--max-samples, default 3 times what the study expects).
    The rate that reaches the target at the least expected number of samples is chosen, restarts included. The rates
    and what the search took are written to tuned.toml in the study's folder, for `dlscale run time-to-solution
    --tuned FILE`. Backends with equal batches compute the same gradients: one is enough. Where algorithms or options
    such as grpc_ps.asynchronous make other updates over each, all backends are searched, and each cell gets a rate of
    its own. It is a study as any other: the same command resumes it, and `dlscale report` prints it again.

    \b
    Examples:
      dlscale tune
      dlscale tune --ranks 1,2,4 --learning-rates '0.0005|0.001|0.002|0.004' --launches 5
      dlscale tune --backends ring,mpi_ps --algorithms sync,easgd --ranks 2 --base smallest
      dlscale tune --preset small --batch 16 --backends none,ring --max-samples 8000 --max-seconds 5min
    """  # noqa: D301
    options, fields = search_of(study, options, learning_rates=learning_rates, num_rates=num_rates)
    return plan_and_run(
        study,
        options,
        start=not dry_run,
        commands=True,
        in_allocation=in_allocation,
        wait_quiet=wait_quiet,
        fields=fields,
    )


def search_of(
    study: str,
    options: dict[str, Any],
    *,
    learning_rates: list[float] | None,
    num_rates: int | None = None,
    all_backends: bool = False,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options and further fields of the study that searches rates for one; over all its backends where asked to.

    Raises UsageError for what no search could decide.
    """
    options = dict(options)
    if options["tuned"]:
        raise UsageError("--tuned with dlscale tune, which finds such rates; leave it out")
    if learning_rates and options["learning_rate"]:
        raise UsageError("--learning-rate is the middle of a grid that --learning-rates gives; leave out one")
    options["launches"] = options["launches"] or NUM_SEEDS
    system = system_of(options)
    middle = options["learning_rate"] or (learning_rates and learning_rates[0])
    asked = study_of(study, system, options | {"learning_rate": middle})
    if asked.target is None:
        raise UsageError(f"study {study} has no target to tune for; choose time-to-solution, or leave it out")
    if asked.target.evaluate_seconds:
        raise UsageError(
            "--evaluate-seconds with dlscale tune, whose choice by samples would depend on how fast the machine is; "
            "give --evaluate-samples"
        )
    shared = {name for name in asked.axes if name in SHARED_AXES or _changes_updates(name)}
    if others := [name for name in asked.axes if name not in shared | {"learning_rate"}]:
        raise UsageError(
            f"{others[0]} with several values in dlscale tune, which changes no gradient; give one value"
        )
    if asked.seed + SEED_DISTANCE > LARGEST_SEED:
        raise UsageError(
            f"--seed {asked.seed} leaves no seeds above it to tune with; give {LARGEST_SEED - SEED_DISTANCE} at most"
        )
    if not (all_backends or _each_backend(asked)):
        options["backends"] = _backends(asked)
    options["max_samples"] = options["max_samples"] or asked.target.max_samples or _most_samples(asked)
    named = learning_rates or asked.axes.get("learning_rate")
    if options["learning_rate"]:
        named = _own_grid(asked, asked.target)
    grid = [float(rate) for rate in named or asked.target.search or _own_grid(asked, asked.target)]
    own = [] if named else asked.target.grids
    options["learning_rate"] = None  # the grid has what it says
    options["target"] = (options["target"] or {}) | {
        "search": _middle(grid, num_rates) if own else [],
        "grids": [each.model_copy(update={"rates": _middle(each.rates, num_rates)}) for each in own],
    }
    return options, {
        "name": "tuning",
        "title": "Learning rates",
        "axes": {name: values for name, values in asked.axes.items() if name in shared}
        | {"learning_rate": _middle(grid, num_rates)},
        "seed": asked.seed + SEED_DISTANCE,
        "repeats": 0,  # other programs change no number of samples
    }


def _middle(grid: list[float], number: int | None) -> list[float]:
    """So many rates around the middle of a grid. Raises UsageError where it has fewer."""
    if number is None:
        return grid
    if number > len(grid):
        raise UsageError(f"--num-rates {number} of a grid of {len(grid)} rates; give {len(grid)} at most")
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
            f"--backends {','.join(study.backends)} in dlscale tune: backends with equal batches compute the same "
            f"gradients, so one is enough; give --backends {','.join([*alone, exchanging[0]])}"
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
                "rates are to have the same limit; give --max-samples"
            )
        expected.append(samples)
    return MOST_SAMPLES * max(expected)


def _own_grid(study: Study, rules: TargetRules) -> list[float]:
    """Multiples of the rate that all workloads of the study have. Raises UsageError if they have several."""
    rates = {
        workload: own_rate(rules, facts := study.facts(workload), facts.preset(preset))
        for workload, preset in _presets(study)
    }
    if len(set(rates.values())) > 1:
        own = ", ".join(f"{workload} {rate:g}" for workload, rate in rates.items())
        raise UsageError(
            f"workloads with learning rates of their own ({own}) have no grid in common; give --learning-rates, or "
            "tune one workload at a time"
        )
    return [multiple * next(iter(rates.values())) for multiple in MULTIPLES]


def _presets(study: Study) -> list[tuple[str, str]]:
    """The study's workloads, each with its preset."""
    return [(name, study.facts(name).preset(study.preset).name) for name in study.workloads]
