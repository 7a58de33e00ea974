"""Which trainings of a study can run: everything that its ranks would refuse, and why.

`check_study` looks at the study as a whole, `refusal` at one training; what a single field may be is said by its type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from dlscale.base.definitions import one_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import AUTO, Setting, split_needed
from dlscale.benchmarks.study.sizes import Shape
from dlscale.benchmarks.study.study import OPTION_TABLES, Study
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives import Capabilities, Setup, capabilities, check_algorithm, check_options, check_setup
from dlscale.collectives.algorithms.registry import NAMES as ALGORITHMS
from dlscale.collectives.algorithms.registry import SYNC, read_algorithm
from dlscale.collectives.sharding import NONE, PARAMETERS, check_sharding
from dlscale.models.frameworks import FRAMEWORKS, check_precision
from dlscale.models.own import OwnModel
from dlscale.models.workload import Preset, Workload

OF_EACH_RANK = ("algorithm", "compression", "pipelined")
NO_KERAS = ("grpc_ps", "tf_collective", "nccl")  # a program of TensorFlow's own trains over these


@dataclass(frozen=True, kw_only=True)  # no slots: cached_property needs a dictionary
class Training:
    """One value of everything that a study asks for, on one number of ranks.

    A replica is the ranks that share samples, `split` of them. In weak scaling the samples of a rank are constant: a
    replica of 2 ranks has twice those of a rank. In strong scaling those over all ranks are, and are dealt out.
    """

    study: Study  # without axes
    facts: Workload
    preset: Preset
    framework: str
    row: Capabilities  # of its backend
    algorithm: str
    num_ranks: int
    num_servers: int
    shape: Shape

    @property
    def options(self) -> dict[str, Setting]:
        """Those of its backend."""
        return self.study.backend_options.get(self.row.name, {})

    @property
    def shard(self) -> str:
        """What its ranks hold a part of; without an exchange all hold everything."""
        return self.study.shard if self.row.exchanges else NONE

    @cached_property
    def split(self) -> int:
        """Ranks per sample. `auto` is the fewest with which samples are dealt out evenly; 1 in weak scaling."""
        if self.study.split == AUTO:
            weak = self.study.scaling_mode == "weak"
            return 1 if weak else split_needed(self.num_ranks, self.global_batch)
        return int(self.study.split) if self.num_ranks > 1 else 1

    @property
    def local_batch(self) -> int:
        """Samples per replica."""
        if self.study.scaling_mode == "strong":
            return self.global_batch * self.split // self.num_ranks
        return self.split * (self.study.batch or self.preset.local_batch)

    @property
    def global_batch(self) -> int:
        """Samples over all ranks."""
        if self.study.scaling_mode == "strong":
            return self.study.batch or self.preset.global_batch
        return self.local_batch * (self.num_ranks // self.split)

    @property
    def curve(self) -> str:
        """Its backend with algorithm and sharded state: `ring easgd in torch`, `gloo, optimizer sharded in torch`."""
        algorithm = f" {self.algorithm}" * (self.algorithm != SYNC)
        return f"{self.row.name}{algorithm}{f', {self.shard} sharded' * (self.shard != NONE)} in {self.framework}"


def refusal(training: Training) -> str:
    """Why the ranks would refuse the training; empty if they would not."""
    try:
        return next(_refusals(training), "")
    except UsageError as error:
        return str(error)


def _refusals(it: Training) -> Iterator[str]:
    """What is wrong with a training; raises UsageError with what others say is wrong."""
    study, row, ranks, own = it.study, it.row, it.num_ranks, it.study.own_models.get(it.facts.name)
    backend = row.name
    it.facts.check_framework(it.framework)
    if study.precision != "fp32":
        check_precision(study.precision, device=study.device)
    if study.device not in row.devices:
        yield f"backend {backend} does not support device {study.device}, only {', '.join(row.devices)}"
    if it.framework not in row.frameworks:
        yield f"backend {backend} does not support {it.framework}, only {', '.join(row.frameworks)}"
    if own and (problem := _of_own_model(it, own)):
        yield f"backend {backend} does not train {it.facts.name}: {problem}; leave it out"
    setup = Setup(
        framework=it.framework, num_ranks=ranks, num_servers=it.num_servers, device=study.device,
        compiled=study.compiled, one_machine=it.shape.num_nodes(ranks + it.num_servers) == 1,
        cores_per_rank=it.shape.cores_per_rank, threads_per_rank=it.shape.threads_per_rank,
    )  # fmt: skip
    rules = None
    if it.algorithm != SYNC:
        check_algorithm(backend, it.options, framework=it.framework, algorithm=it.algorithm)
        rules = read_algorithm(it.algorithm, study.algorithm_options.get(it.algorithm))
        if hasattr(rules, "check_setup"):
            rules.check_setup(setup)
    if it.shard != NONE:
        check_sharding(
            backend, it.options, framework=it.framework, shard=it.shard, algorithm=it.algorithm, device=study.device,
            compiled=study.compiled,
        )  # fmt: skip
    if own and it.shard != NONE and (own.whole_tensors or (it.shard == PARAMETERS and own.whole_network)):
        yield f"shard={it.shard} with {own.file}: {own.whole_tensors or own.whole_network}; choose another shard"
    if it.num_servers > ranks:
        yield f"{it.num_servers} servers for {ranks} workers: more servers than workers"
    check_setup(backend, it.options, setup)
    yield from _of_updates(it, rules)
    yield from _of_split(it)
    if study.scaling_mode == "strong" and it.global_batch % (ranks // it.split):
        dealt = f"{ranks} ranks" if it.split == 1 else f"the {ranks // it.split} replicas of {ranks} ranks"
        yield (
            f"strong scaling of {it.facts.name} ({it.preset.name}): global batch {it.global_batch} is not a multiple "
            f"of {dealt}; choose --ranks from: {_divisors(it.global_batch, times=it.split)}; or another --batch or "
            "--split"
        )
    if it.local_batch < it.preset.local_batch:  # which some networks cannot train on
        it.facts.data().step_inputs(it.preset, it.local_batch, np.random.default_rng(0), gate=True)


def _of_own_model(it: Training, model: OwnModel) -> str:
    """What is in the way of a user's network over a backend; empty if nothing."""
    if it.framework == "tensorflow" and it.row.name in NO_KERAS:
        return "its program in TensorFlow has no place for a Keras model"
    if (model.scheduled or model.clip_norm) and (it.row.name == "grpc_ps" or it.algorithm == "downpour"):
        return "its servers make the updates, and do not know the file's schedule or clip_norm"
    return ""


