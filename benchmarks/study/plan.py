"""A study's plan on a machine: its launches in order, and the time that they will take."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dlscale.benchmarks.records.cell import SHORT_CONTROLS, Case, Cell, num_sharing
from dlscale.benchmarks.records.profile import MIN_PROFILED_STEPS
from dlscale.benchmarks.study.rules import SHORT_CONTROL_SECONDS
from dlscale.benchmarks.study.sizes import Shape
from dlscale.benchmarks.study.study import Study
from dlscale.collectives import capabilities
from dlscale.collectives.algorithms.registry import round_steps
from dlscale.collectives.neighbours import carrier_of

# Estimates for a plan's total time; they also decide how much of the budget is left for windows, and nothing else.
# They are of the quiet reference machine of docs/measurements, which runs `machine_pace`'s loop in this time.
LOOP_SECONDS = 1.65e-3
START_SECONDS = {"torch": 2.4, "tensorflow": 5.7}  # from the start of a launch to its first window
# Of the audits of a training (rank/audit.py): the second replica and its first gradients, weights copied and compared.
AUDIT_SECONDS = {"torch": 0.25, "tensorflow": 0.5}
COMPILE_SECONDS = 30.0
WARM_UP_SHARE = 0.35  # of the windows' time
LEAST_LAUNCHES = 6  # that carry a 95 % interval of a median (docs/metrics.md)
STEP_FLOPS_PER_CORE = 50e9  # floating-point operations per second that a training step reaches
STEP_FLOPS_PER_GPU = 5e12  # of a GPU: a third of what it reaches, for starts there are slower


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One mpiexec: the training and the controls of one backend on one number of ranks, as cases."""

    cases: tuple[Case, ...]
    data: Path | None

    @property
    def cell(self) -> Cell:
        """The first case's cell; all cases have its backend, ranks and resources."""
        return self.cases[0].cell

    @property
    def id(self) -> str:
        """Readable, unique within a study, and safe as a file name."""
        return self.cases[0].id


