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
from dlscale.benchmarks.records.cell import AUTO, Case, Cell, Control, split_needed
from dlscale.benchmarks.study.check import check_cell, check_study, num_servers
from dlscale.benchmarks.study.plan import Launch, Plan, Shape, launches_needed, num_comparisons, shape, tiers
from dlscale.benchmarks.study.study import AXES, Study
from dlscale.benchmarks.systems.system import DETECT, System
from dlscale.collectives import CONTROL, capabilities
from dlscale.collectives.algorithms import SYNC
from dlscale.collectives.capabilities import carried_shards
from dlscale.collectives.sharding import NONE
from dlscale.models import NAMES as WORKLOADS

Group = list[Cell]  # that share a launch
Training = tuple[Cell, Study]  # with the values of its axes
Refused = list[tuple[Training, str]]  # with the reason
Inputs = dict[str, tuple[Path | None, str]]  # workload -> its file, unless synthetic, and its name in cells


def expand(study: Study, system: System, *, environment: str, data: str | None) -> Plan:
    """The plan of a study on a system. A block holds one launch of every cell of its tier, base cases included (M4).

    Cores and threads per rank are constants of the study. Sizes that cannot share a job are in separate tiers
    (`tiers`) with separate blocks, numbered from t * launches on in tier t. Where the study says no number of launches
    it is what the comparisons of its backends need. Raises UsageError for what cannot be measured.
    """
    points = shape(study, system)
    check_study(study, points)
    made: list[Training] = []
    refused: Refused = []
    for cell, variant in _trainings(study, points, environment):
        try:
            check_cell(cell, study)
            made.append((cell, variant))
        except UsageError as error:
            refused.append(((cell, variant), str(error)))
    if refused or not made:
        _check_left(study, points, made, refused)
    trained = sorted((cell for cell, _ in made), key=lambda cell: cell.num_ranks)
    inputs = _inputs(study, trained, data)
    groups: dict[int, dict[str, Group]] = defaultdict(dict)  # by nodes; curves share base cases and controls
    for cell in trained:
        for group in _groups(cell, study, inputs[cell.workload]):
            groups[points.num_nodes(cell.num_ranks)].setdefault(group[0].id, group)
    cuts = tiers(groups) if system.has_jobs else [list(groups)]
    parts = [[group for nodes in cut for group in groups[nodes].values()] for cut in cuts]
    references: dict[str, Group] = {}
    if study.reference_launches and points.cores_per_rank < points.num_cores:
        whole = replace(points, cores_per_rank=points.num_cores, threads_per_rank=points.num_cores)
        one_batch = study.model_copy(update={"axes": {k: v for k, v in study.axes.items() if k != "batch"}})
        programs = dict.fromkeys((cell.workload, cell.framework) for cell, _ in made)
        for (workload, framework), variant in product(programs, one_batch.variants()):
            cell = _cell(variant, whole, environment, workload, framework)
            names = {"control": "whole_machine", "data": inputs[workload][1]}
            cell = cell.model_copy(update=names)
            references[cell.id] = [cell]
    cells = [cell for part in parts for group in part for cell in group]
    launches = study.launches or launches_needed(num_comparisons(cells))
    frameworks = [name for name in study.frameworks if any(cell.framework == name for cell in trained)]
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
    rows = [capabilities(name) for name in dict.fromkeys(cell.backend for cell in trained)]
    untried = [f"backend {row.name}: {row.untried}" for row in rows if row.untried]
    most = max(cell.num_nodes for cell in cells)
    allowed = any(options.get("allow_open_ports") for options in study.backend_options.values())
    if most > 1 and not allowed and system.launcher != DETECT and not LAUNCHERS[system.launcher].needs_mpi:
        raise UsageError(
            f"launcher {system.launcher} on {most} nodes of {system.name}: its ranks meet at a port that asks nobody "
            "who connects; leave it out, or add --set allow_open_ports=yes on a network of your own"
        )
    return Plan(
        study=study.model_copy(update={"frameworks": frameworks, "launches": launches}),
        launches=tuple(planned),
        num_launches=launches,
        shape=points,
        warnings=(*(_warnings(made, refused) if refused else ()), *untried),
        sample_times=system.sample_times,
    )


