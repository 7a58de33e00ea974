"""`dlscale data hep-cnn`: simulated collisions."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dlscale.models.errors import UsageError


@click.command("hep-cnn")
@click.option(
    "--events",
    type=click.IntRange(min=2),
    required=True,
    help="Events to generate; without --preselected half are signal.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="HDF5 file to write; needed unless --preselected, whose events dlscale check physics finds by itself.",
)
@click.option(
    "--size", type=click.Choice(["64", "224"]), default="64", show_default=True, help="Pixels a side."
)
@click.option("--seed", type=int, help="The same seed gives the same events.")
@click.option(
    "--preselected",
    is_flag=True,
    help="Keep what passes the preselection of the published physics selection; most of it background.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes; default: the cores.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
def hep_cnn(
    events: int,
    out: Path | None,
    size: str,
    seed: int | None,
    preselected: bool,
    jobs: int | None,
    overwrite: bool,
) -> int:
    """Simulate collisions with PYTHIA 8: gluino pairs as signal, QCD jets as background.

    \b
    Example: dlscale data hep-cnn --events 100000 --size 224 --out events_224.h5
             dlscale data hep-cnn --events 130000 --preselected
    """  # noqa: D301
    from rich.progress import Progress

    from dlscale.models.hep_cnn.events import DEFAULT_SEED, generate

    file = out or _cached(preselected=preselected, size=size)
    with Progress() as display:
        task = display.add_task("events", total=events)
        num_kept = generate(
            events,
            file,
            image_size=int(size),
            seed=DEFAULT_SEED if seed is None else seed,
            num_processes=jobs or len(os.sched_getaffinity(0)),
            preselected=preselected,
            overwrite=overwrite,
            progress=lambda number: display.advance(task, number),
        )
    kept = f"{num_kept} of {events} events" if preselected else f"{events} events"
    click.echo(f"{file}: {kept} of {size}x{size} pixels, {file.stat().st_size / 2**20:.1f} MiB")
    return 0


def _cached(*, preselected: bool, size: str) -> Path:
    from dlscale.models.hep_cnn.preselected import default_path

    if not preselected or size != "64":
        raise UsageError("data hep-cnn was given no file to write; name one with --out FILE")
    path = default_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {path.parent}: {error.strerror}; choose a file with --out"
        ) from None
    return path
