"""`dlscale predict`: the curve for nodes that are not here, from a node's profile and the system's network."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import click

from dlscale.analysis.predict.exchange import Algorithm
from dlscale.analysis.predict.prediction import predict_curve, prediction_records, sensitivity_rows
from dlscale.analysis.predict.profile import Profile
from dlscale.analysis.predict.scenario import Scenario, doubled_sizes
from dlscale.analysis.records import prediction_row
from dlscale.base import redaction
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.cli.options import choose_study, json_option
from dlscale.benchmarks.cli.profiles import calibrated, calibrating_folder, profiles_of, stated_profile
from dlscale.benchmarks.cli.request import Request, StudyCommand, field_options
from dlscale.benchmarks.cli.trainings import Machine, Trainings, machine_of
from dlscale.benchmarks.records.prediction import PREDICTIONS_FOLDER
from dlscale.benchmarks.study.servers import check_servers
from dlscale.benchmarks.study.settings import nested
from dlscale.benchmarks.systems.system import load_system
from dlscale.collectives import capabilities
from dlscale.collectives.sharding import NONE

Kind = Literal["weak-scaling", "strong-scaling"]
ALGORITHMS = tuple(name for name in get_args(Algorithm) if name != "parameter_servers")
FLAGS = (
    "system",
    "workloads",
    "frameworks",
    "preset",
    "backends",
    "nodes",
    "batch",
    "shard",
    "results",
)
OTHERS = ("backend_options", "ranks_per_node", "servers")
LATEST_RUN = "collectives"


class Assumptions(click.ParamType[dict[str, str]]):
    """Facts of a system: fabric.latency=2us,node.memory_bandwidth=200GB/s."""

    name = "facts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        """{key: value}; a word without a value is a one-line error."""
        if isinstance(value, dict):
            return value
        pairs = [word.partition("=") for word in value.split(",")]
        for key, equals, text in pairs:
            if not (key.strip() and equals and text.strip()):
                self.fail(f"{key!r} has no value; write fabric.latency=2us", param, ctx)
        return {key.strip(): text.strip() for key, _, text in pairs}


class Requested(NamedTuple):
    """A scenario per backend of one training, and the numbers of nodes."""

    scenarios: list[Scenario]
    sizes: list[int]


@click.command(cls=StudyCommand)
@click.argument("kind", type=click.Choice(get_args(Kind)))
@field_options(*FLAGS, others=OTHERS)
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
    "--assume",
    "given",
    type=Assumptions(),
    default={},
    metavar="FACT=VALUE,...",
    help="Facts that the system's file does not state: fabric.latency=2us, node.memory_bandwidth=200GB/s; default: as "
    "in rehearsals, from another machine. All are marked.",
)
@click.option(
    "--calibrate",
    type=Words(),
    metavar="STUDY,...",
    help="Studies and collectives runs whose exchanges between nodes calibrate latency and rates; default: the "
    "system's file as it is.",
)
@click.option("--force", is_flag=True, help="Extrapolate beyond the calibrated range (marked in the figure).")
@click.option("--explain", is_flag=True, help="Break down the loss at the largest size; show sensitivities.")
@json_option
def predict(
    kind: Kind,
    request: Request,
    algorithm: Algorithm | None,
    profiled: str | None,
    stated: Path | None,
    given: dict[str, str],
    calibrate: list[str] | None,
    force: bool,
    explain: bool,
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
      dlscale predict strong-scaling --system cori --backends horovod --nodes 1:64:x2 --explain
      dlscale predict weak-scaling --system cori --backends ring --algorithm two_level_ring --json
      dlscale predict weak-scaling --system perlmutter --workloads resnet50 --assume fabric.latency=2us
      dlscale predict weak-scaling --system mine.toml --from weak-scaling --calibrate weak-scaling
    """  # noqa: D301
    fields = nested(request.fields)
    for backend in fields.setdefault("backends", ["ring"]):
        capabilities(backend)
    if stated and profiled:
        raise UsageError("--from and --profile are mutually exclusive")
    machine, results = machine_of(load_system(request.system), given), request.results
    folder = choose_study(results, profiled) if profiled else None
    trainings = list(_trainings(kind, fields, machine, stated or folder, algorithm))
    if calibrate:
        folders = [calibrating_folder(results, name) for name in calibrate]
        trainings = [
            Requested(calibrated(*it, machine.system, folders, profiled=folder, force=force), it.sizes)
            for it in trainings
        ]
    predictions = [
        [predict_curve(scenario, training.sizes, explain=explain) for scenario in training.scenarios]
        for training in trainings
    ]
    if as_json:
        rows = [prediction_row(record) for curves in predictions for record in prediction_records(curves)]
        every = [row for curves in predictions for curve in curves for row in sensitivity_rows(curve)]
        click.echo(json.dumps({"schema": 1, "rows": rows} | ({"sensitivity": every} if explain else {})))
        return 0
    # Here, because rows for programs need neither tables nor figures, which take longer to import.
    from dlscale.benchmarks.cli.predicted import show_curves
    from dlscale.benchmarks.launch.probe import commit

    command = redaction.redact(shlex.join(["dlscale", *sys.argv[1:]]))
    for training, curves in zip(trainings, predictions, strict=True):
        profile, network = training.scenarios[0].profile, training.scenarios[0].network
        name = f"{profile.workload}-{profile.preset}-{profile.framework}-{kind}"
        stem = results / network.name / PREDICTIONS_FOLDER / name
        show_curves(curves, stem, explain=explain, commit=commit(), command=command)
    return 0


