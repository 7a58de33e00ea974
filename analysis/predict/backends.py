"""How each backend cuts a step's gradients into buckets, when it exchanges them, and by which algorithm.

These are the rules of `collectives`, told again for a machine that is not here, as docs/prediction.md lists them: of
training/_torch_buckets.py and _tensorflow_buckets.py, ring/src/network/tuning.cpp, servers/links.py, and of MPICH.
In torch, several objectives (a GAN's) have buckets of their own over ring, mpi and gloo, where DistributedDataParallel
waits for those of one before the forward pass of the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple

from dlscale.analysis.predict.exchange import Algorithm
from dlscale.analysis.predict.profile import Gradient, Profile
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.prediction import HARMLESS
from dlscale.collectives import capabilities, check_options
from dlscale.collectives.capabilities import Exchange

Overlap = Literal["thread", "none", "next_step"]
# Of several objectives: buckets have gradients of any, each of one alone, or the next one even waits for them.
Objectives = Literal["together", "apart", "awaited"]

MIB = 1 << 20
FIRST_BUCKET_BYTES, BUCKET_BYTES = MIB, 25 * MIB
RING_RECURSIVE_DOUBLING_BYTES, RING_HALVING_DOUBLING_BYTES = 16 << 10, 512 << 10
MPICH_RECURSIVE_DOUBLING_BYTES = 2 << 10
HOROVOD_CYCLE_MS, HOROVOD_FUSION_MIB = 1.0, 128.0
# Horovod's ranks agree on what is ready by two allreduces of bits, one per tensor, before each exchange.
HOROVOD_BITS_BYTES = 8
UNLIMITED = 1 << 62
WHOLE = (UNLIMITED, UNLIMITED)


class Bucket(NamedTuple):
    """Gradients that travel together. `ready_seconds` count from the start of an undisturbed step."""

    num_bytes: int  # on the wire
    ready_seconds: float
    num_tensors: int = 1
    objective: int = 0  # of its gradients, or of the first of them


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRule:
    """How a backend with its options exchanges gradients; `limits` are the bytes of the first bucket and the others."""

    backend: str
    overlap: Overlap
    limits: tuple[int, int] = (FIRST_BUCKET_BYTES, BUCKET_BYTES)
    cycle_seconds: float = 0.0  # Horovod looks for ready gradients so often; 0: they are sent as they come
    bytes_per_element: int = 4  # on the wire, of float32
    whole_tensors: bool = False  # a tensor lies on one server, and is not cut into equal pieces
    asynchronous: bool = False
    objectives: Objectives = "together"
    fixed_algorithm: Algorithm | None = None  # None: by the size of a bucket

    @property
    def exchanges(self) -> bool:
        """Whether gradients travel at all."""
        return capabilities(self.backend).exchanges

    @property
    def serves(self) -> bool:
        """Whether parameter servers hold the weights."""
        return self.fixed_algorithm == "parameter_servers"

    def num_equal_servers(self, profile: Profile, num_servers: int) -> int:
        """How many servers with equal shares are as slow as the fullest of `num_servers`.

        Whole tensors go, in the order of the network, to the server with the fewest bytes so far.
        """
        if not self.whole_tensors or num_servers == 0:
            return num_servers
        loads = [0] * min(num_servers, len(profile.gradients))
        for gradient in reversed(profile.gradients):
            loads[loads.index(min(loads))] += gradient.num_bytes
        return max(1, round(sum(loads) / max(loads)))

    def algorithm(self, num_bytes: int) -> Algorithm:
        """What carries a bucket of that size."""
        if self.fixed_algorithm:
            return self.fixed_algorithm
        if capabilities(self.backend).exchange == "ring":
            if num_bytes <= RING_RECURSIVE_DOUBLING_BYTES:
                return "recursive_doubling"
            return "halving_doubling" if num_bytes <= RING_HALVING_DOUBLING_BYTES else "ring"
        return "recursive_doubling" if num_bytes <= MPICH_RECURSIVE_DOUBLING_BYTES else "halving_doubling"

    def buckets(
        self, profile: Profile, *, seconds_of: Callable[[Bucket], float] = lambda _: 0.0
    ) -> tuple[Bucket, ...]:
        """The buckets of a step, in the order in which they travel; that of one lasts `seconds_of` it."""
        if not self.exchanges:
            return ()
        if self.cycle_seconds:
            return tuple(self._fused(profile, seconds_of))
        objectives = groupby(profile.gradients, lambda it: self.objectives != "together" and it.objective)
        return tuple(bucket for _, own in objectives for bucket in self._filled(list(own)))

    def _filled(self, gradients: Sequence[Gradient]) -> Iterator[Bucket]:
        """Their buckets, each full when it has reached its limit."""
        own: list[Gradient] = []
        limit = self.limits[0]
        for gradient in gradients:
            own.append(gradient)
            if sum(it.num_bytes for it in own) >= limit:
                yield self._bucket(own)
                own, limit = [], self.limits[1]
        if own:
            yield self._bucket(own)

    def _bucket(self, gradients: Sequence[Gradient]) -> Bucket:
        return Bucket(
            num_bytes=sum(it.num_bytes * self.bytes_per_element // 4 for it in gradients),
            ready_seconds=max(it.ready_seconds for it in gradients),
            num_tensors=len(gradients),
            objective=gradients[0].objective,
        )

    def _fused(self, profile: Profile, seconds_of: Callable[[Bucket], float]) -> Iterator[Bucket]:
        """What is ready when a cycle begins, up to the threshold, which the last gradient may exceed."""
        cycle, free = self.cycle_seconds, 0.0
        ticks = [math.ceil(gradient.ready_seconds / cycle) * cycle for gradient in profile.gradients]
        first = 0
        while first < len(ticks):
            begin, last, filled = max(ticks[first], free), first, 0
            while last < len(ticks) and ticks[last] <= begin and (filled < self.limits[0] or last == first):
                filled += profile.gradients[last].num_bytes
                last += 1
            bucket = self._bucket(profile.gradients[first:last])
            yield bucket
            first, free = last, begin + seconds_of(bucket)


def rule_of(
    backend: str, options: Mapping[str, Any], *, framework: str, num_servers: int, spare_core: bool
) -> ExchangeRule:
    """The rule of a backend with its options. Raises UsageError for options and backends that are not modelled."""
    row = capabilities(backend)
    if framework not in row.frameworks:
        raise UsageError(
            f"backend {backend} does not train in {framework}, whose profile this is; it trains in: "
            f"{', '.join(row.frameworks)}"
        )
    check_options(backend, options)
    if row.between_gpus:
        raise UsageError(
            f"backend {backend} cannot be predicted: system files do not state the links between a node's GPUs; choose "
            "another of --backends"
        )
    left = {name: value for name, value in options.items() if name not in HARMLESS}
    rule: ExchangeRule = _RULES[row.exchange](
        left, backend=backend, framework=framework, num_servers=num_servers, spare_core=spare_core
    )
    if left:
        name, value = next(iter(left.items()))
        raise UsageError(f"predictions do not model {backend}.{name}={value}; leave it out")
    return rule


def _over_collective(
    left: dict[str, Any], *, backend: str, framework: str, spare_core: bool, **_: Any
) -> ExchangeRule:
    teams = int(left.pop("teams", -1))
    if teams > 1:
        raise UsageError(f"predictions do not model {backend}.teams={teams}; give 0 or 1, or leave it out")
    threads = spare_core if teams < 0 else teams > 0
    compressed = left.pop("compression", "none")
    overlap: Overlap = "thread" if threads else "none"
    if left.pop("pipelined", False):
        overlap = "next_step"
    if compressed not in ("none", "fp16", "bf16"):
        raise UsageError(
            f"predictions do not model {backend}.compression={compressed}; choose none, fp16 or bf16"
        )
    return ExchangeRule(
        backend=backend,
        overlap=overlap,
        limits=WHOLE if framework == "tensorflow" and not threads else (FIRST_BUCKET_BYTES, BUCKET_BYTES),
        bytes_per_element=4 if compressed == "none" else 2,
        objectives="apart" if framework == "torch" else "together",
    )


def _ddp(left: dict[str, Any], *, backend: str, **_: Any) -> ExchangeRule:
    cap = int(left.pop("bucket_cap_mb", 25)) * MIB
    # A size that is given holds for the first bucket too.
    limits = (FIRST_BUCKET_BYTES if cap == BUCKET_BYTES else cap, cap)
    return ExchangeRule(
        backend=backend, overlap="thread", limits=limits, objectives="awaited", fixed_algorithm="ring"
    )


def _horovod(left: dict[str, Any], *, backend: str, **_: Any) -> ExchangeRule:
    operations = left.pop("operations", "mpi")
    if operations == "nccl":
        raise UsageError(f"predictions do not model {backend}.operations=nccl; choose mpi or ccl")
    cycle = float(left.pop("cycle_time_ms", -1.0))
    fusion = float(left.pop("fusion_threshold_mib", -1.0))
    threshold = max(1, int((fusion if fusion >= 0 else HOROVOD_FUSION_MIB) * MIB))
    return ExchangeRule(
        backend=backend,
        overlap="thread",
        limits=(threshold, threshold),
        cycle_seconds=(cycle if cycle >= 0 else HOROVOD_CYCLE_MS) / 1e3,
    )


def _over_grpc(left: dict[str, Any], *, backend: str, framework: str, **_: Any) -> ExchangeRule:
    """TensorFlow's servers get variable by variable, ours all gradients at once."""
    by_variable, asynchronous = framework == "tensorflow", bool(left.pop("asynchronous", False))
    return ExchangeRule(
        backend=backend,
        overlap="thread" if by_variable else "none",
        limits=(1, 1) if by_variable else WHOLE,
        whole_tensors=by_variable,
        asynchronous=asynchronous,
        fixed_algorithm="parameter_servers",
    )


def _at_once(fixed_algorithm: Algorithm) -> Callable[..., ExchangeRule]:
    def rule(left: dict[str, Any], *, backend: str, **_: Any) -> ExchangeRule:  # noqa: ARG001
        return ExchangeRule(backend=backend, overlap="none", limits=WHOLE, fixed_algorithm=fixed_algorithm)

    return rule


_RULES: dict[Exchange, Callable[..., ExchangeRule]] = {
    "none": lambda _, *, backend, **__: ExchangeRule(backend=backend, overlap="none"),
    "buckets": _over_collective,
    "ring": _over_collective,
    "ddp": _ddp,
    "horovod": _horovod,
    "whole": _at_once("ring"),
    "servers": _at_once("parameter_servers"),
    "grpc": _over_grpc,
}
