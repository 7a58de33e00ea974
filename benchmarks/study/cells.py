"""The cells of one workload in one framework: batches, target, controls, and the input that they read.

A cell holds the name and a digest of its input, so that different data is a different cell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Cell, Control
from dlscale.benchmarks.records.target import Target
from dlscale.benchmarks.study.batches import Work, check_small, work_of
from dlscale.benchmarks.study.plan import STEP_FLOPS_PER_CORE
from dlscale.benchmarks.study.sizes import Shape, Size
from dlscale.benchmarks.study.splitting import check_split
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.study.target import TargetRules, check_held_out, resolved
from dlscale.collectives import capabilities
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.sharding import NONE
from dlscale.models import NAMES as WORKLOADS
from dlscale.models.workload import SYNTHETIC, Preset, Workload

PROFILE: tuple[Control, ...] = ("profile",)
INPUT_CONTROLS: tuple[Control, ...] = ("synthetic", "loader")

# Cells that share a launch, each with the file that it reads.
Group = list[tuple[Cell, Path | None]]


class CellMaker:
    """The cells of one workload in one framework, for a study without axes and with one algorithm."""

    def __init__(
        self, study: Study, workload: str, framework: str, environment: str, path: Path | None, shape: Shape
    ) -> None:
        facts = study.facts(workload)
        (self._algorithm,) = study.algorithms
        self._study, self._framework, self._environment, self._shape = study, framework, environment, shape
        self._facts = facts
        self._preset = facts.preset(study.preset)
        works = _works(study, facts, shape.ranks)
        check_small(facts, self._preset, min(work.local_batch for work in works))
        num_samples = max(work.global_batch for work in works)
        self._source = facts.input(
            self._preset.name,
            path,
            num_samples=num_samples,
            skip_bad=study.skip_bad,
        )
        if study.target and self._source.path:
            num_known = facts.num_samples(self._source, self._preset)
            num_held_out = check_held_out(study.target, num_known, source=self._source, needed=num_samples)
            _check_evaluation(study.target, self._preset, num_held_out, shape)
        self._data_name = "synthetic"
        if self._source.path:
            self._data_name = facts.data_name(self._source) or data_name(self._source.path)

    def controls(self, backend: str, size: Size) -> list[Control]:
        """The controls of a backend's launches.

        `exchange` (communication only) where the backend has operations on host buffers and averages gradients in
        every step; where ranks share samples `halos`, what they exchange, in its place; with backend `none` the input
        controls, where data are read, and the profile of 1 rank.
        """
        row, asked = capabilities(backend), self._study.controls
        if self._study.target:
            return ["train"]
        if row.exchanges:
            apart = size.num_ranks > 1 and self._study.device == "cpu" and self._framework in row.collective
            apart = apart and self._algorithm == SYNC and self._study.shard == NONE
            if "exchange" in asked and self._work(size.num_ranks).split > 1:
                return ["train", "halos"] if self._study.device == "cpu" else ["train"]
            return ["train", "exchange"] if apart and "exchange" in asked else ["train"]
        return [
            "train",
            *(control for control in INPUT_CONTROLS if control in asked and not self._source.synthetic),
            *(control for control in PROFILE if control in asked and size.num_ranks == 1),
        ]

    def alone(self, num_ranks: int) -> list[Group]:
        """Cells of 1 rank without communication that computes what one of `num_ranks` does.

        In strong scaling it has their local batch, which shows the cost of a smaller one; where they share samples also
        the first one's rows, which shows that of thin blocks. Where data are read, also on resident tensors. None of
        what the base case computes, too.
        """
        if "alone" not in self._study.controls or num_ranks == 1:
            return []
        try:
            work = self._work(num_ranks)
        except UsageError:  # not that many
            return []
        base, path = self.cell("none", 1, self._shape.cores_per_rank, "alone")
        local_batch = work.local_batch
        whole = {"local_batch": local_batch, "global_batch": local_batch}
        mode, changes = self._study.scaling_mode, []
        if mode == "strong" and local_batch != base.local_batch:
            changes.append(whole)
        if work.split > 1:
            changes.append(whole | {"split": work.split})
        return [self._group_alone(base.model_copy(update=change), path) for change in changes]

    def _group_alone(self, cell: Cell, path: Path | None) -> Group:
        group = [(cell, path)]
        if not self._source.synthetic:
            group.append((cell.model_copy(update={"data": "synthetic"}), path))
        return group

    def cell(
        self, backend: str, num_ranks: int, cores_per_rank: int, control: Control, *, num_servers: int = 0
    ) -> tuple[Cell, Path | None]:
        """One cell and the file that it reads; an own model's file brings its data."""
        path = None if self._facts.name in self._study.own_models else self._source.path
        return self._cell(backend, num_ranks, cores_per_rank, control, num_servers), path

    def _cell(
        self, backend: str, num_ranks: int, cores_per_rank: int, control: Control, num_servers: int
    ) -> Cell:
        work = self._work(num_ranks)
        local_batch, global_batch = work.local_batch, work.global_batch
        return Cell(
            workload=self._facts.name,
            own=self._study.own_models.get(self._facts.name),
            preset=self._preset.name,
            framework=self._framework,
            backend=backend,
            backend_options=self._study.backend_options.get(backend, {}),
            algorithm=self._algorithm,
            algorithm_options=self._study.algorithm_options.get(self._algorithm, {}),
            shard=self._study.shard,
            split=work.split,
            environment=self._environment,
            variables=self._study.environment_variables,
            scaling_mode=self._study.scaling_mode,
            num_ranks=num_ranks,
            num_servers=num_servers,
            num_nodes=self._shape.num_nodes(num_ranks + num_servers),
            cores_per_rank=cores_per_rank,
            threads_per_rank=(
                self._shape.threads_per_rank
                if cores_per_rank == self._shape.cores_per_rank
                else cores_per_rank
            ),
            local_batch=local_batch,
            global_batch=global_batch,
            precision=self._study.precision,
            compiled=self._study.compiled,
            device=self._study.device,
            control=control,
            target=self._target(global_batch),
            data=self._data_name,
        )

    def _work(self, num_ranks: int) -> Work:
        return work_of(self._study, self._facts, num_ranks)

    def problem(self, backend: str, size: Size) -> str:
        """Why a backend cannot train there what the study asks for; empty if it can."""
        try:
            work = self._work(size.num_ranks)
            if work.split > 1:
                check_split(self._study, backend, self._framework, work)
        except UsageError as error:
            return str(error)
        return ""

    def _target(self, global_batch: int) -> Target | None:
        if self._study.target is None:
            return None
        return resolved(
            self._study.target,
            self._facts,
            self._preset,
            source=self._source,
            global_batch=global_batch,
            base_batch=self._work(1).global_batch,
        )