def _of_updates(it: Training, options: Any) -> Iterator[str]:
    """What is wrong with an algorithm's options, and with servers that make the updates."""
    rules, target, interval = it.study.rules, it.study.target, getattr(options, "interval", 1)
    if (
        it.algorithm == "easgd"
        and options.momentum
        and (target is None or target.optimizer != "sgd" or target.momentum)
    ):
        yield "easgd.momentum is that of plain SGD; leave it out, or train with target.optimizer=sgd without momentum"
    longest = (rules.max_steps - rules.longest_warm_up) // rules.min_windows
    if target is None and interval > longest:
        yield f"{it.algorithm}.interval={interval} is too long for rules.max_steps; give at most {longest}, or raise it"
    # What no state of rank 0 has: ranks' own weights, what compression left over, and gradients under way.
    for name, value in (("algorithm", it.algorithm), *it.options.items()):
        if rules.checkpoint_every and name in OF_EACH_RANK and value not in (SYNC, "none", False):
            yield f"rules.checkpoint_every with {name}={value}: each rank has a part of the state; leave one out"
    if not it.row.servers:
        return
    if rules.checkpoint_every:
        yield f"rules.checkpoint_every over {it.row.name}: its servers hold part of the state; leave one of the two out"
    if target and (target.warm_up_samples or target.decay_samples):
        yield f"target.warm_up_samples or decay_samples over {it.row.name}: its servers have one learning rate for good"
    if target and it.facts.running_statistics:
        yield f"{it.facts.name} over {it.row.name}: its servers lack what batch norm keeps, so nothing can be evaluated"


