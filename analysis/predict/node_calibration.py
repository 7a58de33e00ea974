"""What exchanges between the ranks of one node take, and take from its cores, as a study has measured them.

An exchange of n bytes within a node is a line a + b n through the buckets of control `exchange`, by least squares of
relative errors. What is overlapped takes from the cores that compute: by as much as a training of the study takes
longer than the one over `none`, and than is predicted without that, per byte that a rank sends. What is not overlapped
takes longer in a training than alone (`costs.toml`), and so do copies of gradients into buckets, at the rate at which
the study's ranks copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from dlscale.analysis.findings.communication_only import communication_only
from dlscale.analysis.launches import CellLaunches, good_launches, launches_of
from dlscale.analysis.predict.backend_rules import exchanges_by
from dlscale.analysis.predict.costs import Limits, load_costs
from dlscale.analysis.predict.prediction import predict_point
from dlscale.analysis.predict.scenario import Scenario
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record
from dlscale.collectives.sharding import NONE

BITS_EXCHANGES = 2  # by which Horovod's ranks agree, each as long as the smallest exchange
TRIAL = 1e-9  # seconds per byte


def on_node(scenario: Scenario, records: Iterable[Record], *, source: str) -> Scenario:
    """The scenario with what its backend's exchanges within a node were measured to take; as it is without any."""
    records = list(records)
    if scenario.ranks_per_node == 1 or scenario.rule.serves:
        return scenario
    line = _line_within(scenario, records)
    if line is None:
        return scenario
    alone = replace(scenario, network=replace(scenario.network, within_node=line), contention=(0.0, 0.0))
    if scenario.rule.overlap == "none":
        copying, longer = _copying(alone, records), load_costs().in_training.factors
        return replace(alone, copying=copying, in_training=longer, contention_source=source)
    measured = _contention(alone, records)
    if measured is None:
        return replace(alone, contention=scenario.contention)
    return replace(alone, contention=measured, contention_source=source)


def node_line(scenario: Scenario) -> str:
    """What was found, in a sentence; empty where nothing was."""
    within = scenario.network.within_node
    if within is None:
        return ""
    text = f"{scenario.rule.backend}, within a node: {1e6 * within[0]:.3g} us and {1e9 * within[1]:.3g} ns per byte"
    if not scenario.contention_source or scenario.rule.overlap == "none":
        return text
    low, high = (f"{1e9 * limit:.2g}" for limit in scenario.contention)
    return f"{text}; overlapped, it takes {low} to {high} ns per byte from computing ({scenario.contention_source})"


def _line_within(scenario: Scenario, records: Sequence[Record]) -> Limits | None:
    """(seconds, seconds per byte) of an exchange within a node; None where none was measured."""
    rule = scenario.rule
    sizes = [
        size
        for each in communication_only(launches_of(records))
        if _is_on_node(scenario, each.cell) and each.cell.backend == rule.backend
        for size in each.sizes
    ]
    if not sizes:
        return None
    seconds = np.array([size.seconds.center for size in sizes])
    seconds = np.maximum(seconds - rule.cycle_seconds / 2, seconds / 10)
    constant = 1.0 + BITS_EXCHANGES * bool(rule.cycle_seconds)
    rows = np.array([[constant, float(size.num_bytes)] for size in sizes]) / seconds[:, None]
    (first, slope), _ = nnls(rows, np.ones(len(sizes)))
    return float(first), float(slope)


def _is_on_node(scenario: Scenario, cell: Cell) -> bool:
    return (cell.num_nodes, cell.num_ranks, cell.split, cell.shard) == (1, scenario.ranks_per_node, 1, NONE)


def _contention(alone: Scenario, records: Sequence[Record]) -> Limits | None:
    """Seconds per byte, by blocks the least and the most; None where no training of the scenario was measured."""
    trained = _trained(alone, records)
    training, none = trained.get(alone.rule.backend), trained.get("none")
    if training is None or none is None:
        return None
    here = predict_point(alone, 1)
    longer = here.step_seconds.center - alone.profile.mean_step_seconds
    trial = predict_point(replace(alone, contention=(TRIAL, TRIAL)), 1)
    per_cost = (trial.step_seconds.center - here.step_seconds.center) / TRIAL
    if per_cost <= 0:
        return 0.0, 0.0
    blocks = [block for block in training.world if block in none.world]
    extra = [training.world[block] - none.world[block] for block in blocks] or [
        training.step_seconds.center - none.step_seconds.center
    ]
    costs = [max(0.0, seconds - longer) / per_cost for seconds in extra]
    return min(costs), max(costs)


def _copying(alone: Scenario, records: Sequence[Record]) -> float:
    """Seconds per byte of gradients in which a training's ranks copy them into buckets, as fast as they copy alone."""
    training = _trained(alone, records).get(alone.rule.backend)
    rates = [
        min(record.copy_rates)
        for record in records
        if record.copy_rates and _is_on_node(alone, record.case.cell)
    ]
    if training is None or not rates:
        return 0.0
    copies = training.records[0].backend_settings.get("staging_copies", 0)
    return 2 * float(copies) / float(np.median(rates))  # read and written


def _trained(alone: Scenario, records: Sequence[Record]) -> dict[str, CellLaunches]:
    """By backend, the trainings of the scenario on one node."""
    return {
        launches.cell.backend: launches
        for launches in good_launches(launches_of(records), controls={"train"})
        if _is_on_node(alone, launches.cell) and _trains(alone, launches)
    }


def _trains(scenario: Scenario, launches: CellLaunches) -> bool:
    """Whether these launches train what is predicted, over its backend or none."""
    cell, profile = launches.cell, scenario.profile
    wanted = (profile.workload, profile.preset, profile.framework, scenario.batch)
    if (cell.workload, cell.preset, cell.framework, cell.local_batch) != wanted:
        return False
    return cell.backend == "none" or exchanges_by(scenario.rule, cell)
