"""`dlscale check timeline`: what Horovod does with every tensor, in a trace of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import click

from dlscale.benchmarks import environment, launchers
from dlscale.benchmarks.campaign import ALLOCATOR, QUIET
from dlscale.benchmarks.commands.options import BackendOptions
from dlscale.benchmarks.record import Setting
from dlscale.benchmarks.system import default_environment, find_installation, load_system
from dlscale.benchmarks.timeline import Request
from dlscale.collectives import check_options
from dlscale.models import load_workload
from dlscale.models.errors import UsageError

LIMIT_SECONDS = 600


@click.command()
@click.option(
    "--workload", default="hep_cnn", show_default=True, help="What is trained, on resident tensors."
)
@click.option("--framework", default="torch", show_default=True, help="torch or tensorflow.")
@click.option("--preset", help="paper, small or tiny; default: the workload's.")
@click.option("--ranks", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--backend-options", type=BackendOptions(), help="For example horovod.cycle_time_ms=0.5.")
@click.option("--environment", "name", help="One of this machine's environments; default: the running one.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("horovod-timeline.json"),
    show_default=True,
)
def timeline(
    workload: str,
    framework: str,
    preset: str | None,
    ranks: int,
    steps: int,
    backend_options: dict[str, dict[str, Setting]] | None,
    name: str | None,
    out: Path,
) -> int:
    """Train a few steps over Horovod with its timeline on; chrome://tracing and Perfetto show the file.

    The timeline takes time of its own, so nothing here is measured, and no study can switch it on.

    \b
    Example: dlscale check timeline --workload resnet50 --ranks 2 --out trace.json
    """  # noqa: D301
    machine = load_system("local")
    installation = find_installation(machine, name or default_environment(machine))
    found = environment.probe(installation, [("horovod", framework)])
    flavour = environment.check_mpi(installation, found)
    if found.problems:
        raise UsageError(next(iter(found.problems.values())))
    options = {**(backend_options or {}).get("horovod", {}), "timeline": str(out.absolute())}
    check_options("horovod", options)
    if not out.absolute().parent.is_dir():
        raise UsageError(f"no folder {out.parent} for the timeline; make it, or give another --out")
    request = Request(
        workload=workload,
        framework=framework,
        preset=load_workload(workload).preset(preset).name,
        num_steps=steps,
        options=options,
    )
    command = launchers.mpiexec(
        flavour,
        installation.mpiexec,
        num_ranks=ranks,
        oversubscribed=ranks > machine.num_cores(),
        variables={**ALLOCATOR, **QUIET, "OMP_NUM_THREADS": "1", **installation.variables},
        program=[str(installation.python), "-m", "dlscale.benchmarks.timeline", request.model_dump_json()],
    )
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS, env=dict(os.environ)
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{steps} steps were not done after {LIMIT_SECONDS // 60} minutes; give fewer --steps or another --preset"
        ) from None
    if done.returncode or not out.exists():
        said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["it said nothing"]
        raise UsageError(f"the training could not be traced: {environment.redact(said[-1])}")
    click.echo(f"{steps} steps of {workload} on {ranks} ranks: {out} ({out.stat().st_size / 1e6:.1f} MB)")
    return 0
