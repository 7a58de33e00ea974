"""Which trainings of a study can run: everything that its ranks would refuse, and why.

`check_study` looks at the study as a whole, `check_cell` at one training; what a field may be is said by its type.
"""

from __future__ import annotations

import numpy as np

from dlscale.base.definitions import one_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import AUTO, Cell
from dlscale.benchmarks.study.plan import Shape
from dlscale.benchmarks.study.rules import MOST_WARM_UP
from dlscale.benchmarks.study.study import OPTION_TABLES, Study
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives import Capabilities, Setup, capabilities, check_algorithm, check_options, check_setup
from dlscale.collectives.algorithms import NAMES as ALGORITHMS
from dlscale.collectives.algorithms import SYNC, read_algorithm
from dlscale.collectives.sharding import NONE, PARAMETERS, check_sharding
from dlscale.models.frameworks import FRAMEWORKS, check_precision
from dlscale.models.own.model import OwnModel
from dlscale.models.workload import Preset

# What no state of rank 0 has: ranks' own weights, what compression left over, and gradients under way.
OF_EACH_RANK = ("algorithm", "compression", "pipelined")


def check_study(study: Study, shape: Shape) -> None:
    """Raises UsageError for a study that asks for something that none of its trainings could have."""
    rules, over = study.rules, f"over {', '.join(study.backends)}"
    left = rules.max_steps - max(rules.warmup_steps, MOST_WARM_UP)
    if left < (needed := max(rules.min_steps, rules.min_windows)):
        raise UsageError(
            f"a warm-up of up to {rules.max_steps - left} steps leaves {max(left, 0)} of rules.max_steps = "
            f"{rules.max_steps}, but {needed} must be measured; shorten the warm-up or raise max_steps"
        )
    for framework in study.frameworks:
        one_of("framework", framework, FRAMEWORKS)
    rows = [capabilities(name) for name in study.backends]
    for algorithm in study.algorithms:
        carrying = [other for other in BACKENDS if algorithm in capabilities(other).algorithms]
        if one_of("algorithm", algorithm, ALGORITHMS) != SYNC and not {*carrying} & {*study.backends}:
            raise UsageError(
                f"algorithm {algorithm} {over}: none of these carries it; add one of: {', '.join(carrying)}"
            )
    if (study.shard != NONE or "shard" in study.axes) and not any(row.exchanges for row in rows):
        raise UsageError(f"shard={study.shard} {over}: none of these exchanges anything; add one that does")
    for split in (study.split, *study.axes.get("split", ())):
        if split not in (1, AUTO) and max(shape.ranks) == 1:
            raise UsageError(
                f"--split {split} on 1 rank: only several ranks share a sample; add --ranks {split}"
            )
    if study.target and {*study.controls} - {"none"}:
        raise UsageError(
            f"--set controls={','.join(study.controls)} in {study.name}, whose trainings have none; leave it out"
        )
    if study.backend_options or study.algorithm_options:
        _check_options(study)


def _check_options(study: Study) -> None:
    tables = zip(OPTION_TABLES, ("backend", "algorithm"), (BACKENDS, ALGORITHMS), strict=True)
    for table, kind, known in tables:
        for owner, options in getattr(study, table).items():
            # Whichever backend needs it may be told that ports are allowed.
            unused = options.keys() - {"allow_open_ports"}
            if one_of(kind, owner, known) not in getattr(study, f"{kind}s"):
                if unused:
                    raise UsageError(
                        f"{owner} has options, but is not among the study's {kind}s; add it, or leave them out"
                    )
                continue
            for variant in study.variants(owner):
                chosen = getattr(variant, table)[owner]
                check_options(owner, chosen) if kind == "backend" else read_algorithm(owner, chosen)


