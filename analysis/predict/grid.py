"""What if the network, the noise or the batch were others: every combination of factors, as tidy rows.

Factors are on what the prediction has otherwise: `link_rate` on all links, `latency` on all latencies, `jitter` on what
disturbs steps and messages. `batch` is samples per rank under weak scaling, else in total.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from dlscale.analysis.predict.loggp import ENGINE, ENGINE_VERSION
from dlscale.analysis.predict.prediction import PredictedPoint, predict_point
from dlscale.analysis.predict.scenario import Scenario, with_factors
from dlscale.analysis.records import settings_text
from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular
from dlscale.benchmarks.records.prediction import FACTORS, LOSS

NUM_REPLICATES = 200  # of a point: a grid shows where things go, and single predictions how sure that is
MOST_POINTS = 50_000
LARGEST_FACTOR = 1e6
MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """Ascending values of each axis, those of the prediction among them; no batch: a quarter to four times its own."""

    link_rate: tuple[float, ...] = (0.25, 0.5, 1, 2, 4)
    latency: tuple[float, ...] = (0.1, 0.5, 1, 2, 10)
    jitter: tuple[float, ...] = (0, 0.5, 1, 2)
    batch: tuple[int, ...] = ()

    def batches(self, scenario: Scenario) -> tuple[int, ...]:
        """With the prediction's own. The usual ones are no smaller under strong scaling, as ranks must divide them."""
        batch = scenario.batch
        if self.batch:
            return tuple(sorted({batch, *self.batch}))
        few = {max(1, batch // 4)} if scenario.scaling_mode == "weak" else set()
        return tuple(sorted({*few, batch, 4 * batch}))

    def num_points(self, scenarios: Sequence[Scenario], sizes: Sequence[int]) -> int:
        """How many points that makes in all."""
        factors = math.prod(len(getattr(self, name)) for name in FACTORS)
        return sum(factors * len(self.batches(scenario)) * len(sizes) for scenario in scenarios)


AXES = tuple(field.name for field in fields(Axes))


def read_axes(text: str) -> Axes:
    """Axes as `link_rate=0.5|2,batch=32|128`; others are the usual ones, and 1 is always there. Raises ValueError."""
    values: dict[str, Any] = {}
    for word in filter(None, text.split(",")):
        name, _, listed = word.partition("=")
        if name not in AXES:
            raise ValueError(f"{name!r} is no axis; choose from {', '.join(AXES)}")
        if name in values:
            raise ValueError(f"{name} is given twice")
        read: Callable[[str], float] = int if name == "batch" else float
        try:
            numbers = {read(value) for value in listed.split("|")}
        except ValueError:
            raise ValueError(f"{word!r}: write numbers with | between them, such as {name}=1|2") from None
        least = {"batch": 1.0, "jitter": 0.0}.get(name, 1 / LARGEST_FACTOR)
        if not all(least <= number <= LARGEST_FACTOR for number in numbers):  # neither is nan
            raise ValueError(f"{word!r}: give numbers from {least:g} to {LARGEST_FACTOR:g}")
        as_it_is = set() if name == "batch" else {1.0}
        values[name] = tuple(sorted(numbers | as_it_is))
    return Axes(**values)


def check_grid(axes: Axes, scenarios: Sequence[Scenario], sizes: Sequence[int]) -> int:
    """The number of points. Raises UsageError if they are too many."""
    number = axes.num_points(scenarios, sizes)
    if number > MOST_POINTS:
        raise UsageError(
            f"--grid asks for {number:,} points, more than {MOST_POINTS:,}; give fewer values or --nodes, such as "
            "--grid link_rate=0.5|2,jitter=1"
        )
    return number


def grid_rows(axes: Axes, scenarios: Sequence[Scenario], sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A row per point, backend after backend. Raises UsageError as `predict_point`."""
    for scenario in scenarios:
        few = replace(scenario, num_replicates=min(scenario.num_replicates, NUM_REPLICATES))
        for link_rate, latency, jitter in product(*(getattr(axes, name) for name in FACTORS)):
            other = with_factors(few, link_rate=link_rate, latency=latency, jitter=jitter)
            for batch, num_nodes in product(axes.batches(scenario), sizes):
                own = replace(other, batch=batch)
                factors = {"link_rate": link_rate, "latency": latency, "jitter": jitter}
                yield _row(own, predict_point(own, num_nodes), factors)


def _row(scenario: Scenario, point: PredictedPoint, factors: Mapping[str, float]) -> dict[str, Any]:
    profile, network = scenario.profile, scenario.network
    rates, efficiency = point.samples_per_second, point.efficiency
    return {
        "system": network.name,
        "workload": profile.workload,
        "preset": profile.preset,
        "framework": profile.framework,
        "scaling_mode": scenario.scaling_mode,
        "backend": scenario.rule.backend,
        "backend_options": settings_text(scenario.backend_options),
        "ranks_per_node": scenario.ranks_per_node,
        **{f"{name}_factor": factor for name, factor in factors.items()},
        "link_bytes_per_second": network.node_bytes_per_second,
        "latency_seconds": network.latency_seconds,
        "batch": scenario.batch,
        "local_batch": point.local_batch,
        "num_nodes": point.num_nodes,
        "num_ranks": point.num_ranks,
        "num_servers": point.num_servers,
        "samples_per_second": rates.center,
        "samples_per_second_low": rates.low,
        "samples_per_second_high": rates.high,
        "efficiency": efficiency.center,
        "efficiency_low": efficiency.low,
        "efficiency_high": efficiency.high,
        "step_seconds": point.step_seconds.center,
        **{name.replace(" ", "_") + LOSS: share for name, share in point.parts.items()},
        "engine": ENGINE,
        "engine_version": ENGINE_VERSION,
        "num_replicates": scenario.num_replicates,
        "seed": scenario.seed,
        "evidence": "simulated",
    }


def read_grid(path: Path) -> list[dict[str, Any]]:
    """The rows of a grid's file, numbers as numbers. Raises UsageError if it is not one."""
    try:
        text = read_regular(path, limit=MOST_BYTES, links=True).decode("utf-8")
        rows = [dict(row) for row in csv.DictReader(io.StringIO(text), strict=True)]
        if not rows:
            raise ValueError("no rows")
        return [{name: _value(name, word) for name, word in row.items()} for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error, ValueError, AttributeError, TypeError) as error:
        raise UsageError(
            f"{path} is no grid of predictions: {error}; write it again: dlscale predict --grid"
        ) from None


WORDS = frozenset({
    *("system", "workload", "preset", "framework", "scaling_mode", "backend", "backend_options"),
    *("engine", "engine_version", "evidence"),
})  # fmt: skip
WHOLE = ("ranks_per_node", "batch", "local_batch", "seed")


def _value(name: str, word: str) -> str | float:
    if name in WORDS:
        return word
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(f"{name} is {word}")
    return int(number) if name.startswith("num_") or name in WHOLE else number
