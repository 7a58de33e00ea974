"""Expands a study to its launches, in randomised blocks.

What a rank would refuse is left out if `all` was given and refused if it was named: backends that do not support the
study's device, networks that are not written in a framework, options that do not fit a launch. Cells are in `cells`.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, product
from typing import NamedTuple

from dlscale.base.definitions import one_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.study.batches import dividing
from dlscale.benchmarks.study.cells import CellMaker, Group, check_profile, data_paths
from dlscale.benchmarks.study.owned_options import check_owned_options
from dlscale.benchmarks.study.plan import Launch, Plan
from dlscale.benchmarks.study.servers import check_served, server_counts
from dlscale.benchmarks.study.sharding import check_shards
from dlscale.benchmarks.study.sizes import Shape, Size, tiers
from dlscale.benchmarks.study.splitting import LeftOut
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.system import Policy
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives import Setup, capabilities, check_algorithm, check_setup
from dlscale.collectives.algorithms.registry import read_algorithm
from dlscale.collectives.grpc_ps.messages import ELEMENTWISE
from dlscale.collectives.sharding import check_sharding
from dlscale.models.frameworks import FRAMEWORKS, check_precision


def backends_on_device(study: Study) -> tuple[list[str], list[str]]:
    """(the study's backends that support its device, a warning for each other one that `all` included).

    One that was never tried has a warning, too. Raises UsageError for a named backend that does not support the device.
    """
    backends, warnings = [], []
    for backend in study.backends:
        row = capabilities(one_of("backend", backend, BACKENDS))
        devices = row.devices
        if study.device in devices:
            backends.append(backend)
            if row.untried and not study.every_backend:
                warnings.append(f"backend {backend}: {row.untried}")
        elif study.every_backend:
            warnings.append(f"backend {backend} does not support device {study.device}: left out")
        else:
            others = ", ".join(name for name in BACKENDS if study.device in capabilities(name).devices)
            raise UsageError(
                f"backend {backend} does not support device {study.device}, only {', '.join(devices)}; "
                f"change --device, or choose --backends for {study.device} from: {others}"
            )
    return backends, warnings


def expand(study: Study, *, environment: str, shape: Shape, data: str | None, policy: Policy) -> Plan:
    """The plan of a study. A block holds one launch of every cell of its tier, base cases included (M4).

    Cores and threads per rank are constants of the study. Sizes that cannot share a job are in separate tiers
    (`tiers`) with separate blocks, numbered from t * launches on in tier t. A study that says no number of launches
    gets one of each cell. A backend that does not support one of the frameworks is left out there, with a warning.
    Raises UsageError for unknown names, a global batch that the ranks do not divide, a local batch that the network
    cannot train on, data that do not fit, and what the ranks would refuse.
    """
    check_profile(study, shape)
    paths = data_paths(data, study.workloads)
    pairs, left_out = _trainable(study)
    left_out += check_shards(study, pairs)
    networks, without = _networks(study)
    left_out += without
    study = study.model_copy(
        update={"frameworks": [name for name in study.frameworks if name in {of for _, of in networks}]}
    )
    servers: dict[int, list[int]] = {}
    if any(capabilities(backend).servers for backend, _ in pairs):
        servers, too_many = server_counts(study.servers, shape.ranks)
        left_out += too_many
    check_owned_options(study)
    left_out += [
        f"backend {backend} carries no algorithm of the study: left out"
        for backend in study.backends
        if not study.algorithms_over(backend)
    ]
    refused, reasons = _refused(study, pairs, shape, servers)
    left_out += reasons
    groups: dict[Size, list[Group]] = {size: [] for size in shape.sizes}
    sizes_of: dict[str, list[Size]] = {}
    for name in dict.fromkeys(name for name, _ in networks):
        sizes_of[name], indivisible = dividing(study, name, shape)
        left_out += indivisible
    shape = replace(shape, sizes=tuple(size for size in shape.sizes if size in chain(*sizes_of.values())))
    references: list[Group] = []
    divided = LeftOut(study)
    for workload, framework in networks:
        backends = [backend for backend, trained in pairs if trained == framework]
        made = partial(
            CellMaker,
            workload=workload,
            framework=framework,
            environment=environment,
            path=paths.get(workload),
            shape=replace(shape, sizes=tuple(sizes_of[workload])),
        )
        for backend in backends:
            if problem := _foreign(study, workload, framework, backend):
                if study.named_backends and not study.every_backend:
                    raise UsageError(f"{problem}; leave it out, or give --backends all")
                left_out.append(f"{problem}: left out")
                continue
            for index, variant in enumerate(study.variants(backend, framework)):
                maker = made(variant)
                for size in sizes_of[workload]:
                    for num_servers in _server_numbers(backend, size, servers):
                        if Started(backend, framework, size, num_servers, index) in refused:
                            continue
                        if not _learns(variant, workload, backend, size):
                            continue
                        problem = maker.problem(backend, size)
                        divided.add(variant, (workload, framework, backend), size, problem)
                        if problem:
                            continue
                        make = partial(
                            maker.cell, backend, size.num_ranks, shape.cores_per_rank, num_servers=num_servers
                        )
                        groups[size].append([make(control) for control in maker.controls(backend, size)])
        shared = [made(variant) for variant in study.variants("none")]
        if "none" in backends:
            for maker, size in product(shared, sizes_of[workload]):
                groups[size] += maker.alone(size.num_ranks)
        if study.reference_launches and shape.cores_per_rank < shape.num_cores:
            references += _references(shared, shape)
    left_out += divided.warnings()
    num_launches, parts = study.launches or 1, tiers(shape.sizes, policy)
    return Plan(
        study=study,
        launches=tuple(_blocks(study, num_launches, parts, groups, references)),
        num_launches=num_launches,
        shape=shape,
        warnings=(*left_out, *_warnings(shape)),
    )


# What is trained by a program of TensorFlow's own, which has no place for a Keras model: the backend, and why.
NO_KERAS = {
    "grpc_ps": "its workers train in a graph of TensorFlow 1, in which Keras 3 does not run",
    "tf_collective": "under its strategy Keras sums gradients by itself, a second time",
    "nccl": "under its strategy Keras sums gradients by itself, a second time",
}


def _foreign(study: Study, workload: str, framework: str, backend: str) -> str:
    """Why a backend cannot train a user's own model; empty if it can."""
    model = study.own_models.get(workload)
    if model is None:
        return ""
    problem = NO_KERAS.get(backend, "") if framework == "tensorflow" else ""
    if framework == "torch" and backend == "grpc_ps" and model.optimizer not in ELEMENTWISE:
        problem = f"its servers update weights in pieces, by one of {', '.join(ELEMENTWISE)}"
    own = [name for name, there in (("schedule", model.scheduled), ("clip_norm", model.clip_norm)) if there]
    if own and not problem and (backend == "grpc_ps" or "downpour" in study.algorithms_over(backend)):
        problem = f"its servers make the updates, and do not know the file's {' and '.join(own)}"
    return problem and f"backend {backend} does not train {workload}: {problem}"


def _learns(study: Study, workload: str, backend: str, size: Size) -> bool:
    """Whether a launch has a place in the study: of time to solution, only if all of its ranks train one network.

    1 rank trains without a communication layer there, unless the study has backends with one alone.
    """
    if not study.target:
        return True
    if study.backend_options.get(backend, {}).get("backup_workers"):
        raise UsageError(
            f"{backend}.backup_workers in time-to-solution: gradients of some ranks are dropped, and samples to the "
            f"target would count them; leave it out, or leave out {backend}"
        )
    if capabilities(backend).servers:
        check_served(study.target, study.facts(workload), backend)
    if capabilities(backend).exchanges:
        return size.num_ranks > 1 or "none" not in study.backends
    return size.num_ranks == 1


def _references(makers: Iterable[CellMaker], shape: Shape) -> list[Group]:
    """The whole-machine runs; one for all batches, whose own is the first."""
    found: dict[str, Group] = {}
    for maker in makers:
        cell, path = maker.cell("none", 1, shape.num_cores, "whole_machine")
        alike = cell.model_copy(update={"local_batch": 1, "global_batch": 1})
        found.setdefault(alike.id, [(cell, path)])
    return list(found.values())


def _trainable(study: Study) -> tuple[list[tuple[str, str]], list[str]]:
    """The (backend, framework) pairs that can train on the study's device, and a warning for each that cannot.

    Raises UsageError for a named backend that supports none of the study's frameworks or not its device: it must not
    vanish silently.
    """
    pairs: list[tuple[str, str]] = []
    backends, left_out = backends_on_device(study)
    for backend in backends:
        row = capabilities(backend)
        frameworks = [one_of("framework", framework, FRAMEWORKS) for framework in study.frameworks]
        trained = [framework for framework in frameworks if framework in row.frameworks]
        if not trained and study.named_backends and not study.every_backend:
            raise UsageError(
                f"backend {backend} does not support {', '.join(frameworks)}; "
                f"choose --frameworks from: {', '.join(row.frameworks)}"
            )
        pairs += [(backend, framework) for framework in trained]
        left_out += [
            f"backend {backend} does not support {framework}: left out there"
            for framework in frameworks
            if framework not in trained
        ]
    return pairs, left_out


def _networks(study: Study) -> tuple[list[tuple[str, str]], list[str]]:
    """The (workload, framework) pairs that can be trained, and a warning for each other one that `all` included.

    Raises UsageError for a workload that is not written in a named framework, or in none that is left.
    """
    networks: list[tuple[str, str]] = []
    left_out = []
    for name in study.workloads:
        facts, problems = study.facts(name), []
        for framework in study.frameworks:
            try:
                facts.check_framework(framework)
                for variant in study.variants("none"):
                    check_precision(variant.precision, device=study.device)
            except UsageError as error:
                problems.append((framework, error))
            else:
                networks.append((name, framework))
        if problems and (not study.every_framework or len(problems) == len(study.frameworks)):
            raise problems[0][1]
        left_out += [f"{name} in {framework} is left out: {error}" for framework, error in problems]
    return networks, left_out


class Started(NamedTuple):
    """What a rank may refuse: one variant of a backend on one size."""

    backend: str
    framework: str
    size: Size
    num_servers: int
    variant: int  # its place among those of backend and framework


Refused = set[Started]


def _refused(
    study: Study, pairs: Iterable[tuple[str, str]], shape: Shape, servers: Mapping[int, list[int]]
) -> tuple[Refused, list[str]]:
    """The launches whose ranks would refuse what the study asks of the backend, and warnings with the reasons.

    Raises UsageError for a named backend, and where several ranks would be left with no backend to exchange over.
    """
    refused: Refused = set()
    named = study.named_backends and not study.every_backend
    at: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    exchanged: dict[Size, bool] = {}
    launches: Refused = set()
    variants = {pair: list(enumerate(study.variants(*pair))) for pair in pairs}
    for (backend, framework), size in product(pairs, shape.sizes):
        for num_servers, (index, variant) in product(
            _server_numbers(backend, size, servers), variants[backend, framework]
        ):
            setup = Setup(
                framework=framework,
                num_ranks=size.num_ranks,
                num_servers=num_servers,
                device=study.device,
                compiled=variant.compiled,
                one_machine=shape.num_nodes(size.num_ranks + num_servers) == 1,
                cores_per_rank=shape.cores_per_rank,
                threads_per_rank=shape.threads_per_rank,
            )
            # What only 1 rank would refuse is no reason to refuse the others, for which it is a base case at most.
            counts = size.num_ranks > 1 or max(shape.ranks) == 1
            problem = _problem(variant, backend, setup, named=counts and named)
            started = Started(backend, framework, size, num_servers, index)
            launches.add(started)
            if problem:
                refused.add(started)
                at[backend, framework, problem].append(size.num_ranks)
            if capabilities(backend).exchanges:
                exchanged[size] = exchanged.get(size, False) or not problem
    for size, possible in exchanged.items():
        if size.num_ranks > 1 and not possible:
            raise UsageError(next(problem for _, _, problem in at))
    refused |= _base_cases_of_nothing(launches, refused)
    return refused, [
        f"{backend} in {framework} on {', '.join(map(str, sorted(set(ranks))))} ranks is left out: {problem}"
        for (backend, framework, problem), ranks in at.items()
    ]


def _base_cases_of_nothing(launches: Refused, refused: Refused) -> Refused:
    """The launches on 1 rank of what is refused on all larger numbers of ranks."""

    def curve(launch: Started) -> tuple[str, str, int]:
        return launch.backend, launch.framework, launch.variant

    scaled = {curve(launch) for launch in launches if launch.size.num_ranks > 1}
    left = {curve(launch) for launch in launches - refused if launch.size.num_ranks > 1}
    return {launch for launch in launches if curve(launch) in scaled - left}


def _problem(study: Study, backend: str, setup: Setup, *, named: bool) -> str:
    """Why ranks would refuse to train over the backend; empty if they would not. Raises UsageError if it was named.

    Of several algorithms and shards those that can be run: that one is not possible in a framework is no error.
    """
    try:
        check_algorithm(
            backend,
            study.backend_options.get(backend, {}),
            framework=setup.framework,
            algorithm=study.algorithms[0],
        )
        check_sharding(
            backend,
            study.backend_options.get(backend, {}),
            framework=setup.framework,
            shard=study.shard,
            device=setup.device,
            compiled=setup.compiled,
        )
        rules = read_algorithm(study.algorithms[0], study.algorithm_options.get(study.algorithms[0]))
        if hasattr(rules, "check_setup"):
            rules.check_setup(setup)
    except UsageError as error:
        return str(error)
    try:
        check_setup(backend, study.backend_options.get(backend, {}), setup)
    except UsageError as error:
        if named:
            raise
        return str(error)
    return ""


def _server_numbers(backend: str, size: Size, servers: Mapping[int, list[int]]) -> list[int]:
    return servers[size.num_ranks] if capabilities(backend).servers else [0]


def _blocks(
    study: Study,
    num_launches: int,
    tiers: Sequence[Sequence[Size]],
    groups: Mapping[Size, list[Group]],
    references: Sequence[Group],
) -> Iterator[Launch]:
    # Another order in every study: what one order does to its launches, such as a cache that the first one of a block
    # fills, must not be repeated by all of them. Resuming a study makes the same order again.
    cells = sorted(cell.id for group in (*chain(*groups.values()), *references) for cell, _ in group)
    order = random.Random(f"{study.seed} {study.name} {' '.join(cells)}")  # noqa: S311 - not used for security
    for (tier, sizes), index in product(enumerate(tiers), range(num_launches)):
        block = tier * num_launches + index
        # Curves of several splits have one base case.
        members = list({group[0][0].id: group for size in sizes for group in groups[size]}.values())
        members += references if block < study.reference_launches else []
        order.shuffle(members)
        for position, group in enumerate(members):
            cases = tuple(Case(cell=cell, block=block, position=position) for cell, _ in group)
            paths = [path for _, path in group if path]
            yield Launch(cases=cases, data=paths[0] if paths else None)


def _warnings(shape: Shape) -> tuple[str, ...]:
    over = [num_ranks for num_ranks in shape.ranks if num_ranks > shape.num_cores]
    if shape.ranks_per_node or not over:
        return ()
    names = ", ".join(str(num_ranks) for num_ranks in over)
    return (
        f"{names} ranks share {shape.num_cores} cores: ranks that wait in MPI take time from those that compute; "
        "the records say oversubscribed",
    )
