"""`dlscale data`: makes input data."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.group()
def data() -> None:
    """Make input data.

    \b
    Example: dlscale data hep-cnn --events 100000 --out events.h5
    """  # noqa: D301


@data.command("hep-cnn")
@click.option("--events", type=click.IntRange(min=2), required=True, help="Events, half of them signal.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="HDF5 file to write.")
@click.option(
    "--size", type=click.Choice(["64", "224"]), default="64", show_default=True, help="Pixels a side."
)
@click.option("--seed", type=int, help="The same seed gives the same events.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes; default: the cores.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
def hep_cnn(events: int, out: Path, size: str, seed: int | None, jobs: int | None, overwrite: bool) -> int:
    """Simulate collisions with PYTHIA 8: gluino pairs as signal, QCD jets as background.

    \b
    Example: dlscale data hep-cnn --events 100000 --size 224 --out events_224.h5
    """  # noqa: D301
    from rich.progress import Progress

    from dlscale.models.hep_cnn.events import DEFAULT_SEED, generate

    with Progress() as display:
        task = display.add_task("events", total=events)
        generate(
            events,
            out,
            image_size=int(size),
            seed=DEFAULT_SEED if seed is None else seed,
            num_processes=jobs or len(os.sched_getaffinity(0)),
            overwrite=overwrite,
            progress=lambda number: display.advance(task, number),
        )
    click.echo(f"{out}: {events} events of {size}x{size} pixels, {out.stat().st_size / 2**20:.1f} MiB")
    return 0
