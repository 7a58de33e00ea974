"""`dlscale data`: makes input data (convergence maps, simulated collisions), and converts image data."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dlscale.base.errors import UsageError

SHOWN = 10  # of the samples that were left out; the rest is counted


@click.command("convert")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--to",
    type=click.Choice(["folders", "tfrecord", "lmdb", "list"]),
    required=True,
    help="Format of TARGET.",
)
@click.option("--shards", type=click.IntRange(min=1), help="TFRecord files; default: one per 1251 samples.")
@click.option(
    "--first-label",
    type=click.IntRange(min=0),
    help="What labels of SOURCE's TFRecord files count from, where these do not say so; default: 1, as in ImageNet's.",
)
@click.option(
    "--skip-bad", is_flag=True, help="Leave damaged samples out and count them, instead of stopping."
)
@click.option("--overwrite", is_flag=True, help="Replace TARGET if it holds images.")
def convert(
    source: Path,
    target: Path,
    to: str,
    *,
    shards: int | None,
    first_label: int | None,
    skip_bad: bool,
    overwrite: bool,
) -> int:
    """Repackage labelled images: class folders, TFRecord files, LMDB, lists of `path label`.

    SOURCE may also be CIFAR-10's binary files or Flowers-102 as published; its format is found by itself. JPEG and
    PNG files keep every byte, and every one is unpacked to see if it is whole. With --to list, a TARGET *.txt lists
    SOURCE's image files where they are, any other TARGET holds the list and the images.

    \b
    Examples:
      dlscale data convert imagenet/train imagenet_records --to tfrecord --shards 1024
      dlscale data convert imagenet_records imagenet_lmdb --to lmdb --skip-bad
      dlscale data convert flowers/tstid flowers.txt --to list
    """  # noqa: D301
    from rich.progress import Progress

    from dlscale.models.images.convert import convert as convert_images

    with Progress() as display:
        task = display.add_task("samples", total=None)
        converted = convert_images(
            source,
            target,
            to,
            num_shards=shards,
            first_label=first_label,
            skip_bad=skip_bad,
            overwrite=overwrite,
            progress=lambda done, total: display.update(task, completed=done, total=total),
        )
    for line in converted.skipped[:SHOWN]:
        click.echo(f"left out: {line}")
    if len(converted.skipped) > SHOWN:
        click.echo(f"left out: {len(converted.skipped) - SHOWN} more")
    click.echo(
        f"{target}: {converted.num_samples} samples from {converted.source_format}, "
        f"{converted.num_bytes / 2**20:.1f} MiB of images, {len(converted.skipped)} bad ones left out"
    )
    return 0


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
    from dlscale.models.hep_cnn.physics import default_path

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


@click.group()
def data() -> None:
    """Make input data, or repack images.

    \b
    Examples:
      dlscale data hep-cnn --events 100000 --out events.h5
      dlscale data cosmogan --maps 10000 --out maps.npy
      dlscale data convert ImageNet/train imagenet.lmdb --to lmdb
    """  # noqa: D301


for command in (hep_cnn, cosmogan, convert):
    data.add_command(command)
