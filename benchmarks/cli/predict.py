"""`dlscale predict`: the curve for nodes that are not here, from a node's profile and the system's network."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import click

from dlscale.analysis.predict.exchange import Algorithm
from dlscale.analysis.predict.network import Machine, completed
from dlscale.analysis.predict.prediction import predict_curve
from dlscale.analysis.predict.profile import Profile, checked
from dlscale.analysis.predict.scenario import Scenario, doubled_sizes, scenario_of
from dlscale.base import redaction
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.cli.options import choose_study, json_option
from dlscale.benchmarks.cli.request import Request, StudyCommand, field_options
from dlscale.benchmarks.cli.show_predictions import show_curves
from dlscale.benchmarks.cli.trainings import (
    calibrated,
    calibrating_folder,
    measured_profiles,
    public_profiles,
    servers_of,
    stated_profile,
)
from dlscale.benchmarks.records.prediction import PREDICTIONS_FOLDER, PredictionRecord
from dlscale.benchmarks.study.settings import nested
from dlscale.benchmarks.systems.system import System, load_system
from dlscale.collectives import capabilities
from dlscale.collectives.sharding import NONE

Kind = Literal["weak-scaling", "strong-scaling"]
ALGORITHMS = [name for name in get_args(Algorithm) if name != "parameter_servers"]


@click.command(cls=StudyCommand)
@click.argument("kind", type=click.Choice(get_args(Kind)))
@field_options(
    *("system", "workloads", "backends", "nodes", "results"),
    others=("frameworks", "preset", "batch", "shard", "backend_options", "ranks_per_node", "servers"),
)
@click.option(
    "--algorithm",
    type=click.Choice(ALGORITHMS),
    help="Algorithm of the exchange between nodes; default: the backend's own.",
)
@click.option(
    "--from",
    "profiled",
    metavar="STUDY",
    help="Study whose control profile was measured; default: what is public of such nodes.",
)
@click.option(
    "--profile",
    "stated",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file with a profile of yours, a source for each number (docs/prediction.md).",
)
@click.option(
    "--calibrate",
    type=Words(),
    metavar="STUDY,...",
    help="Studies and collectives runs whose exchanges between nodes calibrate latency and rates; default: the "
    "system's file as it is.",
)
@click.option("--force", is_flag=True, help="Extrapolate beyond the calibrated range (marked in the figure).")
@json_option
def predict(
    kind: Kind,
    request: Request,
    algorithm: Algorithm | None,
    profiled: str | None,
    stated: Path | None,
    calibrate: list[str] | None,
    force: bool,
    as_json: bool,
) -> int:
    """Predict the curve of KIND, weak-scaling or strong-scaling, on a system that is not here.

    A node's profile (public, yours, or measured by a study) and the network of the system's file go through a model of
    each backend; the band has noise of steps, placement, and what sources do not agree on (docs/prediction.md). Table,
    CSV, figure and records, which `dlscale report --predicted` shows beside a study, are marked as simulated;
    --json prints rows and writes no files. Defaults: hep_cnn over the ring, on nodes doubled up to the whole machine.

    \b
    Examples:
      dlscale predict weak-scaling --system cori --workloads hep_cnn --backends ring,grpc_ps --nodes 1:8192:x2
      dlscale predict strong-scaling --system cori --backends horovod --nodes 1:64:x2
      dlscale predict weak-scaling --system cori --backends ring --algorithm two_level_ring --json
      dlscale predict weak-scaling --system mine.toml --from weak-scaling --calibrate weak-scaling
    """  # noqa: D301
    fields = nested(request.fields)
    for backend in fields.setdefault("backends", ["ring"]):
        capabilities(backend)
    if stated and profiled:
        raise UsageError("--from and --profile are mutually exclusive")
    machine, results = completed(load_system(request.system)), request.results
    folder = choose_study(results, profiled) if profiled else None
    folders = [calibrating_folder(results, name) for name in calibrate or ()]
    curves = []
    for profile in _profiles(fields, machine.system, stated or folder):
        scenarios = _scenarios(kind, fields, machine, checked(profile), algorithm)
        sizes = fields.get("nodes") or doubled_sizes(scenarios)
        if folders:
            scenarios = calibrated(scenarios, sizes, machine.system, folders, profiled=folder, force=force)
        curves.append([predict_curve(scenario, sizes) for scenario in scenarios])

    def stem_of(first: PredictionRecord) -> Path:
        name = f"{first.workload}-{first.preset}-{first.framework}-{kind}"
        return results / first.system / PREDICTIONS_FOLDER / name

    command = redaction.redact(shlex.join(["dlscale", *sys.argv[1:]]))
    show_curves(curves, stem_of=stem_of, command=command, as_json=as_json)
    return 0


def _profiles(fields: dict[str, Any], machine: System, profiled: Path | None) -> Iterator[Profile]:
    """A profile of each workload and framework that is asked for, `profiled` by a file or in a study's folder.

    Raises UsageError where there is none.
    """
    workloads, frameworks, preset = (fields.get(name) for name in ("workloads", "frameworks", "preset"))
    if profiled and not profiled.is_dir():
        presets = [preset] if preset else None
        yield stated_profile(profiled, machine, workloads=workloads, frameworks=frameworks, presets=presets)
        return
    for workload in workloads or ["hep_cnn"]:
        if profiled:
            yield from measured_profiles(profiled, workload, frameworks=frameworks, preset=preset)
            continue
        shared = fields.get("ranks_per_node")
        yield from public_profiles(
            machine, workload, frameworks=frameworks, preset=preset, ranks_per_node=shared
        )


def _scenarios(
    kind: Kind, fields: dict[str, Any], machine: Machine, profile: Profile, algorithm: Algorithm | None
) -> list[Scenario]:
    """A scenario per backend and what is sharded. Raises UsageError for what cannot be predicted."""
    backends, options = fields["backends"], fields.get("backend_options", {})
    for backend, own in options.items():
        if backend not in backends:
            raise UsageError(
                f"--set {backend}.{next(iter(own))}: {backend} is not among --backends {','.join(backends)}"
            )
        for name, value in own.items():
            _single(value, f"{backend}.{name}")
    shards = fields.get("shard", NONE)
    return [
        scenario_of(
            machine,
            profile,
            backend,
            scaling_mode="weak" if kind == "weak-scaling" else "strong",
            backend_options=options.get(backend, {}),
            num_servers=servers_of(_single(fields.get("servers", "1"), "servers")),
            ranks_per_node=fields.get("ranks_per_node"),
            batch=_single(fields.get("batch"), "batch"),
            algorithm=algorithm,
            shard=shard,
        )
        for backend in backends
        for shard in (shards if isinstance(shards, list) else [shards])
    ]


def _single(value: Any, name: str) -> Any:
    """The value, or the only one of a list. Raises UsageError for several."""
    if not isinstance(value, list):
        return value
    if len(value) > 1:
        raise UsageError(f"{name} has several values; a prediction takes one")
    return value[0]