def _of_split(it: Training) -> Iterator[str]:
    split, ranks, preset, asked = it.split, it.num_ranks, it.preset, it.study.split
    if asked not in (1, AUTO) and max(it.shape.ranks) == 1:
        yield f"--split {asked} on 1 rank: only several ranks share a sample; add --ranks {asked}"
    if split == 1:
        return
    if not preset.block_rows:
        yield f"split {split} of {it.facts.name}: its network has no form for rows on several ranks; leave --split out"
    if ranks % split:
        yield f"split {split} does not divide {ranks} ranks; choose --split from: {_divisors(ranks)}"
    if split > preset.largest_split:
        yield (
            f"split {split} of {it.facts.name} ({preset.name}): its {preset.input_shape[1]} rows are "
            f"{preset.largest_split} blocks of {preset.block_rows}; give --split {preset.largest_split} at most"
        )
    # With these an update is not the mean of all gradients, or the network cannot exchange rows.
    for name, value, nothing in (
        ("algorithm", it.algorithm, SYNC),
        ("shard", it.shard, NONE),
        ("compiled", it.study.compiled, False),
        ("compression", it.options.get("compression", "none"), "none"),
        ("asynchronous", it.options.get("asynchronous", False), False),
    ):
        if value != nothing:
            yield f"split {split} with {name}={value}; leave one of the two out"
    if (it.row.name, it.framework) == ("grpc_ps", "tensorflow"):
        yield f"split {split} with grpc_ps in tensorflow, whose graph orders no exchange of rows; leave one out"


def _divisors(number: int, *, times: int = 1) -> str:
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return ", ".join(str(times * n) for n in sorted({*small, *(number // n for n in small)}))


def check_study(study: Study) -> None:
    """Raises UsageError for a study that asks for something that none of its trainings could have."""
    for problem in _of_study(study):
        raise UsageError(problem)
    for backend, algorithm in product(study.backends, study.algorithms):
        for variant in study.variants(backend, algorithm):
            if options := variant.backend_options.get(backend):
                check_options(backend, options)
            if options := variant.algorithm_options.get(algorithm):
                read_algorithm(algorithm, options)


def _of_study(study: Study) -> Iterator[str]:
    exchanging = {name for name in study.backends if capabilities(name).exchanges}
    over = f"over {', '.join(study.backends)}: none of these"
    for framework in study.frameworks:
        one_of("framework", framework, FRAMEWORKS)
    for name in study.algorithms:
        carrying = [other for other in BACKENDS if name in capabilities(other).algorithms]
        if one_of("algorithm", name, ALGORITHMS) != SYNC and not exchanging.intersection(carrying):
            yield f"algorithm {name} {over} carries it; add one of: {', '.join(carrying)}"
    if not exchanging and (study.shard != NONE or "shard" in study.axes):
        yield f"shard={study.shard} {over} exchanges anything; add one that does"
    for table, kind, known in zip(
        OPTION_TABLES, ("backend", "algorithm"), (BACKENDS, ALGORITHMS), strict=True
    ):
        for owner, options in getattr(study, table).items():
            # Whichever backend needs it may be told that ports are allowed.
            unused = options.keys() - {"allow_open_ports"}
            if one_of(kind, owner, known) not in getattr(study, f"{kind}s") and unused:
                yield f"{owner} has options, but is not among the study's {kind}s; add it, or leave them out"
    for spec in study.servers:
        num_servers(spec, 1)
    if study.target and {*study.controls} - {"none"}:
        yield f"--set controls={','.join(study.controls)} in {study.name}, whose trainings have none; leave it out"


def num_servers(spec: str, num_ranks: int) -> int:
    """The number of servers that `2`, or `1/2` of the workers, means for `num_ranks` workers; rounded up.

    Raises UsageError for anything else.
    """
    if not re.fullmatch(r"0*[1-9]\d*(/0*[1-9]\d*)?", spec):
        raise UsageError(
            f"{spec!r} is not a number of servers; give a number such as 2, or a ratio such as 1/2"
        )
    servers, _, workers = spec.partition("/")
    return -(-num_ranks * int(servers) // int(workers or num_ranks))
