"""A study's plan on a machine: its numbers of ranks and nodes, its launches in order, and the time that they take."""

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

from dlscale.base.errors import UsageError, unknown
from dlscale.base.quantities import Seconds
from dlscale.benchmarks.records.cell import SHORT_CONTROLS, Case, Cell
from dlscale.benchmarks.records.record import MIN_PROFILED_STEPS
from dlscale.benchmarks.study.rules import SHORT_CONTROL_SECONDS
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.system import Partition, System
from dlscale.collectives import capabilities
from dlscale.collectives.algorithms import SYNC, round_steps

DEFAULT_MAX_NODES = 64  # the default must not make a first study expensive
MOST_SIZES, MOST_FACTOR = 4, 8  # of a job: its numbers of nodes, and the largest over the smallest
# Estimates for a plan's total time; they also decide how much of the budget is left for windows, and nothing else.
# They are of the quiet reference machine of docs/measurements, which runs `machine_pace`'s loop in this time.
LOOP_SECONDS = 1.65e-3
LOOP_SHARE = (
    0.6  # of the time that follows that loop: where it took 2.4 times as long, a study took 1.85 times
)
START_SECONDS = {"torch": 2.4, "tensorflow": 5.7}  # from the start of a launch to its first window
# Of the audits of a training (rank/audit.py): the second replica and its first gradients, weights copied and compared.
AUDIT_SECONDS = {"torch": 0.25, "tensorflow": 0.5}
COMPILE_SECONDS = 30.0
WARM_UP_SHARE = 0.35  # of the windows' time
LEAST_LAUNCHES = 6  # that carry a 95 % interval of a median (docs/metrics.md)
STEP_FLOPS_PER_CORE = 50e9  # floating-point operations per second that a training step reaches
STEP_FLOPS_PER_GPU = 5e12  # of a GPU: a third of what it reaches, for starts there are slower


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The points of a study on a machine, and the cores of a rank. Ranks fill one node after the other."""

    ranks: tuple[int, ...]  # ascending
    ranks_per_node: int | None  # None: one node, with all ranks of a size
    num_cores: int  # of a node
    cores_per_rank: int
    threads_per_rank: int  # its cores, unless the system's placement sets OMP_NUM_THREADS

    def num_nodes(self, num_processes: int) -> int:
        """Nodes needed for that many workers and servers."""
        return math.ceil(num_processes / self.ranks_per_node) if self.ranks_per_node else 1


def shape(study: Study, system: System) -> Shape:
    """The points that a study asks for, or the usual ones. Raises UsageError for what the system cannot do."""
    num_cores, placement = system.num_cores(), system.placement
    ranks = {*(study.ranks or ()), *([1] if study.base in (None, "1", "own") else ())}
    if not system.has_jobs:
        ranks = ranks if study.ranks else {*usual_counts(num_cores), num_cores}
        cores = max(1, num_cores // max(ranks))
        return Shape(
            ranks=tuple(sorted(ranks)), ranks_per_node=None, num_cores=num_cores, cores_per_rank=cores,
            threads_per_rank=cores,
        )  # fmt: skip
    per_node, room = study.ranks_per_node or (placement.ranks_per_node if placement else 1), num_cores
    if study.device == "gpu":
        room = system.devices.per_node.value if system.devices else 0
    if per_node > room:
        raise UsageError(
            f"{per_node} ranks per node on device {study.device} of {system.name}, whose nodes have room for {room}; "
            "set fewer ranks_per_node, or another --device"
        )
    if study.ranks and study.nodes:
        raise UsageError("--ranks and --nodes exclude each other; give one of them")
    partition = chosen_partition(study, system)
    most = (partition.max_nodes or partition.num_nodes).value
    if not study.ranks:
        nodes = study.nodes or usual_counts(min(most, DEFAULT_MAX_NODES))
        # Base case (b) of M2: one rank through each backend.
        ranks = {*(count * per_node for count in nodes), *([1] if min(nodes) == 1 else ())}
    if (asked := math.ceil(max(ranks) / per_node)) > most:
        raise UsageError(
            f"{asked} nodes on partition {study.partition or system.partition} of {system.name}, which allows {most} "
            f"per job; use fewer, or another --partition ({', '.join(system.partitions)})"
        )
    # The placement's threads hold for its own ranks per node.
    placed = placement.variables if placement and per_node == placement.ranks_per_node else {}
    cores = num_cores // per_node
    return Shape(
        ranks=tuple(sorted(ranks)), ranks_per_node=per_node, num_cores=num_cores, cores_per_rank=cores,
        threads_per_rank=int(placed.get("OMP_NUM_THREADS", cores)),
    )  # fmt: skip


def chosen_partition(study: Study, system: System) -> Partition:
    """The study's partition, or the system's default. Raises UsageError."""
    name = study.partition or system.partition or ""
    if name not in system.partitions:
        raise UsageError(unknown("partition", name, system.partitions, where=f"on {system.name}"))
    return system.partitions[name]


def usual_counts(most: int) -> list[int]:
    """Powers of two up to `most`, and 3 as a size that is not one (M6)."""
    powers = {1 << exponent for exponent in range(most.bit_length())}
    return sorted(powers | ({3} if most >= 4 else set()))


def tiers(nodes: Iterable[int]) -> list[list[int]]:
    """The numbers of nodes in ascending order, a list for those that share jobs: [1, 2, 4, 8], [8, 16, 32, 64].

    A job is billed for all of its nodes while a launch uses a part. So sizes that lie far apart get separate jobs, and
    neighbouring jobs share one size, at which their curves join.
    """
    cuts: list[list[int]] = []
    for count in sorted(nodes):
        if cuts and len(cuts[-1]) < MOST_SIZES and count <= cuts[-1][0] * MOST_FACTOR:
            cuts[-1].append(count)
        else:
            cuts.append([*(cuts[-1][-1:] if cuts else ()), count])
    return cuts


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
    warnings: tuple[str, ...] = ()
    known_budget_per_case: float | None = None  # that of the whole study, where this is a part of one
    sample_times: Mapping[str, Seconds] = field(default_factory=dict)  # the system's
    pace: float = 1.0  # seconds here over those of the machine that the estimates are of

    @property
    def digest(self) -> str:
        """A hash that is equal for plans that measure the same cells in the same way."""
        cells = sorted({case.id for launch in self.launches for case in launch.cases})
        text = json.dumps([self.study.model_dump(mode="json"), cells], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def sharing(self, cell: Cell) -> float:
        """By how much the cell's workers and servers need more cores than a node has; a server counts as one core."""
        needed = cell.num_ranks * cell.cores_per_rank + cell.num_servers
        return 1.0 if self.shape.ranks_per_node else max(1.0, needed / self.shape.num_cores)

    def seconds(self, launches: Sequence[Launch], *, to_end: bool = True) -> float:
        """Estimated wall time of some launches.

        Unless `to_end` a training with checkpoints need only reach one, from which the next attempt resumes.
        """
        share = self.budget_per_case if self.study.budget else 0.0
        parts = [self._parts(launch, to_end=to_end) for launch in launches]
        return sum(fixed + sum(max(least, share) for least in cases) for fixed, cases in parts)

    @cached_property
    def budget_per_case(self) -> float:
        """Seconds of the budget per case after all launches have started; may be negative. 0 without a budget."""
        if self.known_budget_per_case is not None or self.study.budget is None:
            return self.known_budget_per_case or 0.0
        parts = [self._parts(launch) for launch in self.launches]
        sharing = sum(len(cases) for _, cases in parts)
        return (self.study.budget - sum(fixed for fixed, _ in parts)) / max(1, sharing)

    def _parts(self, launch: Launch, *, to_end: bool = True) -> tuple[float, list[float]]:
        """Seconds that a launch takes anyway, and the least of each case that shares the budget.

        The first are imports, connection, gates, audits, which replay two steps and a window in about twice their time,
        short controls, and trainings to a target.
        """
        cell, rules, target = launch.cell, self.study.rules, self.study.target
        step = self.pace * self._step_seconds(cell)
        audit = self.pace * AUDIT_SECONDS[cell.framework] + 4 * step + 2 * max(step, rules.min_window_seconds)
        rounds = round_steps(cell.algorithm, cell.algorithm_options) if cell.algorithm != SYNC else 1
        # Each trainer of a compiled network compiles it again.
        compiling = COMPILE_SECONDS * (1 + len(launch.cases)) * cell.compiled
        fixed = self.pace * (START_SECONDS[cell.framework] * self.sharing(cell) + compiling) + 4 * step
        shortest: list[float] = []
        for cell in (case.cell for case in launch.cases):
            if cell.control in SHORT_CONTROLS:
                fixed += SHORT_CONTROL_SECONDS
                continue
            fixed += audit
            if target and cell.target:
                goal = target.goals.get(cell.workload, {}).get(cell.preset)
                samples, seconds = (goal and goal.samples) or cell.target.max_samples, cell.target.max_seconds
                seconds = min(seconds, step * samples / cell.global_batch) if samples else seconds
                saved = rules.checkpoint_every * step
                fixed += min(seconds, saved) if saved and not to_end else seconds
            else:
                steps = max(rules.min_steps, rules.min_windows * rounds)
                if cell.control == "profile":  # half of the steps are stamped
                    steps = max(steps, 2 * MIN_PROFILED_STEPS)
                windows = max(rules.min_windows * rules.min_window_seconds, steps * step)
                shortest.append(windows + max(windows * WARM_UP_SHARE, rules.warmup_steps * step))
        return fixed, shortest

    def _step_seconds(self, cell: Cell) -> float:
        """Seconds of a step: what a node is published to take, or three forward passes at a usual speed."""
        samples = cell.local_batch / cell.split
        if cell.preset == "paper" and cell.workload in self.sample_times:
            return self.sample_times[cell.workload].number * samples * (self.shape.ranks_per_node or 1)
        speed = STEP_FLOPS_PER_GPU if cell.device == "gpu" else STEP_FLOPS_PER_CORE * cell.cores_per_rank
        flops = 3 * cell.preset_facts.forward_flops_per_sample * samples
        return flops / speed * self.sharing(cell)