def _trainings(
    kind: Kind, fields: dict[str, Any], machine: Machine, profiled: Path | None, algorithm: Algorithm | None
) -> Iterator[Requested]:
    """What is asked for of each workload and framework, `profiled` by a file or in a study's folder.

    Raises UsageError for what cannot be predicted.
    """
    servers = _one(fields.get("servers", ["1"]), "servers")
    try:
        check_servers([servers])
    except ValueError as error:
        raise UsageError(f"--set servers: {error}") from None
    backends, options = fields["backends"], fields.get("backend_options", {})
    shards = _listed(fields.get("shard", NONE))
    for backend, own in options.items():
        if backend not in backends:
            raise UsageError(
                f"--set {backend}.{next(iter(own))}: {backend} is not among --backends {','.join(backends)}"
            )
        for name, value in own.items():
            _one(value, f"{backend}.{name}")
    asked = Trainings(
        mode="weak" if kind == "weak-scaling" else "strong",
        servers=servers,
        ranks_per_node=fields.get("ranks_per_node"),
        batch=_one(fields.get("batch"), "batch"),
        algorithm=algorithm,
        backend_options=options,
    )
    for profile in _profiles(fields, machine, profiled):
        scenarios = [
            asked.scenario(machine, profile, backend, shard=shard) for backend in backends for shard in shards
        ]
        yield Requested(scenarios, fields.get("nodes") or doubled_sizes(scenarios))


def _profiles(fields: dict[str, Any], machine: Machine, profiled: Path | None) -> Iterator[Profile]:
    workloads, frameworks, preset = (fields.get(name) for name in ("workloads", "frameworks", "preset"))
    if profiled and not profiled.is_dir():
        presets = [preset] if preset else None
        yield stated_profile(
            profiled, machine.system, workloads=workloads, frameworks=frameworks, presets=presets
        )
        return
    for workload in workloads or ["hep_cnn"]:
        yield from profiles_of(
            machine.system,
            workload,
            profiled,
            frameworks=frameworks,
            preset=preset,
            ranks_per_node=fields.get("ranks_per_node"),
        )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _one(value: Any, name: str) -> Any:
    """The value, or the only one of a list. Raises UsageError for several."""
    if isinstance(value, list) and len(value) > 1:
        raise UsageError(f"{name} has several values; a prediction takes one")
    return value[0] if isinstance(value, list) else value