def check_cell(cell: Cell, study: Study) -> None:
    """Returns if the ranks of a training would accept it. Raises UsageError with the reason."""
    row, facts, preset, ranks = capabilities(cell.backend), cell.facts, cell.preset_facts, cell.num_ranks
    facts.check_framework(cell.framework)
    if cell.precision == "tf32":
        check_precision(cell.precision, device=cell.device)
    if cell.device not in row.devices:
        raise UsageError(
            f"backend {row.name} does not support device {cell.device}, only {', '.join(row.devices)}"
        )
    if cell.framework not in row.frameworks:
        raise UsageError(
            f"backend {row.name} does not support {cell.framework}, only {', '.join(row.frameworks)}"
        )
    if cell.own:
        _check_own(cell, cell.own, row)
    if row.exchanges:
        _check_exchange(cell, row, study)
    if cell.split > 1:
        _check_split(cell, preset, row)
    if cell.scaling_mode == "strong" and cell.global_batch % (ranks // cell.split):
        dealt = (
            f"{ranks} ranks" if cell.split == 1 else f"the {ranks // cell.split} replicas of {ranks} ranks"
        )
        raise UsageError(
            f"strong scaling of {cell.workload} ({cell.preset}): global batch {cell.global_batch} is not a multiple of "
            f"{dealt}; choose --ranks that divide it, or another --batch or --split"
        )
    if cell.local_batch < preset.local_batch:  # which some networks cannot train on
        facts.data().step_inputs(preset, cell.local_batch, np.random.default_rng(0), gate=True)


def _check_own(cell: Cell, own: OwnModel, row: Capabilities) -> None:
    """What a user's network is not trained over, and with which shards."""
    problem = ""
    if cell.framework == "tensorflow" and not row.keras:
        problem = "its program in TensorFlow has no place for a Keras model"
    elif (own.scheduled or own.clip_norm) and _servers_update(cell, row):
        problem = "its servers make the updates, and do not know the file's schedule or clip_norm"
    elif cell.shard != NONE and (own.whole_tensors or (cell.shard == PARAMETERS and own.whole_network)):
        problem = f"shard={cell.shard}: {own.whole_tensors or own.whole_network}"
    if problem:
        raise UsageError(f"backend {cell.backend} does not train {cell.workload}: {problem}; leave it out")


def _servers_update(cell: Cell, row: Capabilities) -> bool:
    """Whether servers update the weights, by one rate; else each worker's own optimizer does."""
    return cell.framework in row.servers_update or getattr(
        read_algorithm(cell.algorithm), "servers_update", False
    )


def _check_exchange(cell: Cell, row: Capabilities, study: Study) -> None:
    """Whether the backend takes the training, with its options, algorithm, shards and servers."""
    rules, target, options = study.rules, study.target, cell.backend_options
    setup = Setup(
        framework=cell.framework, num_ranks=cell.num_ranks, num_servers=cell.num_servers, device=cell.device,
        compiled=cell.compiled, one_machine=cell.num_nodes == 1,
    )  # fmt: skip
    if cell.algorithm != SYNC:
        check_algorithm(row.name, options, framework=cell.framework, algorithm=cell.algorithm)
        algorithm = read_algorithm(cell.algorithm, cell.algorithm_options)
        if hasattr(algorithm, "check_setup"):
            algorithm.check_setup(setup)
        interval = getattr(algorithm, "interval", 1)
        longest = (rules.max_steps - rules.longest_warm_up) // rules.min_windows
        if target is None and interval > longest:
            raise UsageError(
                f"{cell.algorithm}.interval={interval} is too long for rules.max_steps; give at most {longest}, or "
                "raise it"
            )
    if cell.shard != NONE:
        check_sharding(
            row.name, options, framework=cell.framework, shard=cell.shard, algorithm=cell.algorithm, device=cell.device,
            compiled=cell.compiled,
        )  # fmt: skip
    if cell.num_servers > cell.num_ranks:
        raise UsageError(
            f"{cell.num_servers} servers for {cell.num_ranks} workers: more servers than workers"
        )
    check_setup(row.name, options, setup)
    for name, value in (("algorithm", cell.algorithm), *options.items()) if rules.checkpoint_every else ():
        if name in OF_EACH_RANK and value not in (SYNC, "none", False):
            raise UsageError(
                f"rules.checkpoint_every with {name}={value}: each rank has a part of the state; leave one out"
            )
    if row.servers:
        problem = ""
        if rules.checkpoint_every:
            problem = "rules.checkpoint_every needs all of the state, and servers hold a part of it"
        elif target and (target.warm_up_samples or target.decay_samples) and _servers_update(cell, row):
            problem = "its servers have one learning rate for good, without warm_up_samples or decay_samples"
        elif target and cell.facts.running_statistics:
            problem = (
                f"its servers lack what batch norm of {cell.workload} keeps, so nothing can be evaluated"
            )
        if problem:
            raise UsageError(f"{row.name}: {problem}; leave one of the two out")


def _check_split(cell: Cell, preset: Preset, row: Capabilities) -> None:
    """Whether so many ranks can share a sample by rows."""
    split, ranks, problem = cell.split, cell.num_ranks, ""
    if not preset.block_rows:
        problem = f"of {cell.workload}: its network has no form for rows on several ranks"
    elif ranks % split:
        problem = f"does not divide {ranks} ranks"
    elif split > preset.largest_split:
        problem = (
            f"of {cell.workload} ({cell.preset}): its {preset.input_shape[1]} rows are {preset.largest_split} blocks "
            f"of {preset.block_rows}"
        )
    elif cell.framework not in row.splits:
        problem = f"with {row.name} in {cell.framework}, whose graph orders no exchange of rows"
    if problem:
        raise UsageError(f"split {split} {problem}; give another --split, or leave it out")
    # With these an update is not the mean of all gradients, or the network cannot exchange rows.
    for name, value, nothing in (
        ("algorithm", cell.algorithm, SYNC),
        ("shard", cell.shard, NONE),
        ("compiled", cell.compiled, False),
        ("compression", cell.backend_options.get("compression", "none"), "none"),
        ("asynchronous", cell.backend_options.get("asynchronous", False), False),
    ):
        if value != nothing:
            raise UsageError(f"split {split} with {name}={value}; leave one of the two out")


def num_servers(spec: str, num_ranks: int) -> int:
    """The number of servers that `2`, or `1/2` of the workers, means for `num_ranks` workers; rounded up."""
    servers, _, workers = spec.partition("/")
    return -(-num_ranks * int(servers) // int(workers or num_ranks))