def machine_pace() -> float:
    """The time of a study on this machine over that on the reference machine, by a short loop.

    Processor time: what other programs take is not this machine's.
    """
    times = []
    for _ in range(15):
        begin, total = time.thread_time(), 0
        for number in range(40_000):
            total += number * number % 7
        times.append(time.thread_time() - begin)
    return 1 + LOOP_SHARE * (min(times) / LOOP_SECONDS - 1)


def launches_needed(comparisons: int) -> int:
    """Launches per cell with which each of that many comparisons can be significant at all, and medians have intervals.

    Signs of differences flip in 2^(launches - 1) ways; the least of all has to be 5 % over the comparisons (M14, M21).
    """
    return max(LEAST_LAUNCHES, math.ceil(1 + math.log2(comparisons / 0.05)) if comparisons else 0)


def num_comparisons(cells: Iterable[Cell]) -> int:
    """The number of comparisons that `dlscale compare` makes: each backend versus the first, on several ranks."""
    contenders: dict[tuple[object, ...], set[str]] = defaultdict(set)
    for cell in cells:
        if cell.control == "train" and cell.num_ranks > 1 and capabilities(cell.backend).exchanges:
            contenders[cell.workload, cell.framework, cell.num_ranks, cell.num_nodes].add(cell.id)
    return sum(len(ids) - 1 for ids in contenders.values())