def _trainings(study: Study, points: Shape, environment: str) -> Iterator[Training]:
    """All trainings that the study asks for.

    1 rank without an exchange is the base case of all. Other backends have one there where the study has no `none`,
    where its base is their `own`, or where there is no other number. To a target `none` trains on 1 rank only.
    """
    own = (
        CONTROL not in study.backends or max(points.ranks) == 1 or (study.base == "own" and not study.target)
    )
    for workload, framework, backend in product(study.workloads, study.frameworks, study.backends):
        row = capabilities(backend)
        carried = [name for name in study.algorithms if name in row.algorithms] or study.algorithms[:1]
        for algorithm in carried if row.exchanges else [SYNC]:
            variants = study.variants(backend, algorithm) if study.axes else [study]
            for variant, ranks in product(variants, points.ranks):
                if not (own or ranks > 1 if row.exchanges else ranks == 1 or not study.target):
                    continue
                numbers = {num_servers(spec, ranks) for spec in study.servers} if row.servers else {0}
                for number in sorted(numbers):
                    cell = _cell(
                        variant, points, environment, workload, framework, backend, algorithm, ranks, number
                    )
                    yield cell, variant


def _cell(
    study: Study,  # without axes
    points: Shape,
    environment: str,
    workload: str,
    framework: str,
    backend: str = CONTROL,
    algorithm: str = SYNC,
    ranks: int = 1,
    servers: int = 0,
) -> Cell:
    """The training with one value of everything that a study asks for; its data are named when all are known.

    A replica is the ranks that share samples, `split` of them. In weak scaling the samples of a rank are constant: a
    replica of 2 ranks has twice those of a rank. In strong scaling those over all ranks are, and are dealt out. What
    has less than a sample is refused later (`check_cell`).
    """
    facts, strong = study.facts(workload), study.scaling_mode == "strong"
    preset = facts.preset(study.preset)
    batch = study.batch or (preset.global_batch if strong else preset.local_batch)
    split = 1
    if ranks > 1 and study.split == AUTO:  # the fewest with which samples are dealt out evenly
        split = split_needed(ranks, batch) if strong else 1
    elif ranks > 1:
        split = int(study.split)
    local_batch = max(1, batch * split // ranks) if strong else batch * split
    global_batch = batch if strong else max(1, local_batch * (ranks // split))
    target = study.target and study.target.of_cell(facts, preset, global_batch=global_batch, base_batch=batch)
    return Cell(
        workload=workload, own=study.own_models.get(workload), preset=preset.name, framework=framework,
        backend=backend, backend_options=study.backend_options.get(backend, {}), algorithm=algorithm,
        algorithm_options=study.algorithm_options.get(algorithm, {}),
        shard=study.shard if capabilities(backend).exchanges else NONE, split=split, environment=environment,
        variables=study.environment_variables, scaling_mode=study.scaling_mode, num_ranks=ranks, num_servers=servers,
        num_nodes=points.num_nodes(ranks + servers), cores_per_rank=points.cores_per_rank,
        threads_per_rank=points.threads_per_rank, local_batch=local_batch, global_batch=global_batch,
        precision=study.precision, compiled=study.compiled, device=study.device, target=target, data="synthetic",
    )  # fmt: skip


def _check_left(study: Study, points: Shape, made: Sequence[Training], refused: Refused) -> None:
    """Raises UsageError where no training is left of something that was named, or of all that exchanges on some ranks.

    Base cases do not count: 1 rank where there are more, and what exchanges nothing where something does. A backend may
    lack an algorithm or a sharded state that another one carries.
    """
    exchange = any(capabilities(name).exchanges for name in study.backends)
    ranks = {cell.num_ranks for cell, _ in made}

    def named(training: Training) -> set[tuple[object, ...]]:
        cell, variant = training
        row = capabilities(cell.backend)
        if (exchange and not row.exchanges) or cell.num_ranks == 1 < max(points.ranks):
            return set()
        keys: set[tuple[object, ...]] = {(name, getattr(variant, name, None)) for name in AXES}
        keys |= {("workload", cell.workload), ("algorithm", cell.algorithm)}
        carried = cell.shard == NONE or cell.shard in carried_shards(cell.backend, cell.framework)
        if carried and cell.algorithm in row.algorithms and not study.every_backend:
            keys.add(("backend", cell.backend, str(cell.backend_options)))
        if not study.every_framework:
            keys.add(("framework", cell.framework))
        if study.ranks or study.nodes or cell.num_ranks in ranks:
            keys.add(("ranks", cell.num_ranks))
        return keys

    left = {key for training in made for key in named(training)}
    for training, problem in refused:
        if named(training) - left:
            raise UsageError(problem)
    if not made:
        nothing = f"study {study.name} has no training on these ranks; give others, or another --set base"
        raise UsageError(refused[0][1] if refused else nothing)


def _warnings(made: Sequence[Training], refused: Refused) -> list[str]:
    """A line for each reason, with what is left out, and on which ranks if not on all."""
    reasons: dict[str, tuple[dict[str, None], set[int]]] = {}
    for (cell, _), problem in refused:
        curves, ranks = reasons.setdefault(problem, ({}, set()))
        curves[f"{cell.method} in {cell.framework}"] = None
        ranks.add(cell.num_ranks)
    kept, lines = {f"{cell.method} in {cell.framework}" for cell, _ in made}, []
    for problem, (curves, ranks) in reasons.items():
        on = f" on {', '.join(map(str, sorted(ranks)))} ranks" * bool(kept & {*curves})
        lines.append(f"{', '.join(curves)}{on} {'is' if len(curves) == 1 else 'are'} left out: {problem}")
    return lines


def _inputs(study: Study, trained: Sequence[Cell], data: str | None) -> Inputs:
    """What each workload reads, checked for its largest global batch. Raises UsageError.

    `data` is a `PATH`, `synthetic`, or `WORKLOAD=PATH,WORKLOAD=PATH`.
    """
    pieces = [piece.partition("=") for piece in (data or "").split(",")]
    if all(equals and name in WORKLOADS for name, equals, _ in pieces):
        paths = {name: Path(path) for name, _, path in pieces}
    else:
        paths = dict.fromkeys(study.workloads, Path(data)) if data else {}
    largest: dict[str, int] = {}
    for cell in trained:
        largest[cell.workload] = max(cell.global_batch, largest.get(cell.workload, 0))
    inputs: Inputs = {}
    for workload, needed in largest.items():
        facts = study.facts(workload)
        preset = facts.preset(study.preset)
        source = facts.input(preset.name, paths.get(workload), num_samples=needed, skip_bad=study.skip_bad)
        if study.target:
            study.target.check_held_out(facts, preset, source, needed=needed)
        own = study.own_models.get(workload)
        known = "synthetic" if source.path is None else own.data if own else data_name(source.path)
        inputs[workload] = (source.path, known)
    return inputs


def _groups(cell: Cell, study: Study, source: tuple[Path | None, str]) -> Iterator[Group]:
    """The training with the controls of its launch, and what is in launches of its own.

    Beside backends communication only: halos where ranks share samples, else averages, of host buffers. Beside `none`
    those of the input, where data are read, and the profile of 1 rank on a CPU.
    """
    row, asked, (path, name) = capabilities(cell.backend), study.controls, source
    on_cores = cell.device == "cpu"
    controls: list[Control] = []
    if not row.exchanges:
        controls += ["synthetic", "loader"] if path else []
        # Keras draws and remembers by assignments, which TensorFlow orders in a `tf.function` alone.
        keras = cell.own and cell.framework == "tensorflow"
        controls += ["profile"] if cell.num_ranks == 1 and on_cores and not keras else []
    elif on_cores and cell.split > 1:
        controls = ["halos"] if "exchange" in asked else []
    elif on_cores and cell.num_ranks > 1 and cell.algorithm == SYNC and cell.shard == NONE:
        controls = ["exchange"] if cell.framework in row.collective else []
    named = [control for control in controls if control in (*asked, "halos")]
    yield [cell.model_copy(update={"data": name, "control": control}) for control in ("train", *named)]
    if row.exchanges or "alone" not in asked or cell.num_ranks == 1:
        return
    # 1 rank that computes what one of several does: a smaller batch, and thin blocks of rows.
    smaller = cell.scaling_mode == "strong" and cell.local_batch < cell.global_batch
    alone = {"num_ranks": 1, "num_nodes": 1, "control": "alone", "global_batch": cell.local_batch}
    for split in {*([1] if smaller else []), *([cell.split] if cell.split > 1 else [])}:
        names = dict.fromkeys((name, "synthetic"))
        yield [cell.model_copy(update={**alone, "split": split, "data": data}) for data in names]


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