@dataclass(frozen=True, kw_only=True)  # no slots: cached_property needs a dictionary
class Plan:
    """What a study runs on a machine: its launches, in order."""

    study: Study
    launches: tuple[Launch, ...]
    num_launches: int  # of each cell
    shape: Shape
    warnings: tuple[str, ...] = field(default=())
    known_budget_per_case: float | None = None  # that of the whole study, where this is a part of one
    # Workload -> published seconds per sample of a whole node at the published size, where the system has any.
    sample_seconds: Mapping[str, float] = field(default_factory=dict)
    pace: float = 1.0  # seconds here over those of the machine that the estimates are of
    link_rate: float | None = None  # bytes per second of a node in each direction, where the system states it

    @property
    def num_cores(self) -> int:
        return self.shape.num_cores

    def sharing(self, cell: Cell) -> float:
        """By how much the cell's workers and servers need more cores than a node has; a server counts as one core."""
        if self.shape.ranks_per_node:
            return 1.0
        return max(1.0, (cell.num_ranks * cell.cores_per_rank + cell.num_servers) / self.num_cores)

    @property
    def digest(self) -> str:
        """A hash that is equal for plans that measure the same cells in the same way."""
        cells = sorted({case.id for launch in self.launches for case in launch.cases})
        text = json.dumps([self.study.model_dump(mode="json"), cells], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def seconds(self, launches: Sequence[Launch], *, to_end: bool = True) -> float:
        """Estimated wall time of some launches."""
        return sum(
            self.pace * self._overhead_seconds(launch)
            + sum(self._case_seconds(case.cell, to_end=to_end) for case in launch.cases)
            for launch in launches
        )

    def least_seconds(self, launches: Sequence[Launch]) -> float:
        """Estimated minimum wall time that makes some launches worth starting.

        A training with checkpoints need not end: it must reach one, from which the next attempt resumes.
        """
        return self.seconds(launches, to_end=False)

    def _case_seconds(self, cell: Cell, *, to_end: bool = True) -> float:
        """Wall time for one case: its share of the budget, or the minimum measuring time if that is more.

        A training to a target takes all of its steps or, unless `to_end`, those to its first checkpoint.
        """
        rules, step = self.study.rules, self.pace * self._step_seconds(cell)
        if self.study.target and cell.target:
            goal = self.study.target.goal(cell.workload, cell.preset)
            samples = (goal and goal.samples) or cell.target.max_samples
            longest = cell.target.max_seconds
            whole = min(longest, step * samples / cell.global_batch) if samples else longest
            return (
                min(whole, rules.checkpoint_every * step) if rules.checkpoint_every and not to_end else whole
            )
        if cell.control in SHORT_CONTROLS:
            return self._short_seconds(cell)
        round_of = round_steps(cell.algorithm, cell.algorithm_options)
        num_steps = max(rules.min_windows * round_of, rules.min_steps)
        if cell.control == "profile":  # half of the steps are stamped
            num_steps = max(num_steps, 2 * MIN_PROFILED_STEPS)
        windows = max(rules.min_windows * rules.min_window_seconds, num_steps * step)
        warm_up = max(windows * WARM_UP_SHARE, rules.warmup_steps * step)
        return max(windows + warm_up, self.budget_per_case)

    def _short_seconds(self, cell: Cell) -> float:
        """Wall time of a short control: a moment, or the exchanges of the fewest steps."""
        rules, step = self.study.rules, self._exchange_seconds(cell) * (cell.control == "exchange")
        return max(SHORT_CONTROL_SECONDS, (rules.warmup_steps + rules.min_steps) * step)

    @cached_property
    def budget_per_case(self) -> float:
        """Seconds of the budget per case after all launches have started; may be negative. 0 without a budget."""
        if self.known_budget_per_case is not None:
            return self.known_budget_per_case
        if self.study.budget is None:
            return 0.0
        cells = [case.cell for launch in self.launches for case in launch.cases]
        sharing = sum(num_sharing(launch.cases) for launch in self.launches)
        taken = sum(self._overhead_seconds(launch) for launch in self.launches)
        taken += sum(self._short_seconds(cell) for cell in cells if cell.control in SHORT_CONTROLS)
        return (self.study.budget - taken) / max(1, sharing)

    def _step_seconds(self, cell: Cell) -> float:
        published = self.sample_seconds.get(cell.workload) if cell.preset == "paper" else None
        exchange = self._exchange_seconds(cell)
        if published is None:
            return step_seconds(cell) * self.sharing(cell) + exchange
        return published * cell.local_batch / cell.split * (self.shape.ranks_per_node or 1) + exchange

    def _exchange_seconds(self, cell: Cell) -> float:
        """What gradients take on the slowest link: a ring's of the nodes, or a server's."""
        if not (self.link_rate and cell.num_nodes > 1 and capabilities(cell.backend).exchanges):
            return 0.0
        times = cell.num_ranks / cell.num_servers if cell.num_servers else 2 * (1 - 1 / cell.num_nodes)
        return times * 4 * cell.preset_facts.num_parameters / self.link_rate

    def _overhead_seconds(self, launch: Launch) -> float:
        """Seconds of imports, connection, gates and audits; each trainer of a compiled network compiles it again."""
        cell = launch.cell
        compiling = COMPILE_SECONDS * (1 + len(launch.cases)) if cell.compiled else 0.0
        step = self._step_seconds(cell)
        start = START_SECONDS[cell.framework] * self.sharing(cell) + compiling + 4 * step
        return start + num_sharing(launch.cases) * self._audit_seconds(cell.framework, step)

    def _audit_seconds(self, framework: str, step: float) -> float:
        """Seconds of a training's audits: two steps and a window, each replayed in about twice its time."""
        window = max(step, self.study.rules.min_window_seconds)
        return AUDIT_SECONDS[framework] + 4 * step + 2 * window


def machine_pace() -> float:
    """The time of a short loop on this machine over that on the reference machine.

    Imports, gates and steps on one core follow it. Processor time: what other programs take is not this machine's.
    """
    times = []
    for _ in range(15):
        begin, total = time.thread_time(), 0
        for number in range(40_000):
            total += number * number % 7
        times.append(time.thread_time() - begin)
    return min(times) / LOOP_SECONDS


def step_seconds(cell: Cell) -> float:
    """A rough estimate of one training step: three forward passes at a usual speed."""
    flops = 3 * cell.preset_facts.forward_flops_per_sample * cell.local_batch / cell.split
    return flops / (STEP_FLOPS_PER_GPU if cell.device == "gpu" else STEP_FLOPS_PER_CORE * cell.cores_per_rank)


def launches_needed(comparisons: int) -> int:
    """Launches per cell with which each of that many comparisons can be significant at all, and medians have intervals.

    Signs of differences flip in 2^(launches - 1) ways; the least of all has to be 5 % over the comparisons (M14, M21).
    """
    return max(LEAST_LAUNCHES, math.ceil(1 + math.log2(comparisons / 0.05)) if comparisons else 0)


def num_comparisons(cells: Iterable[Cell]) -> int:
    """The number of comparisons that `dlscale compare` makes: each backend versus the first, on several ranks."""
    contenders: dict[tuple[object, ...], set[str]] = {}
    for cell in cells:
        if cell.control == "train" and cell.num_ranks > 1 and capabilities(cell.backend).exchanges:
            key = (cell.workload, cell.framework, cell.num_ranks, cell.num_nodes)
            contenders.setdefault(key, set()).add(cell.id)
    return sum(len(ids) - 1 for ids in contenders.values())


def row_carriers(cells: Iterable[Cell]) -> dict[str, list[str]]:
    """What carries rows between the ranks of a sample -> the backends beside which it does."""
    found: dict[str, set[str]] = defaultdict(set)
    for cell in cells:
        if cell.split > 1 and cell.num_ranks > 1 and capabilities(cell.backend).exchanges:
            found[carrier_of(cell.backend, framework=cell.framework)].add(cell.backend)
    return {carrier: sorted(backends) for carrier, backends in sorted(found.items())}
