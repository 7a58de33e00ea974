"""What a study shards: which of its values each backend carries in a framework, and why others are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Setting
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives import capabilities
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.capabilities import carried_shards
from dlscale.collectives.sharding import NONE, PARAMETERS
from dlscale.models.frameworks import FRAMEWORKS

if TYPE_CHECKING:
    from dlscale.benchmarks.study.study import Study


def asked_shards(study: Study) -> list[str]:
    """All values of `shard` that the study names: its own and those of its axis."""
    return list(dict.fromkeys(map(str, [study.shard, *study.axes.get("shard", ())])))


def carried_in(backend: str, frameworks: Iterable[str]) -> frozenset[str]:
    """What a backend carries in any of these frameworks."""
    return frozenset([NONE]).union(*(carried_shards(backend, framework) for framework in frameworks))


def carried_settings(
    variants: Iterable[Mapping[str, Setting]],
    *,
    own: str,
    backend: str,
    algorithm: str,
    frameworks: Iterable[str],
) -> list[Mapping[str, Setting]]:
    """Of the settings of a study's variants those that a backend with an algorithm carries; `own` where they name none.

    Without any exchange nothing can be sharded: there each is that of one without, once.
    """
    if backend not in BACKENDS:
        return list(variants)  # refused where backends are looked at
    carried = carried_in(backend, frameworks) if algorithm == SYNC else frozenset([NONE])
    exchanges = capabilities(backend).exchanges
    kept: list[Mapping[str, Setting]] = []
    for settings in variants:
        if settings.get("shard", own) not in carried:
            if exchanges:
                continue
            settings = {**settings, "shard": NONE}
        if exchanges or settings not in kept:
            kept.append(settings)
    return kept


def check_shards(study: Study, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Warnings for the values of `shard` that some of the (backend, framework) pairs do not carry.

    Raises UsageError for one that none of them carries, and for updates that need whole tensors.
    """
    left_out = _left_out(study, pairs)
    exchanging = [pair for pair in pairs if capabilities(pair[0]).exchanges]
    for shard in asked_shards(study):
        if shard == NONE:
            continue
        if not any(shard in carried_shards(backend, framework) for backend, framework in exchanging):
            raise UsageError(_nobody(shard, pairs, device=study.device))
        others = [name for name in study.algorithms if name != SYNC]
        if len(others) == len(study.algorithms):
            raise UsageError(
                f"shard={shard} with algorithm {', '.join(others)}: there every rank has weights of its own; add "
                f"{SYNC} to --set algorithms, or choose shard={NONE}"
            )
        if others:
            left_out.append(
                f"shard={shard} goes with algorithm {SYNC} alone: no curve of {', '.join(others)}"
            )
        for model in study.own_models.values():
            if model.whole_tensors:
                raise UsageError(
                    f"shard={shard} with {model.file}: {model.whole_tensors}, and a rank has parts of them; choose "
                    f"another optimizer, or shard={NONE}"
                )
            if shard == PARAMETERS and model.whole_network:
                raise UsageError(
                    f"shard={shard} with {model.file}: {model.whole_network}; choose another shard"
                )
    return left_out


def _left_out(study: Study, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """A warning for what each exchanging backend lacks."""
    lacking: dict[tuple[str, str], list[str]] = {}  # (backend, values) -> frameworks
    for backend, framework in pairs:
        known = carried_in(backend, [framework])
        values = ",".join(shard for shard in asked_shards(study) if shard not in known)
        if values and capabilities(backend).exchanges:
            lacking.setdefault((backend, values), []).append(framework)
    return [
        f"backend {backend} has no shard={values} in {', '.join(frameworks)}: left out"
        for (backend, values), frameworks in lacking.items()
    ]


def _nobody(shard: str, pairs: Sequence[tuple[str, str]], *, device: str) -> str:
    """That no pair carries a value, and what to choose."""
    backends = list(dict.fromkeys(backend for backend, _ in pairs))
    frameworks = list(dict.fromkeys(framework for _, framework in pairs))
    there = [name for name in BACKENDS if device in capabilities(name).devices]
    able = [name for name in there if shard in carried_in(name, frameworks)]
    choice = f"--backends from: {', '.join(able)}"
    if not able:
        elsewhere = [name for name in FRAMEWORKS if any(shard in carried_shards(b, name) for b in there)]
        choice = f"--frameworks from: {', '.join(elsewhere)}"
    where = f"over {', '.join(backends)} in {', '.join(frameworks)}"
    return f"shard={shard} {where}: nothing here carries it; choose {choice}"
