"""Expands a study to its launches, in randomised blocks.

Every combination of what a study asks for is a training that is made or refused (`check`). A refusal is an error where
the user named what is refused, or where nothing is left of it, and else a warning.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from pathlib import Path

from dlscale.base.definitions import one_of
from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS
from dlscale.benchmarks.records.cell import Case, Cell, Control
from dlscale.benchmarks.study.check import Training, check_study, refusal
from dlscale.benchmarks.study.plan import STEP_FLOPS_PER_CORE, Launch, Plan, launches_needed, num_comparisons
from dlscale.benchmarks.study.sizes import Shape, Size, shape, tiers
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.study.target import check_held_out
from dlscale.benchmarks.systems.system import DETECT, Policy, System
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives import capabilities
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.sharding import NONE
from dlscale.models import NAMES as WORKLOADS
from dlscale.models.frameworks import FRAMEWORKS
from dlscale.models.workload import SYNTHETIC, Input

# Cells that share a launch, each with the file that it reads.
Group = list[tuple[Cell, Path | None]]
INPUT_CONTROLS: tuple[Control, ...] = ("synthetic", "loader")


def plan_on(study: Study, system: System, *, environment: str, data: str | None) -> Plan:
    """The plan of a study on a system. Raises UsageError as `expand`, and for a launcher whose port is open to all."""
    plan = expand(study, environment=environment, shape=shape(study, system), data=data, policy=system.policy)
    most = max((launch.cell.num_nodes for launch in plan.launches), default=1)
    allowed = any(options.get("allow_open_ports") for options in study.backend_options.values())
    if most > 1 and not allowed and system.launcher != DETECT and not LAUNCHERS[system.launcher].needs_mpi:
        raise UsageError(
            f"launcher {system.launcher} on {most} nodes of {system.name}: its ranks meet at a port that asks nobody "
            "who connects; leave it out, or add --set allow_open_ports=yes on a network of your own"
        )
    return replace(plan, sample_seconds=system.sample_seconds, link_rate=system.link_rate)


def expand(study: Study, *, environment: str, shape: Shape, data: str | None, policy: Policy) -> Plan:
    """The plan of a study. A block holds one launch of every cell of its tier, base cases included (M4).

    Cores and threads per rank are constants of the study. Sizes that cannot share a job are in separate tiers
    (`tiers`) with separate blocks, numbered from t * launches on in tier t. Where the study says no number of launches
    it is what the comparisons of its backends need. Raises UsageError for what cannot be measured.
    """
    for kind, known in (("backend", BACKENDS), ("framework", FRAMEWORKS)):
        for name in getattr(study, f"{kind}s"):
            one_of(kind, name, known)
    check_study(study, shape)
    paths = data_paths(data, study.workloads)
    expansion = _Expansion(study, shape=shape, environment=environment, paths=paths)
    for training in expansion.asked():
        expansion.add(training)
    made = expansion.kept()
    groups: dict[Size, dict[str, Group]] = {size: {} for size in shape.sizes}
    for training in made:
        for group in expansion.groups(training):  # curves share base cases and controls
            groups[training.size].setdefault(group[0][0].id, group)
    shape = replace(shape, sizes=tuple(size for size in shape.sizes if groups[size]))
    parts = [
        {name: group for size in sizes for name, group in groups[size].items()}
        for sizes in tiers(shape.sizes, policy)
    ]
    cells = [cell for part in parts for group in part.values() for cell, _ in group]
    trained = {training.framework for training in made}
    study = study.model_copy(
        update={
            "frameworks": [name for name in study.frameworks if name in trained],
            "launches": study.launches or launches_needed(num_comparisons(cells)),
        }
    )
    references = list(expansion.references(made)) if study.reference_launches else []
    return Plan(
        study=study,
        launches=tuple(_blocks(study, [list(part.values()) for part in parts], references)),
        num_launches=study.launches or 1,
        shape=shape,
        warnings=(*expansion.warnings(), *_oversubscribed(shape)),
    )


@dataclass(frozen=True, slots=True)
class _Expansion:
    """The trainings that a study asks for: those that are made, and those that are refused."""

    study: Study
    shape: Shape = field(kw_only=True)
    environment: str = field(kw_only=True)
    paths: Mapping[str, Path] = field(kw_only=True)
    made: list[Training] = field(default_factory=list)
    refused: list[tuple[Training, str, str]] = field(default_factory=list)  # with what it is about, and why
    inputs: dict[tuple[str, int], tuple[Input, str]] = field(default_factory=dict)  # with names in cells

    def asked(self) -> Iterator[Training]:
        """All trainings that the study asks for."""
        study = self.study
        for workload, framework, backend in product(study.workloads, study.frameworks, study.backends):
            row, facts = capabilities(backend), study.facts(workload)
            carried = [name for name in study.algorithms if name in row.algorithms]
            for algorithm in (carried or study.algorithms[:1]) if row.exchanges else [SYNC]:
                for variant, size in product(study.variants(backend, algorithm), self.shape.sizes):
                    if not self._has_place(backend, size):
                        continue
                    for num_servers in self._servers(backend, size):
                        yield Training(
                            study=variant, facts=facts, framework=framework, backend=backend, algorithm=algorithm,
                            size=size, num_servers=num_servers, shape=self.shape,
                        )  # fmt: skip

    def _has_place(self, backend: str, size: Size) -> bool:
        """Whether the study has launches of the backend there.

        1 rank without an exchange is the base case of all. Other backends have one there where the study has no `none`,
        where its base is their `own`, or where there is no other number. To a target `none` trains on 1 rank only.
        """
        study, ranks = self.study, size.num_ranks
        if not capabilities(backend).exchanges:
            return ranks == 1 or not study.target
        own = study.base == "own" or max(self.shape.ranks) == 1
        return ranks > 1 or "none" not in study.backends or (own and not study.target)

    def _servers(self, backend: str, size: Size) -> list[int]:
        if not capabilities(backend).servers:
            return [0]
        return sorted({num_servers(spec, size.num_ranks) for spec in self.study.servers})

    def add(self, training: Training) -> None:
        """Make a training or refuse it. Raises UsageError for the refusal of a backend that the user named."""
        found = refusal(training)
        if found is None:
            self.made.append(training)
            return
        about, problem = found
        self.refused.append((training, about, problem))
        study, named = self.study, self.study.named_backends and not self.study.every_backend
        none_left = not set(study.frameworks) & set(training.row.frameworks)
        # What only 1 rank would refuse is no reason to refuse the others, for which it is a base case at most.
        counts = training.size.num_ranks > 1 or max(self.shape.ranks) == 1
        if {
            "network": not study.every_framework,
            "device": not study.every_backend,
            "framework": named and none_left,
            "own model": named,
            "setup": named and counts,
        }.get(about):
            raise UsageError(problem)

    def kept(self) -> list[Training]:
        """The trainings of the study. Raises UsageError where nothing is left of something that was asked for."""
        exchange = any(capabilities(name).exchanges for name in self.study.backends)
        compared = [training for training in self.made if training.row.exchanges or not exchange]
        alone = {training.size for training in self.made} - {training.size for training in compared}
        usual = not (self.study.ranks or self.study.nodes)
        refused = sorted(self.refused, key=lambda refused: refused[0].size.num_ranks == 1)
        for training, about, problem in refused:
            for value in _ASKED.get(about, ()):
                if value == _place and usual:
                    continue
                if not any(value(other) == value(training) for other in compared):
                    raise UsageError(problem)
            if about not in _ASKED and training.size.num_ranks > 1 and training.size in alone:
                raise UsageError(problem)
        if refused and not self.made:
            raise UsageError(refused[0][2])
        # On 1 rank nothing is the base case of what is refused on all larger numbers.
        scaled = {_curve(training) for training in self.made if training.size.num_ranks > 1}
        others = {
            _curve(training)
            for training, about, _ in self.refused
            if training.size.num_ranks > 1 and about not in ("size", "split")
        }
        return [training for training in self.made if _curve(training) not in others - scaled]

    def warnings(self) -> Iterator[str]:
        """A line for each reason, with the backend or the workload that is left out, and where."""
        ranks: dict[tuple[str, str, str], set[int]] = {}
        for training, about, problem in self.refused:
            what = training.curve + f" in {training.framework}" * (about != "device")
            if about == "network":
                what = f"{training.facts.name} in {training.framework}"
            if about in ("size", "split"):
                what = training.facts.name + f", split {training.study.split}" * ("split" in self.study.axes)
            if about != "setup":  # without what to do
                problem = problem.partition(";")[0]
            alike = problem.replace(f" {training.size.num_ranks} ranks", " that many ranks")
            ranks.setdefault((what, training.backend, alike), set()).add(training.size.num_ranks)
        lines: dict[str, None] = {}
        for (what, backend, problem), counts in ranks.items():
            on = f" on {', '.join(map(str, sorted(counts)))} rank{'s' * (counts != {1})}"
            every = {size.num_ranks for size in self.shape.sizes if self._has_place(backend, size)}
            lines[f"{what}{on * (counts != every)} is left out: {problem}"] = None
        yield from lines
        for backend in self.study.backends:
            if (untried := capabilities(backend).untried) and not self.study.every_backend:
                yield f"backend {backend}: {untried}"

    def input_of(self, training: Training) -> tuple[Input, str]:
        """What a training reads, checked for the largest global batch of its workload, and its name in cells."""
        facts, preset, path = training.facts, training.preset, self.paths.get(training.facts.name)
        others = [other.global_batch for other in self.made if other.facts.name == facts.name]
        most = max(training.global_batch, *others)
        key = (facts.name, most)
        if key not in self.inputs:
            source = facts.input(preset.name, path, num_samples=most, skip_bad=self.study.skip_bad)
            if self.study.target:
                speed = STEP_FLOPS_PER_CORE * self.shape.cores_per_rank * min(self.shape.ranks)
                check_held_out(self.study.target, facts, preset, source=source, needed=most, speed=speed)
            name = "synthetic" if source.path is None else facts.data_name(source) or data_name(source.path)
            self.inputs[key] = (source, name)
        return self.inputs[key]

    def cell(self, training: Training, control: Control = "train") -> tuple[Cell, Path | None]:
        """A cell of a training, and the file that it reads; an own model's file brings its data."""
        study, facts, size = training.study, training.facts, training.size
        source, name = self.input_of(training)
        own = study.own_models.get(facts.name)
        alone = replace(training, size=Size(1, 1)).global_batch
        target = study.target and study.target.of_cell(
            facts, training.preset, global_batch=training.global_batch, base_batch=alone
        )
        cell = Cell(
            workload=facts.name, own=own, preset=training.preset.name, framework=training.framework,
            backend=training.backend, backend_options=dict(training.options), algorithm=training.algorithm,
            algorithm_options=study.algorithm_options.get(training.algorithm, {}), shard=training.shard,
            split=training.split, environment=self.environment, variables=study.environment_variables,
            scaling_mode=study.scaling_mode, num_ranks=size.num_ranks, num_servers=training.num_servers,
            num_nodes=training.shape.num_nodes(size.num_ranks + training.num_servers),
            cores_per_rank=training.shape.cores_per_rank, threads_per_rank=training.shape.threads_per_rank,
            local_batch=training.local_batch, global_batch=training.global_batch, precision=study.precision,
            compiled=study.compiled, device=study.device, control=control, target=target, data=name,
        )  # fmt: skip
        return cell, None if own else source.path

    def groups(self, training: Training) -> list[Group]:
        """The training with the controls of its launch, and what is in launches of its own."""
        groups = [[self.cell(training, control) for control in self._controls(training)]]
        ranks, asked = training.size.num_ranks, self.study.controls
        if training.row.exchanges or "alone" not in asked or ranks == 1:
            return groups
        # 1 rank that computes what one of several does: a smaller batch, and thin blocks of rows.
        base = replace(training, size=Size(1, 1))
        cell, path = self.cell(base, "alone")
        whole = {"local_batch": training.local_batch, "global_batch": training.local_batch}
        smaller = training.local_batch != base.local_batch and self.study.scaling_mode == "strong"
        for split in [1] * smaller + [training.split] * (training.split > 1):
            changed = cell.model_copy(update=whole | {"split": split})
            groups.append([(changed, path)])
            if changed.data != "synthetic":
                groups[-1].append((changed.model_copy(update={"data": "synthetic"}), path))
        return groups

    def _controls(self, training: Training) -> list[Control]:
        """The controls of a training's launch, itself the first.

        Beside backends communication only: halos where ranks share samples, else averages, of host buffers. Beside
        `none` those of the input, where data are read, and the profile of 1 rank.
        """
        asked, ranks, on_cpu = self.study.controls, training.size.num_ranks, self.study.device == "cpu"
        controls: list[Control] = ["train"]
        if not training.row.exchanges:
            reads = not self.input_of(training)[0].synthetic
            controls += [name for name in INPUT_CONTROLS if name in asked and reads]
            controls += ["profile"] if "profile" in asked and ranks == 1 else []
        elif "exchange" in asked and on_cpu:
            averages = training.framework in training.row.collective and training.algorithm == SYNC
            if training.split > 1:
                controls.append("halos")
            elif ranks > 1 and averages and training.shard == NONE:
                controls.append("exchange")
        return controls

    def references(self, made: Sequence[Training]) -> Iterator[Group]:
        """The whole-machine runs: one for all batches, whose own is the first."""
        seen: set[str] = set()
        cores = self.shape.num_cores
        if self.shape.cores_per_rank == cores:
            return
        shape = replace(self.shape, cores_per_rank=cores, threads_per_rank=cores)
        networks = {(training.facts.name, training.framework): training for training in made}
        for training, variant in product(networks.values(), self.study.variants()):
            whole = replace(
                training, study=variant, backend="none", algorithm=SYNC, size=Size(1, 1), num_servers=0, shape=shape
            )  # fmt: skip
            cell, path = self.cell(whole, "whole_machine")
            alike = cell.model_copy(update={"local_batch": 1, "global_batch": 1}).id
            if alike not in seen:
                seen.add(alike)
                yield [(cell, path)]


