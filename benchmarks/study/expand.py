"""Expands a study to its launches, in randomised blocks.

Every combination of what a study asks for is a training that is made or left out (`check`), with a line that says why.
It is an error where nothing is left of something that the user named.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS
from dlscale.benchmarks.records.cell import Case, Cell, Control
from dlscale.benchmarks.study.check import Training, check_study, num_servers, refusal
from dlscale.benchmarks.study.plan import Launch, Plan, launches_needed, num_comparisons
from dlscale.benchmarks.study.sizes import Shape, shape, tiers
from dlscale.benchmarks.study.study import AXES, Study
from dlscale.benchmarks.systems.system import DETECT, Policy, System
from dlscale.collectives import capabilities
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.capabilities import carried_shards
from dlscale.collectives.sharding import NONE
from dlscale.models import NAMES as WORKLOADS

Group = list[Cell]  # that share a launch
Refused = list[tuple[Training, str]]  # with the reason
Inputs = dict[str, tuple[Path | None, str]]  # workload -> its file, unless synthetic, and its name in cells


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
    return replace(plan, sample_seconds=system.sample_seconds)


def expand(study: Study, *, environment: str, shape: Shape, data: str | None, policy: Policy) -> Plan:
    """The plan of a study. A block holds one launch of every cell of its tier, base cases included (M4).

    Cores and threads per rank are constants of the study. Sizes that cannot share a job are in separate tiers
    (`tiers`) with separate blocks, numbered from t * launches on in tier t. Where the study says no number of launches
    it is what the comparisons of its backends need. Raises UsageError for what cannot be measured.
    """
    check_study(study)
    made: list[Training] = []
    refused: Refused = []
    for training in _trainings(study, shape):
        if problem := refusal(training):
            refused.append((training, problem))
        else:
            made.append(training)
    _check_left(study, shape, made, refused)
    inputs = _inputs(study, made, data)
    groups: dict[int, dict[str, Group]] = defaultdict(dict)  # by nodes; curves share base cases and controls
    for it in sorted(made, key=lambda it: it.num_ranks):
        for group in _groups(it, inputs, environment):
            groups[shape.num_nodes(it.num_ranks)].setdefault(group[0].id, group)
    parts = [[group for nodes in cut for group in groups[nodes].values()] for cut in tiers(groups, policy)]
    references = {}
    if study.reference_launches and shape.cores_per_rank < shape.num_cores:
        networks = {(it.facts.name, it.framework): it for it in made}
        one_batch = study.model_copy(update={"axes": {k: v for k, v in study.axes.items() if k != "batch"}})
        for it, variant in product(networks.values(), one_batch.variants()):
            whole = replace(
                it, study=variant, row=capabilities("none"), algorithm=SYNC, num_servers=0, num_ranks=1,
                shape=replace(shape, cores_per_rank=shape.num_cores, threads_per_rank=shape.num_cores),
            )  # fmt: skip
            cell = _cell(whole, "whole_machine", inputs, environment)
            references[cell.id] = [cell]
    cells = [cell for part in parts for group in part for cell in group]
    launches = study.launches or launches_needed(num_comparisons(cells))
    trained = {it.framework for it in made}
    frameworks = [name for name in study.frameworks if name in trained]
    study = study.model_copy(update={"frameworks": frameworks, "launches": launches})
    # Another order in every study: what one order does to its launches, such as a cache that the first one of a block
    # fills, must not be repeated by all of them. Resuming a study makes the same order again.
    ids = sorted([cell.id for cell in cells] + list(references))
    order = random.Random(f"{study.seed} {study.name} {' '.join(ids)}")  # noqa: S311 - not used for security
    planned = []
    for (tier, part), index in product(enumerate(parts), range(launches)):
        block = tier * launches + index
        members = [*part, *(references.values() if block < study.reference_launches else ())]
        order.shuffle(members)
        for position, group in enumerate(members):
            cases = tuple(Case(cell=cell, block=block, position=position) for cell in group)
            # A file of the user's brings its data.
            path = None if group[0].own else inputs[group[0].workload][0]
            planned.append(Launch(cases=cases, data=path))
    warnings = _warnings(made, refused)
    return Plan(study=study, launches=tuple(planned), num_launches=launches, shape=shape, warnings=warnings)


def _trainings(study: Study, shape: Shape) -> Iterator[Training]:
    """All trainings that the study asks for.

    1 rank without an exchange is the base case of all. Other backends have one there where the study has no `none`,
    where its base is their `own`, or where there is no other number. To a target `none` trains on 1 rank only.
    """
    own = "none" not in study.backends or max(shape.ranks) == 1 or (study.base == "own" and not study.target)
    for workload, framework, backend in product(study.workloads, study.frameworks, study.backends):
        row, facts = capabilities(backend), study.facts(workload)
        carried = [name for name in study.algorithms if name in row.algorithms] or study.algorithms[:1]
        for algorithm in carried if row.exchanges else [SYNC]:
            for variant, ranks in product(study.variants(backend, algorithm), shape.ranks):
                alone = ranks == 1
                if not (own or not alone if row.exchanges else alone or not study.target):
                    continue
                numbers = {num_servers(spec, ranks) for spec in study.servers}
                for number in sorted(numbers) if row.servers else [0]:
                    yield Training(
                        study=variant, facts=facts, preset=facts.preset(study.preset), framework=framework, row=row,
                        algorithm=algorithm, num_ranks=ranks, num_servers=number, shape=shape,
                    )  # fmt: skip


def _check_left(study: Study, shape: Shape, made: Sequence[Training], refused: Refused) -> None:
    """Raises UsageError where no training is left of something that was named, or of all that exchanges on some ranks.

    Base cases do not count: 1 rank where there are more, and what exchanges nothing where something does. A backend may
    lack an algorithm or a sharded state that another one carries.
    """
    exchange = any(capabilities(name).exchanges for name in study.backends)
    trained = {it.num_ranks for it in made}

    def named(it: Training) -> set[tuple[object, ...]]:
        if (exchange and not it.row.exchanges) or it.num_ranks == 1 < max(shape.ranks):
            return set()
        keys: set[tuple[object, ...]] = {(name, getattr(it.study, name)) for name in AXES}
        keys |= {("workload", it.facts.name), ("algorithm", it.algorithm)}
        carries = it.algorithm in it.row.algorithms
        carries &= it.shard == NONE or it.shard in carried_shards(it.row.name, it.framework)
        if carries and not study.every_backend:
            keys.add(("backend", it.row.name, str(it.options)))
        if not study.every_framework:
            keys.add(("framework", it.framework))
        if study.ranks or study.nodes or it.num_ranks in trained:
            keys.add(("ranks", it.num_ranks))
        return keys

    left = {key for it in made for key in named(it)}
    for it, problem in refused:
        if named(it) - left:
            raise UsageError(problem)
    if not made:
        nothing = f"study {study.name} has no training on these ranks; give others, or another --set base"
        raise UsageError(refused[0][1] if refused else nothing)


def _warnings(made: Sequence[Training], refused: Refused) -> tuple[str, ...]:
    """A line for each reason, with what is left out, and on which ranks if not on all."""
    reasons: dict[str, tuple[dict[str, None], set[int]]] = {}
    for training, problem in refused:
        curves, ranks = reasons.setdefault(problem, ({}, set()))
        curves[training.curve] = None
        ranks.add(training.num_ranks)
    kept, lines = {training.curve for training in made}, []
    for problem, (curves, ranks) in reasons.items():
        on = f" on {', '.join(map(str, sorted(ranks)))} ranks" * bool(kept & {*curves})
        lines.append(f"{', '.join(curves)}{on} {'is' if len(curves) == 1 else 'are'} left out: {problem}")
    rows = {training.row.name: training.row for training in made}
    return (*lines, *(f"backend {name}: {row.untried}" for name, row in rows.items() if row.untried))


def _inputs(study: Study, made: Sequence[Training], data: str | None) -> Inputs:
    """What each workload reads, checked for its largest global batch. Raises UsageError.

    `data` is a `PATH`, `synthetic`, or `WORKLOAD=PATH,WORKLOAD=PATH`.
    """
    pieces = [piece.partition("=") for piece in (data or "").split(",")]
    if all(equals and name in WORKLOADS for name, equals, _ in pieces):
        paths = {name: Path(path) for name, _, path in pieces}
    else:
        paths = dict.fromkeys(study.workloads, Path(data)) if data else {}
    inputs: Inputs = {}
    for name, it in {it.facts.name: it for it in sorted(made, key=lambda it: it.global_batch)}.items():
        source = it.facts.input(
            it.preset.name, paths.get(name), num_samples=it.global_batch, skip_bad=study.skip_bad
        )
        if study.target:
            study.target.check_held_out(it.facts, it.preset, source, needed=it.global_batch)
        own = study.own_models.get(name)
        known = "synthetic" if source.path is None else own.data if own else data_name(source.path)
        inputs[name] = (source.path, known)
    return inputs


def _cell(it: Training, control: Control, inputs: Inputs, environment: str) -> Cell:
    study, shape, ranks = it.study, it.shape, it.num_ranks
    target = study.target and study.target.of_cell(
        it.facts,
        it.preset,
        global_batch=it.global_batch,
        base_batch=replace(it, num_ranks=1).global_batch,
    )
    return Cell(
        workload=it.facts.name, own=study.own_models.get(it.facts.name), preset=it.preset.name, framework=it.framework,
        backend=it.row.name, backend_options=dict(it.options), algorithm=it.algorithm,
        algorithm_options=study.algorithm_options.get(it.algorithm, {}), shard=it.shard, split=it.split,
        environment=environment, variables=study.environment_variables, scaling_mode=study.scaling_mode,
        num_ranks=ranks, num_servers=it.num_servers, num_nodes=shape.num_nodes(ranks + it.num_servers),
        cores_per_rank=shape.cores_per_rank, threads_per_rank=shape.threads_per_rank, local_batch=it.local_batch,
        global_batch=it.global_batch, precision=study.precision, compiled=study.compiled, device=study.device,
        control=control, target=target, data=inputs[it.facts.name][1],
    )  # fmt: skip


def _groups(it: Training, inputs: Inputs, environment: str) -> Iterator[Group]:
    """The training with the controls of its launch, and what is in launches of its own.

    Beside backends communication only: halos where ranks share samples, else averages, of host buffers. Beside `none`
    those of the input, where data are read, and the profile of 1 rank on a CPU.
    """
    study, ranks, asked = it.study, it.num_ranks, it.study.controls
    controls: list[Control] = []
    if not it.row.exchanges:
        controls += ["synthetic", "loader"] if inputs[it.facts.name][0] else []
        # Keras draws and remembers by assignments, which TensorFlow orders in a `tf.function` alone.
        keras = it.facts.name in study.own_models and it.framework == "tensorflow"
        controls += ["profile"] if ranks == 1 and study.device == "cpu" and not keras else []
    elif it.split == 1 < ranks and it.algorithm == SYNC and it.shard == NONE and study.device == "cpu":
        controls += ["exchange"] if it.framework in it.row.collective else []
    controls = [name for name in controls if name in asked]
    if it.split > 1 and it.row.exchanges and "exchange" in asked and study.device == "cpu":
        controls = ["halos"]
    yield [_cell(it, control, inputs, environment) for control in ("train", *controls)]
    if it.row.exchanges or "alone" not in asked or ranks == 1:
        return
    # 1 rank that computes what one of several does: a smaller batch, and thin blocks of rows.
    cell = _cell(replace(it, num_ranks=1), "alone", inputs, environment)
    splits = [1] if study.scaling_mode == "strong" and it.local_batch < cell.local_batch else []
    for split in {*splits, *([it.split] if it.split > 1 else [])}:
        same = {"local_batch": it.local_batch, "global_batch": it.local_batch, "split": split}
        names = dict.fromkeys((cell.data, "synthetic"))
        yield [cell.model_copy(update={**same, "data": name}) for name in names]


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
    elif (size := path.stat().st_size) <= WHOLE_BYTES:
        digest.update(path.read_bytes())
    else:
        with path.open("rb") as opened:
            digest.update(f"{size}\0".encode() + opened.read(END_BYTES))
            opened.seek(-END_BYTES, 2)
            digest.update(opened.read())
    return f"{path.name}:{digest.hexdigest()[:12]}"
