"""What a step trains at each number of ranks: ranks per sample, samples per replica and over all.

A replica is the ranks that share samples, `split` of them; without a split it is one rank.

    weak    samples per rank are constant: a replica of 2 ranks has twice those of a rank
    strong  samples over all ranks are constant, and dealt out to the replicas

`split = "auto"` is what a sample needs: in strong scaling the fewest ranks per sample with which samples are dealt out
evenly, ranks / batch beyond the batch; in weak scaling 1. One rank always trains on whole samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import AUTO, split_needed
from dlscale.benchmarks.study.sizes import Shape, Size
from dlscale.benchmarks.study.study import Study
from dlscale.models.workload import Preset, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one step trains."""

    split: int  # ranks per sample
    local_batch: int  # samples per replica
    global_batch: int


def work_of(study: Study, facts: Workload, num_ranks: int) -> Work:
    """The work of a study with one value of everything. Raises UsageError for what cannot be dealt out."""
    preset = facts.preset(study.preset)
    split = _split_of(study, preset, num_ranks)
    _check_rows(facts, preset, split)
    if num_ranks % split:
        raise UsageError(
            f"split {split} does not divide {num_ranks} ranks; choose --split from: {_listed(num_ranks)}; or other "
            "--ranks"
        )
    _check_blocks(facts, preset, split)
    num_replicas = num_ranks // split
    if study.scaling_mode == "strong":
        global_batch = study.batch or preset.global_batch
        if global_batch % num_replicas:
            ranks = (
                f"{num_ranks} ranks" if split == 1 else f"the {num_replicas} replicas of {num_ranks} ranks"
            )
            further = " --split auto;" if split == 1 and preset.largest_split > 1 else ""
            raise UsageError(
                f"strong scaling of {facts.name} ({preset.name}): global batch {global_batch} is not a "
                f"multiple of {ranks}; choose --ranks from: {_listed(global_batch, times=split)};{further} or another "
                "--batch"
            )
        return Work(split=split, local_batch=global_batch // num_replicas, global_batch=global_batch)
    local_batch = split * (study.batch or preset.local_batch)
    return Work(split=split, local_batch=local_batch, global_batch=local_batch * num_replicas)


def _split_of(study: Study, preset: Preset, num_ranks: int) -> int:
    if num_ranks == 1:
        return 1
    if study.split != AUTO:
        return int(study.split)
    if study.scaling_mode == "weak":
        return 1
    return split_needed(num_ranks, study.batch or preset.global_batch)


def _check_rows(facts: Workload, preset: Preset, split: int) -> None:
    if split > 1 and not preset.block_rows:
        raise UsageError(
            f"split {split} of {facts.name}: its network has no form for rows on several ranks; leave --split out, or "
            "choose another workload"
        )


def _check_blocks(facts: Workload, preset: Preset, split: int) -> None:
    """Returns if that many ranks can share a sample. Raises UsageError."""
    if split > preset.largest_split:
        raise UsageError(
            f"split {split} of {facts.name} ({preset.name}): its {preset.input_shape[1]} rows are "
            f"{preset.largest_split} blocks of {preset.block_rows}, and a rank has one or more; give --split "
            f"{preset.largest_split} at most"
        )


def dividing(study: Study, workload: str, shape: Shape) -> tuple[list[Size], list[str]]:
    """The sizes on which a workload is trained, and warnings for usual ones whose part of a global batch cannot be.

    Sizes that a study names stay, and are refused where cells are made. Raises UsageError to split a workload whose
    samples stay whole.
    """
    sizes, facts = list(shape.sizes), study.facts(workload)
    variants = list(chain(*(study.variants(backend) for backend in study.backends)))
    for variant in variants:
        preset = facts.preset(variant.preset)
        _check_rows(facts, preset, max(_split_of(variant, preset, size.num_ranks) for size in sizes))
    if study.scaling_mode != "strong" or study.ranks or study.nodes:
        return sizes, []
    preset = facts.preset(study.preset)
    batches = {variant.batch or preset.global_batch for variant in variants}

    def smallest(size: Size, batch: int) -> int | None:
        """The fewest samples of a replica there; None where none can be made."""
        found = []
        for variant in variants:
            if (variant.batch or preset.global_batch) == batch:
                with suppress(UsageError):
                    found.append(work_of(variant, facts, size.num_ranks).local_batch)
        return min(found, default=None)

    least = {size: [smallest(size, batch) for batch in batches] for size in sizes}
    kept = [size for size in sizes if None not in least[size]]
    warnings = []
    if ranks := [size.num_ranks for size in sizes if size not in kept]:
        texts = " or ".join(map(str, sorted(batches)))
        warnings.append(
            f"{workload} on {', '.join(map(str, ranks))} ranks is left out: they do not divide global batch {texts}"
        )
    while len(kept) > 1:
        try:
            check_small(facts, preset, min(number for number in least[kept[-1]] if number))
        except UsageError as error:
            warnings.append(f"{workload} on {kept.pop().num_ranks} ranks is left out: {error}")
        else:
            break
    return kept, warnings


def check_small(facts: Workload, preset: Preset, local_batch: int) -> None:
    """Raises UsageError now, not in the launch, if the network cannot train on that few samples."""
    if local_batch < preset.local_batch:
        rng = np.random.default_rng(0)
        facts.data().step_inputs(preset, local_batch, rng, gate=True)


def _listed(number: int, *, times: int = 1) -> str:
    return ", ".join(str(times * divisor) for divisor in _divisors(number))


def _divisors(number: int) -> list[int]:
    small: Iterable[int] = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})