def _place(training: Training) -> tuple[object, ...]:
    return training.size, training.facts.name, training.framework


def _shared(training: Training) -> tuple[object, ...]:
    return training.size.num_ranks > 1, training.study.split, training.facts.name, training.framework


# What a refusal may leave nothing of: then it is an error. Of sizes only those that the user named count.
_ASKED: dict[str, tuple[Callable[[Training], object], ...]] = {
    "network": (lambda training: training.facts.name,),
    "algorithm": (lambda training: training.algorithm,),
    "shard": (lambda training: training.study.shard,),
    "servers": (lambda training: training.num_servers > 0,),
    "split": (_place, _shared),
    "size": (_place,),
}


def _curve(training: Training) -> tuple[object, ...]:
    settings = training.study.model_dump(exclude={"axes"})
    return training.facts.name, training.framework, training.backend, training.algorithm, str(settings)


def num_servers(spec: str, num_ranks: int) -> int:
    """The number of servers that `2`, or `1/2` of the workers, means for `num_ranks` workers; rounded up."""
    servers, _, workers = spec.partition("/")
    return -(-num_ranks * int(servers) // int(workers or num_ranks))


def _blocks(study: Study, parts: Sequence[Sequence[Group]], references: Sequence[Group]) -> Iterator[Launch]:
    # Another order in every study: what one order does to its launches, such as a cache that the first one of a block
    # fills, must not be repeated by all of them. Resuming a study makes the same order again.
    cells = sorted(cell.id for group in (*chain(*parts), *references) for cell, _ in group)
    order = random.Random(f"{study.seed} {study.name} {' '.join(cells)}")  # noqa: S311 - not used for security
    num_launches = study.launches or 1
    for (tier, groups), index in product(enumerate(parts), range(num_launches)):
        block = tier * num_launches + index
        members = [*groups, *(references if block < study.reference_launches else ())]
        order.shuffle(members)
        for position, group in enumerate(members):
            cases = tuple(Case(cell=cell, block=block, position=position) for cell, _ in group)
            yield Launch(cases=cases, data=next((path for _, path in group if path), None))


def _oversubscribed(shape: Shape) -> tuple[str, ...]:
    over = [str(num_ranks) for num_ranks in shape.ranks if num_ranks > shape.num_cores]
    if shape.ranks_per_node or not over:
        return ()
    return (
        f"{', '.join(over)} ranks share {shape.num_cores} cores: ranks that wait in MPI take time from those that "
        "compute; the records say oversubscribed",
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
    """`<name>:<12 hex digits>`, a digest of a file's content or of a folder's file names and sizes.

    A cell holds it, so that different data is a different cell.
    """
    digest = hashlib.sha256()
    if path.is_dir():
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            digest.update(f"{file.relative_to(path)}\0{file.stat().st_size}\n".encode())
        return f"{path.name}:{digest.hexdigest()[:12]}"
    size = path.stat().st_size
    with path.open("rb") as opened:
        if size <= WHOLE_BYTES:
            digest.update(opened.read())
        else:
            digest.update(f"{size}\0".encode() + opened.read(END_BYTES))
            opened.seek(-END_BYTES, 2)
            digest.update(opened.read())
    return f"{path.name}:{digest.hexdigest()[:12]}"