def _works(study: Study, facts: Workload, ranks: Sequence[int]) -> list[Work]:
    """Those of the ranks to which the study's batch can be dealt out. Raises UsageError if there are none."""
    works, problems = [], []
    for num_ranks in ranks:
        try:
            works.append(work_of(study, facts, num_ranks))
        except UsageError as error:
            problems.append(error)
    if not works:
        raise problems[-1]
    return works


def check_profile(study: Study, shape: Shape) -> None:
    """Raises UsageError if a study asks for profiles and has no place for them."""
    if "profile" not in study.controls:
        return
    lacks = {
        "it is a training without a target; run weak-scaling or strong-scaling": bool(study.target),
        f"it runs on device cpu, and the study on {study.device}; give --device cpu": study.device != "cpu",
        "it runs over backend none; add none to --backends": "none" not in study.backends,
        f"it runs on 1 rank, and the study on {', '.join(map(str, shape.ranks))}; set base=1": 1
        not in shape.ranks,
    }
    keras = [name for name, model in study.own_models.items() if model.framework == "tensorflow"]
    if keras:
        lacks[
            f"{keras[0]} assigns variables inside its Keras network, whose order a stamped graph does not keep"
        ] = True
    if problem := next((problem for problem, lacking in lacks.items() if lacking), None):
        raise UsageError(f"control profile of {study.name}: {problem}, or leave profile out of controls")


def _check_evaluation(rules: TargetRules, preset: Preset, num_held_out: int, shape: Shape) -> None:
    """Raises UsageError if an evaluation on the fewest ranks would take longer than a training may."""
    speed = STEP_FLOPS_PER_CORE * shape.cores_per_rank * min(shape.ranks)
    seconds = num_held_out * preset.forward_flops_per_sample / speed
    if seconds > rules.max_seconds:
        raise UsageError(
            f"target.max_seconds = {rules.max_seconds:g}: an evaluation on {num_held_out} held-out samples takes about "
            f"{seconds:.2g} s alone; allow more, or hold out fewer"
        )


def data_paths(data: str | None, workloads: Sequence[str]) -> dict[str, Path]:
    """Each workload's input from `PATH`, `synthetic`, or `workload=PATH,workload=PATH`."""
    if data is None:
        return {}
    if data == str(SYNTHETIC):
        return dict.fromkeys(workloads, SYNTHETIC)
    pieces = [piece.partition("=") for piece in data.split(",")]
    if all(equals and name in WORKLOADS for name, equals, _ in pieces):
        return {name: Path(path) for name, _, path in pieces}
    if len(workloads) > 1:
        raise UsageError(
            f"--data {data} with several workloads ({', '.join(workloads)}); name the workload it is for, e.g. "
            f"--data {workloads[0]}={data}, or give --data synthetic for all"
        )
    return {workloads[0]: Path(data)}


WHOLE_BYTES = 256 << 20  # larger files are identified by size and ends: reading 50 GB takes minutes
END_BYTES = 1 << 20


def data_name(path: Path) -> str:
    """`<name>:<12 hex digits>`, a digest of a file's content or of a folder's file names and sizes."""
    digest = hashlib.sha256()
    if path.is_dir():
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            digest.update(f"{file.relative_to(path)}\0{file.stat().st_size}\n".encode())
    else:
        _digest_file(digest, path)
    return f"{path.name}:{digest.hexdigest()[:12]}"


def _digest_file(digest: hashlib._Hash, path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= WHOLE_BYTES:
            digest.update(file.read())
            return
        digest.update(f"{size}\0".encode() + file.read(END_BYTES))
        file.seek(-END_BYTES, 2)
        digest.update(file.read())
