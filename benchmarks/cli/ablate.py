"""`dlscale ablate`: a study whose cases are the steps of a ladder, from a plain start to all settings on."""

from __future__ import annotations

from typing import Any

import click

from dlscale.base.definitions import one_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import start_options, study_options, system_of
from dlscale.benchmarks.cli.run import plan_and_run
from dlscale.benchmarks.study.axes import read_ladder
from dlscale.benchmarks.study.study import load_study
from dlscale.collectives import NAMES, capabilities

EXAMPLE = "dlscale ablate ring --steps 'plain > precision=bf16 > batch=8'"


@click.command()
@click.argument("backend")
@click.option(
    "--steps",
    help="Steps between '>', each with the settings that it adds: options of the backend, batch, precision, compiled, "
    "memory_format, environment variables; plain adds nothing.",
)
@study_options
@start_options
def ablate(
    backend: str,
    steps: str | None,
    dry_run: bool,
    in_allocation: bool,
    wait_quiet: str | None,
    **options: Any,
) -> int:
    """Measure what each step of a ladder gains: settings of BACKEND are turned on one step after the other.

    All steps have the same number of launches and the same windows, interleaved in blocks, so each step is compared
    with the one before it by pairs of launches that ran close in time. Gains depend on the order of the steps. BACKEND
    may be a study's .toml file with a `ladder` (docs/sweeps.md). It is a study as any other: the same command resumes
    it, and `dlscale report` prints it again.

    \b
    Examples:
      dlscale ablate gloo --ranks 2 --steps 'bucket_cap_mb=1 > bucket_cap_mb=25 > compiled'
      dlscale ablate ring --steps 'plain > precision=bf16 > MPICH_ASYNC_PROGRESS=1'
      dlscale ablate horovod --steps 'fusion_threshold_mib=0 > fusion_threshold_mib=64,cycle_time_ms=5 > compiled'
      dlscale ablate my-ladder.toml --dry-run
    """  # noqa: D301
    if options["backends"]:
        raise UsageError("--backends with ablate, whose first argument is the backend; leave it out")
    in_file = backend.endswith(".toml")
    fields = _ladder_of_file(backend, steps) if in_file else _ladder(backend, steps)
    if options["controls"] is not None:
        fields["controls"] = options["controls"]
    if options["ranks"] is None and options["nodes"] is None and not in_file:
        system = system_of(options)
        if system.scheduler == "none":
            options["ranks"] = [system.num_cores()]
    if options["ranks"] == [1]:
        raise UsageError(f"a ladder of {backend} on 1 rank, which exchanges nothing; give --ranks 2 or more")
    # Steps are compared with each other: no run on 1 rank is needed.
    options["base"] = options["base"] or "smallest"
    return plan_and_run(
        backend if in_file else "weak-scaling",
        options,
        start=not dry_run,
        commands=True,
        in_allocation=in_allocation,
        wait_quiet=wait_quiet,
        fields=fields,
    )


def _ladder(backend: str, steps: str | None) -> dict[str, Any]:
    """The fields of a study that is the ladder of a backend. Raises UsageError."""
    exchanging = [name for name in NAMES if capabilities(name).exchanges]
    one_of("backend", backend, exchanging)
    return {
        "name": f"ablation-{backend}",
        "title": "Ablation",
        "backends": [backend],
        "controls": [],
        "reference_launches": 0,
        "ladder": _read(steps),
    }


def _ladder_of_file(path: str, steps: str | None) -> dict[str, Any]:
    """The fields that --steps changes in a study's file, which without them has a ladder. Raises UsageError."""
    if steps is None and not load_study(path).ladder:
        raise UsageError(
            f"{path} has no ladder; add one, e.g. ladder = ['plain', 'compiled'], or give --steps"
        )
    return {} if steps is None else {"ladder": _read(steps)}


def _read(steps: str | None) -> list[str]:
    if steps is None:
        raise UsageError(f"a ladder needs --steps; e.g. {EXAMPLE}")
    try:
        return read_ladder(steps)
    except ValueError as error:
        raise UsageError(f"--steps: {error}") from None
