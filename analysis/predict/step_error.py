"""How wrong predicted steps are where steps were measured, which a band beyond the measured sizes has to contain.

A calibration fits the exchanges alone. What a training adds to them (ranks that compute more slowly beside an exchange,
what overlaps less than planned) shows only in its steps: on each number of nodes that a study has measured, the model
is asked, too. The root mean square of log(predicted / measured) is the standard deviation of the model's own error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from dlscale.analysis.measured import good_launches, launches_of
from dlscale.analysis.predict.backend_rules import rule_of
from dlscale.analysis.predict.prediction import Situation, predict_point
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import Cell, Record

MeasuredStep = tuple[Situation, int, float]
"""What was trained, on how many nodes, and the seconds of a step."""


def step_error(measured: Iterable[MeasuredStep]) -> float:
    """The root mean square of log(predicted / measured); 0 where nothing was measured."""
    errors = [
        math.log(predict_point(replace(situation, step_error=0.0), num_nodes).step_seconds.center / seconds)
        for situation, num_nodes, seconds in measured
    ]
    return math.sqrt(sum(error**2 for error in errors) / len(errors)) if errors else 0.0


def measured_steps(situation: Situation, records: Iterable[Record]) -> Iterator[MeasuredStep]:
    """The trainings between nodes that these records have of the situation, at its batch per rank."""
    records = [record for record in records if record.case.cell.control == "train" and record.good]
    for launches in good_launches(launches_of(records)):
        if _is_of(situation, launches.cell):
            seconds = float(np.median([case.world for case in launches.cases]))
            yield situation, launches.cell.num_ranks // situation.ranks_per_node, seconds


def _is_of(situation: Situation, cell: Cell) -> bool:
    profile, rule = situation.profile, situation.rule
    per_node = situation.ranks_per_node
    if cell.num_nodes < 2 or situation.scaling_mode != "weak":
        return False
    if (cell.workload, cell.preset, cell.framework, cell.backend, cell.local_batch) != (
        profile.workload,
        profile.preset,
        profile.framework,
        rule.backend,
        situation.batch,
    ):
        return False
    if cell.num_ranks % per_node or cell.num_nodes != math.ceil(cell.num_processes / per_node):
        return False
    if rule.serves and cell.num_servers != situation.num_servers(cell.num_ranks):
        return False
    try:
        own = rule_of(
            cell.backend,
            cell.backend_options,
            framework=cell.framework,
            num_servers=cell.num_servers,
            spare_core=rule.overlap in ("thread", "next_forward"),
        )
    except UsageError:  # options that are not modelled
        return False
    return own == rule
