"""Which trainings of a study can run: everything that its ranks would refuse, and why.

`check_study` looks at the study as a whole, `refusal` at one training; what a single field may be is said by its type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dlscale.base.definitions import one_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import AUTO, Setting, split_needed
from dlscale.benchmarks.study.sizes import Shape, Size
from dlscale.benchmarks.study.study import OPTION_TABLES, Study
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives import Capabilities, Setup, capabilities, check_algorithm, check_options, check_setup
from dlscale.collectives.algorithms.registry import NAMES as ALGORITHMS
from dlscale.collectives.algorithms.registry import SYNC, read_algorithm
from dlscale.collectives.capabilities import carried_shards
from dlscale.collectives.grpc_ps.messages import ELEMENTWISE
from dlscale.collectives.sharding import NONE, PARAMETERS, check_sharding
from dlscale.models.frameworks import FRAMEWORKS, check_precision
from dlscale.models.workload import Preset, Workload


@dataclass(frozen=True, kw_only=True)  # no slots: cached_property needs a dictionary
class Training:
    """One value of everything that a study asks for, on one number of ranks.

    A replica is the ranks that share samples, `split` of them. In weak scaling the samples of a rank are constant: a
    replica of 2 ranks has twice those of a rank. In strong scaling those over all ranks are, and are dealt out.
    """

    study: Study  # without axes
    facts: Workload
    framework: str
    backend: str
    algorithm: str
    size: Size
    num_servers: int
    shape: Shape

    @property
    def row(self) -> Capabilities:
        """What its backend can do."""
        return capabilities(self.backend)

    @property
    def preset(self) -> Preset:
        """The facts of its preset. Raises UsageError for an unknown one."""
        return self.facts.preset(self.study.preset)

    @property
    def options(self) -> Mapping[str, Setting]:
        """Those of its backend."""
        return self.study.backend_options.get(self.backend, {})

    @property
    def shard(self) -> str:
        """What its ranks hold a part of; without an exchange all hold everything."""
        return self.study.shard if self.row.exchanges else NONE

    @cached_property
    def split(self) -> int:
        """Ranks per sample. `auto` is the fewest with which samples are dealt out evenly; 1 in weak scaling."""
        if self.size.num_ranks == 1 or (self.study.split == AUTO and self.study.scaling_mode == "weak"):
            return 1
        if self.study.split != AUTO:
            return int(self.study.split)
        return split_needed(self.size.num_ranks, self.study.batch or self.preset.global_batch)

    @property
    def local_batch(self) -> int:
        """Samples per replica."""
        if self.study.scaling_mode == "strong":
            return self.global_batch * self.split // self.size.num_ranks
        return self.split * (self.study.batch or self.preset.local_batch)

    @property
    def global_batch(self) -> int:
        """Samples over all ranks."""
        if self.study.scaling_mode == "strong":
            return self.study.batch or self.preset.global_batch
        return self.local_batch * (self.size.num_ranks // self.split)

    @property
    def curve(self) -> str:
        """Its backend with algorithm and sharded state: `ring easgd`, `gloo, optimizer sharded`."""
        algorithm = f" {self.algorithm}" * (self.algorithm != SYNC)
        return self.backend + algorithm + f", {self.shard} sharded" * (self.shard != NONE)


def refusal(training: Training) -> tuple[str, str] | None:
    """(what is in the way, why the ranks would refuse the training); None if they would not."""
    for about, check in CHECKS.items():
        try:
            check(training)
        except UsageError as error:
            return about, str(error)
    return None


def _check_network(training: Training) -> None:
    training.facts.check_framework(training.framework)
    check_precision(training.study.precision, device=training.study.device)


def _check_device(training: Training) -> None:
    device, backend = training.study.device, training.backend
    if device not in training.row.devices:
        others = ", ".join(name for name in BACKENDS if device in capabilities(name).devices)
        raise UsageError(
            f"backend {backend} does not support device {device}, only {', '.join(training.row.devices)}; "
            f"change --device, or choose --backends for {device} from: {others}"
        )


def _check_framework(training: Training) -> None:
    if training.framework not in training.row.frameworks:
        raise UsageError(
            f"backend {training.backend} does not support {training.framework}; "
            f"choose --frameworks from: {', '.join(training.row.frameworks)}"
        )


# What is trained by a program of TensorFlow's own, which has no place for a Keras model: the backend, and why.
NO_KERAS = {
    "grpc_ps": "its workers train in a graph of TensorFlow 1, in which Keras 3 does not run",
    "tf_collective": "under its strategy Keras sums gradients by itself, a second time",
    "nccl": "under its strategy Keras sums gradients by itself, a second time",
}


def _check_own_model(training: Training) -> None:
    model, backend = training.study.own_models.get(training.facts.name), training.backend
    if model is None:
        return
    problem = NO_KERAS.get(backend, "") if training.framework == "tensorflow" else ""
    if training.framework == "torch" and backend == "grpc_ps" and model.optimizer not in ELEMENTWISE:
        problem = f"its servers update weights in pieces, by one of {', '.join(ELEMENTWISE)}"
    own = [name for name, there in (("schedule", model.scheduled), ("clip_norm", model.clip_norm)) if there]
    if own and not problem and (backend == "grpc_ps" or training.algorithm == "downpour"):
        problem = f"its servers make the updates, and do not know the file's {' and '.join(own)}"
    if problem:
        raise UsageError(
            f"backend {backend} does not train {training.facts.name}: {problem}; leave it out, or give --backends all"
        )


def _check_algorithm(training: Training) -> None:
    check_algorithm(
        training.backend, training.options, framework=training.framework, algorithm=training.algorithm
    )
    rules = read_algorithm(training.algorithm, training.study.algorithm_options.get(training.algorithm))
    if hasattr(rules, "check_setup"):
        rules.check_setup(_setup(training))


def _check_shard(training: Training) -> None:
    check_sharding(
        training.backend,
        training.options,
        framework=training.framework,
        shard=training.shard,
        algorithm=training.algorithm,
        device=training.study.device,
        compiled=training.study.compiled,
    )


def _check_servers(training: Training) -> None:
    servers, workers = training.num_servers, training.size.num_ranks
    if servers > workers:
        raise UsageError(
            f"{servers} servers for {workers} worker{'s' * (workers > 1)}: more servers than workers; give at most as "
            "many servers as ranks"
        )


def _check_setup(training: Training) -> None:
    check_setup(training.backend, training.options, _setup(training))


def _setup(training: Training) -> Setup:
    shape, size = training.shape, training.size
    return Setup(
        framework=training.framework,
        num_ranks=size.num_ranks,
        num_servers=training.num_servers,
        device=training.study.device,
        compiled=training.study.compiled,
        one_machine=shape.num_nodes(size.num_ranks + training.num_servers) == 1,
        cores_per_rank=shape.cores_per_rank,
        threads_per_rank=shape.threads_per_rank,
    )


def _check_split(training: Training) -> None:
    preset, split, ranks = training.preset, training.split, training.size.num_ranks
    name = f"split {split} of {training.facts.name}"
    if split > 1 and not preset.block_rows:
        raise UsageError(
            f"{name}: its network has no form for rows on several ranks; leave --split out, or choose another workload"
        )
    if ranks % split:
        raise UsageError(
            f"split {split} does not divide {ranks} ranks; choose --split from: {_divisors(ranks)}; or other --ranks"
        )
    if split > preset.largest_split:
        raise UsageError(
            f"{name} ({preset.name}): its {preset.input_shape[1]} rows are {preset.largest_split} blocks of "
            f"{preset.block_rows}, and a rank has one or more; give --split {preset.largest_split} at most"
        )
    if split > 1 and (problem := _unlike_split(training)):
        raise UsageError(f"split {split} with {problem}; leave one of the two out")


# Options of backends with which an update is not the mean of all gradients, and the values that ask for nothing.
NO_MEAN = {"compression": "none", "asynchronous": False, "backup_workers": 0}


def _unlike_split(training: Training) -> str:
    """What does not go with ranks that share samples; empty if all does."""
    if training.algorithm != SYNC:
        return f"algorithm {training.algorithm}, whose ranks train alone between exchanges"
    if training.shard != NONE:
        return f"shard={training.shard}"
    if training.study.compiled:
        return "compiled networks, whose graphs end at every exchange of rows"
    if (training.backend, training.framework) == ("grpc_ps", "tensorflow"):
        return "grpc_ps in tensorflow, which trains in a graph of TensorFlow 1"
    for name, nothing in NO_MEAN.items():
        if (value := training.options.get(name, nothing)) != nothing:
            return f"{training.backend}.{name}={value}, which averages not all gradients as they are"
    return ""


def _check_batch(training: Training) -> None:
    preset, split, ranks = training.preset, training.split, training.size.num_ranks
    if training.study.scaling_mode == "strong" and (batch := training.global_batch) % (ranks // split):
        dealt = f"{ranks} ranks" if split == 1 else f"the {ranks // split} replicas of {ranks} ranks"
        further = " --split auto;" if split == 1 and preset.largest_split > 1 else ""
        raise UsageError(
            f"strong scaling of {training.facts.name} ({preset.name}): global batch {batch} is not a multiple of "
            f"{dealt}; choose --ranks from: {_divisors(batch, times=split)};{further} or another --batch"
        )
    if training.local_batch < preset.local_batch:  # which some networks cannot train on
        rng = np.random.default_rng(0)
        training.facts.data().step_inputs(preset, training.local_batch, rng, gate=True)


def _divisors(number: int, *, times: int = 1) -> str:
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return ", ".join(str(times * n) for n in sorted({*small, *(number // n for n in small)}))


# What each is about, in the order in which they are asked.
CHECKS = {
    "network": _check_network,
    "device": _check_device,
    "framework": _check_framework,
    "own model": _check_own_model,
    "algorithm": _check_algorithm,
    "shard": _check_shard,
    "servers": _check_servers,
    "setup": _check_setup,
    "split": _check_split,
    "size": _check_batch,
}


def check_study(study: Study, shape: Shape) -> None:
    """Raises UsageError for a study that asks for something that none of its trainings could have."""
    _check_owners(study)
    for backend in study.backends:
        for algorithm in study.algorithms:
            for variant in study.variants(backend, algorithm):
                check_options(backend, variant.backend_options.get(backend, {}))
                _check_algorithm_options(variant, algorithm)
    _check_carried(study)
    _check_profile(study, shape)
    _check_target(study)
    if study.target and study.controls:
        raise UsageError(
            f"--set controls={','.join(study.controls)} in {study.name}, whose trainings to a target have none; leave "
            "it out, or run weak-scaling"
        )
    split = max((split for split in study.values_of("split") if split != AUTO), default=1)
    if split > 1 and max(shape.ranks) == 1:
        raise UsageError(
            f"--split {split} on 1 rank: only several ranks share a sample; add --ranks {split}, or leave --split out"
        )


def _check_owners(study: Study) -> None:
    """Raises UsageError for options of a backend or an algorithm that the study has not."""
    for kind, known, own, table in (
        ("backend", BACKENDS, study.backends, OPTION_TABLES[0]),
        ("algorithm", ALGORITHMS, study.algorithms, OPTION_TABLES[1]),
    ):
        several = {name.partition(".")[0]: name for name in study.axes if "." in name}
        for owner in getattr(study, table):
            one_of(kind, owner, known)
            if owner in own or (kind == "backend" and owner not in several):
                continue
            what = f"{several[owner]} has several values" if owner in several else f"{owner} has options"
            raise UsageError(
                f"{what}, but {owner} is not in the study; add it to "
                f"{'--' if kind == 'backend' else '--set '}{kind}s {','.join(own)}, or leave the option out"
            )


def _check_algorithm_options(study: Study, name: str) -> None:
    rules, options = study.rules, read_algorithm(name, study.algorithm_options.get(name))
    target, interval = study.target, int(getattr(options, "interval", 1))
    if (
        name == "easgd"
        and options.momentum
        and not (target and target.optimizer == "sgd" and not target.momentum)
    ):
        raise UsageError(
            f"{name}.momentum={options.momentum:g} is that of plain SGD; run it in time-to-solution with "
            "target.optimizer=sgd, without target.momentum, or leave it out"
        )
    longest = (rules.max_steps - rules.longest_warm_up) // rules.min_windows
    if target is None and interval > longest:
        raise UsageError(
            f"{name}.interval={interval}: {rules.min_windows} windows of whole rounds are more than rules.max_steps = "
            f"{rules.max_steps} leaves; give at most {longest}, or allow more steps"
        )


def _check_carried(study: Study) -> None:
    """Raises UsageError for an algorithm or a `shard` that no backend of the study carries."""
    exchanging = [name for name in study.backends if capabilities(name).exchanges]
    over = f"over {', '.join(study.backends)}"
    for name in study.algorithms:
        if name != SYNC and not any(name in capabilities(backend).algorithms for backend in exchanging):
            carrying = ", ".join(other for other in BACKENDS if name in capabilities(other).algorithms)
            raise UsageError(f"algorithm {name} {over}: none of these carries it; add one of: {carrying}")
    for shard in study.values_of("shard"):
        if shard == NONE:
            continue
        if not any(shard in carried_shards(name, of) for name in exchanging for of in study.frameworks):
            able = [name for name in BACKENDS if shard in carried_shards(name, FRAMEWORKS[0])]
            raise UsageError(
                f"shard={shard} {over} in {', '.join(study.frameworks)}: nothing here carries it; in {FRAMEWORKS[0]} "
                f"these do: {', '.join(able)}"
            )
        if SYNC not in study.algorithms:
            raise UsageError(
                f"shard={shard} with algorithm {', '.join(study.algorithms)}: there every rank has weights of its own; "
                f"add {SYNC} to --set algorithms, or choose shard={NONE}"
            )
        for model in study.own_models.values():
            if model.whole_tensors or (shard == PARAMETERS and model.whole_network):
                raise UsageError(
                    f"shard={shard} with {model.file}: {model.whole_tensors or model.whole_network}; choose another "
                    f"shard, such as shard={NONE}"
                )


def _check_profile(study: Study, shape: Shape) -> None:
    keras = [name for name, model in study.own_models.items() if model.framework == "tensorflow"]
    lacks: dict[str, Any] = {
        "it is a training without a target; run weak-scaling or strong-scaling": study.target,
        f"it runs on device cpu, and the study on {study.device}; give --device cpu": study.device != "cpu",
        "it runs over backend none; add none to --backends": "none" not in study.backends,
        f"it runs on 1 rank, and the study on {', '.join(map(str, shape.ranks))}; set base=1": 1
        not in shape.ranks,
        f"{keras and keras[0]} assigns variables inside its Keras network, whose order a stamped graph does not "
        "keep": keras,
    }
    problem = next((problem for problem, lacking in lacks.items() if lacking), None)
    if "profile" in study.controls and problem:
        raise UsageError(f"control profile of {study.name}: {problem}, or leave profile out of controls")


def _check_target(study: Study) -> None:
    """Raises UsageError for backends that cannot train to the study's target."""
    for backend in study.backends:
        if not capabilities(backend).servers:
            continue
        if study.rules.checkpoint_every:
            raise UsageError(
                f"rules.checkpoint_every does not work with backend {backend}, whose servers hold "
                f"part of the training's state; drop {backend} or the option"
            )
        if study.target is None:
            continue
        rules = study.target
        problems: dict[str, Any] = {
            f"{backend}.backup_workers in time-to-solution: gradients of some ranks are dropped, and samples to the "
            "target would count them; leave it out,": study.backend_options.get(backend, {}).get(
                "backup_workers"
            ),
            f"target.warm_up_samples over {backend}: its servers make the updates, with one learning rate for good; "
            "leave it out,": rules.warm_up_samples,
            f"target.decay_samples over {backend}: its servers make the updates, with one learning rate for good; "
            "leave it out,": rules.decay_samples,
        }
        for name in study.workloads:
            problems[
                f"{name} over {backend}: servers do not have what batch norm keeps, so that nobody can evaluate the "
                "network; choose another workload,"
            ] = study.facts(name).running_statistics
        if problem := next((text for text, there in problems.items() if there), None):
            raise UsageError(f"{problem} or leave out {backend}")
