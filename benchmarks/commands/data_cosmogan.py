"""`dlscale data cosmogan`: makes convergence maps."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command("cosmogan")
@click.option("--maps", type=click.IntRange(min=1), required=True, help="Number of maps.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help=".npy file to write.")
@click.option(
    "--size", type=int, default=256, show_default=True, help="Pixels a side, each of half an arc minute."
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    show_default=True,
    help="Type of the pixels in the file.",
)
@click.option("--seed", type=int, help="The same seed gives the same maps.")
@click.option("--jobs", type=click.IntRange(min=1), help="Threads; default: the cores.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
def cosmogan(
    maps: int, out: Path, size: int, dtype: str, seed: int | None, jobs: int | None, overwrite: bool
) -> int:
    """Draw weak-lensing convergence maps: lognormal fields with a power spectrum from CAMB.

    Beside the file lies FILE.npy.json with the cosmology, and how pixels become convergence again.

    \b
    Example: dlscale data cosmogan --maps 10000 --out maps.npy
    """  # noqa: D301
    from rich.progress import Progress

    from dlscale.models.cosmogan.maps import DEFAULT_SEED, generate

    with Progress() as display:
        task = display.add_task("maps", total=maps)
        generate(
            maps,
            out,
            size=size,
            dtype=dtype,
            seed=DEFAULT_SEED if seed is None else seed,
            num_threads=jobs or len(os.sched_getaffinity(0)),
            overwrite=overwrite,
            progress=lambda number: display.advance(task, number),
        )
    click.echo(f"{out}: {maps} maps of {size}x{size} pixels, {out.stat().st_size / 2**20:.1f} MiB")
    return 0
