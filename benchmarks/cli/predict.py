"""`dlscale predict`: the curve for nodes that are not here, from a node's profile and the system's network."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import click
import rich_click

from dlscale.analysis.predict.network import completed
from dlscale.analysis.predict.profile import Profile
from dlscale.analysis.predict.public_profiles import profile_of_file
from dlscale.base.errors import UsageError
from dlscale.base.strings import redact
from dlscale.benchmarks.cli.options import Request, Words, choose_study, field_options, json_option
from dlscale.benchmarks.cli.predictions import curves_of, public_profiles, show_curves
from dlscale.benchmarks.launch import probe
from dlscale.benchmarks.records.prediction import PREDICTIONS_FOLDER
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.store import load_records
from dlscale.benchmarks.systems.system import System, load_system
from dlscale.collectives.capabilities import REFERENCE, capabilities
from dlscale.collectives.sharding import NONE
from dlscale.models.frameworks import FRAMEWORKS

Kind = Literal["weak-scaling", "strong-scaling"]
LATEST_RUN = "collectives"


@rich_click.command()
@click.argument("kind", type=click.Choice(get_args(Kind)))
@field_options(
    *("system", "workloads", "backends", "nodes", "results"),
    others=("frameworks", "preset", "batch", "shard", "backend_options", "ranks_per_node", "servers"),
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
    default=[],
    metavar="STUDY,...",
    help="Studies and collectives runs whose exchanges between nodes calibrate latency and rates; default: the "
    "system's file as it is.",
)
@json_option
def predict(
    kind: Kind,
    request: Request,
    profiled: str | None,
    stated: Path | None,
    calibrate: list[str],
    as_json: bool,
) -> int:
    """Predict the curve of KIND, weak-scaling or strong-scaling, on a system that is not here.

    A node's profile (public, yours, or measured by a study) and the network of the system's file go through a model of
    each backend; the band has noise of steps, placement, and what sources do not agree on; what lies beyond the
    calibrated range is marked (docs/prediction.md). Table, CSV, figure and records, which `dlscale report --predicted`
    shows beside a study, are marked as simulated; --json prints rows and writes no files. Defaults: hep_cnn over the
    ring, on nodes doubled up to the whole machine.

    \b
    Examples:
      dlscale predict weak-scaling --system cori --workloads hep_cnn --backends ring,grpc_ps --nodes 1:8192:x2
      dlscale predict strong-scaling --system cori --backends horovod --nodes 1:64:x2
      dlscale predict weak-scaling --system cori --backends ring --json
      dlscale predict weak-scaling --system mine.toml --from weak-scaling --calibrate weak-scaling
    """  # noqa: D301
    fields: dict[str, Any] = {"backends": [REFERENCE], **request.fields}
    backends, shards = fields["backends"], fields.get("shard", NONE)
    for backend in backends:
        capabilities(backend)  # raises UsageError for a name that is none
    options = fields.get("backend_options", {})
    for backend, own in options.items():
        if backend not in backends:
            raise UsageError(
                f"--set {backend}.{next(iter(own))}: {backend} is not among --backends {','.join(backends)}"
            )
    if stated and profiled:
        raise UsageError("--from and --profile are mutually exclusive")
    machine, results = completed(load_system(request.system)), request.results
    measured: list[Record] | None = None
    if profiled:  # launches that stamp a step's gradients
        records, _ = load_records(choose_study(results, profiled))
        measured = [record for record in records if record.case.cell.control == "profile"]
    more: dict[str, Any] = {}
    if folders := [_calibrating(results, name) for name in calibrate]:
        from dlscale.analysis.predict.calibrating import calibrated_scenario  # the fit's libraries take long

        digests = {record.fingerprint.digest for record in measured or ()}
        digest = digests.pop() if len(digests) == 1 else None
        more["calibrated"] = partial(calibrated_scenario, machine.system, folders, fingerprint=digest)
    trainings = [
        curves_of(
            machine,
            profile,
            product(backends, shards if isinstance(shards, list) else [shards]),
            scaling_mode="weak" if kind == "weak-scaling" else "strong",
            nodes=fields.get("nodes"),
            servers=_single(fields.get("servers", "1"), "servers"),
            backend_options=options,
            ranks_per_node=fields.get("ranks_per_node"),
            batch=_single(fields.get("batch"), "batch"),
            **more,
        )
        for profile in _profiles(fields, machine.system, stated, measured)
    ]
    folder = results / machine.system.name / PREDICTIONS_FOLDER
    command = redact(shlex.join(["dlscale", *sys.argv[1:]]))
    show_curves(trainings, folder, command=command, commit=probe.commit(), as_json=as_json)
    return 0


def _calibrating(results: Path, name: str) -> Path:
    """The folder of a study, by path or name, or of a collectives run, by path; `collectives` is the latest run."""
    from dlscale.benchmarks.records.message_sizes import CAMPAIGN_FILE, latest_run  # 0.1 s

    if name == LATEST_RUN:
        return latest_run(results)
    return Path(name) if (Path(name) / CAMPAIGN_FILE).is_file() else choose_study(results, name)


def _profiles(
    fields: dict[str, Any], machine: System, stated: Path | None, measured: Sequence[Record] | None
) -> Iterator[Profile]:
    """A profile of each workload and framework that is asked for: stated by a file, measured, or public.

    Raises UsageError where there is none.
    """
    if stated:
        if given := [name for name in ("workloads", "frameworks", "preset") if name in fields]:
            raise UsageError(f"--profile states what is trained; leave out {', '.join(given)}")
        yield profile_of_file(str(stated), machine, "stated")
        return
    frameworks, preset = fields.get("frameworks"), fields.get("preset")
    for workload in fields.get("workloads") or ["hep_cnn"]:
        if measured is None:
            shared = fields.get("ranks_per_node")
            yield from public_profiles(
                machine, workload, frameworks=frameworks, preset=preset, ranks_per_node=shared
            )
            continue
        from dlscale.analysis.predict.measured import profile_of  # takes longer to import than a stored one

        cells = [record.case.cell for record in measured]
        found = sorted({cell.framework for cell in cells if cell.workload == workload})
        for framework in frameworks or found or FRAMEWORKS[:1]:
            yield profile_of(measured, workload, framework, preset=preset)


def _single(value: Any, name: str) -> Any:
    """The value, or the only one of a list. Raises UsageError for several."""
    if not isinstance(value, list):
        return value
    if len(value) > 1:
        raise UsageError(f"{name} has several values; a prediction takes one")
    return value[0]
