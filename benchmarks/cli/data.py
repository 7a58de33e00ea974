"""`dlscale data`: makes input data (maps, collisions, handwritten digits) and converts image data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from dlscale.benchmarks.cli import SubVerbs

SHOWN = 10  # skipped samples that are listed; the rest are counted


@click.command("convert")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--to",
    type=click.Choice(["folders", "tfrecord", "lmdb", "list"]),
    required=True,
    help="Format of TARGET.",
)
@click.option(
    "--shards", type=click.IntRange(min=1), help="Number of TFRecord files; default: one per 1251 samples."
)
@click.option(
    "--first-label",
    type=click.IntRange(min=0),
    help="First label in SOURCE's TFRecord files, where they do not state it; default: 1, as in ImageNet.",
)
@click.option("--skip-bad", is_flag=True, help="Skip and count damaged samples instead of stopping.")
@click.option("--overwrite", is_flag=True, help="Replace an existing TARGET that holds images.")
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

    SOURCE may also be CIFAR-10's binary files or Flowers-102 as published; its format is detected. JPEG and PNG files
    are copied byte for byte, and each is decoded once to find damaged ones. With --to list, TARGET *.txt lists
    SOURCE's image files in place; any other TARGET holds the list and the images.

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
        click.echo(f"skipped: {line}")
    if len(converted.skipped) > SHOWN:
        click.echo(f"skipped: {len(converted.skipped) - SHOWN} more")
    click.echo(
        f"{target}: {converted.num_samples} samples from {converted.source_format}, "
        f"{converted.num_bytes / 2**20:.1f} MiB of images, {len(converted.skipped)} bad samples skipped"
    )
    return 0


@click.command("cosmogan")
@click.option("--maps", type=click.IntRange(min=1), required=True, help="Number of maps.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help=".npy file to write.")
@click.option(
    "--size", type=int, default=256, show_default=True, help="Pixels per side, each half an arc minute."
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    show_default=True,
    help="Pixel type in the file.",
)
@click.option("--seed", type=int, help="Seed; the same seed gives the same maps.")
@click.option("--jobs", type=click.IntRange(min=1), help="Threads; default: one per core.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
def cosmogan(
    maps: int, out: Path, size: int, dtype: str, seed: int | None, jobs: int | None, overwrite: bool
) -> int:
    """Generate weak-lensing convergence maps: lognormal fields with a power spectrum from CAMB.

    FILE.npy.json, written next to the file, has the cosmology and the conversion from pixels to convergence.

    \b
    Example: dlscale data cosmogan --maps 10000 --out maps.npy
    """  # noqa: D301
    from dlscale.models.cosmogan.maps import DEFAULT_SEED, generate

    with _counted("maps", maps) as progress:
        generate(
            maps,
            out,
            size=size,
            dtype=dtype,
            seed=DEFAULT_SEED if seed is None else seed,
            num_threads=jobs or len(os.sched_getaffinity(0)),
            overwrite=overwrite,
            progress=progress,
        )
    click.echo(f"{out}: {maps} maps of {size}x{size} pixels, {out.stat().st_size / 2**20:.1f} MiB")
    return 0


@click.command("digits")
@click.option("--out", type=click.Path(path_type=Path), required=True, help=".bin file to write.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
def digits(out: Path, overwrite: bool) -> int:
    """Write scikit-learn's handwritten digits as images of ten classes, in CIFAR-10's format.

    Real images for first runs of ResNet-50 and Inception v3: 1797 of 32x32 pixels, enlarged from 8x8.

    \b
    Example: dlscale data digits --out digits.bin
             dlscale run time-to-solution --workloads resnet50 --preset tiny --data digits.bin --target top1=0.6
    """  # noqa: D301
    from dlscale.models.images.digits import write_digits

    num_digits = write_digits(out, overwrite=overwrite)
    click.echo(f"{out}: {num_digits} digits of 32x32 pixels, {out.stat().st_size / 2**20:.1f} MiB")
    return 0


@click.command("hep-cnn")
@click.option(
    "--events", type=click.IntRange(min=2), required=True, help="Number of events; half are signal."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="HDF5 file to write.")
@click.option(
    "--size", type=click.Choice(["64", "224"]), default="64", show_default=True, help="Pixels per side."
)
@click.option("--seed", type=int, help="Seed; the same seed gives the same events.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes; default: one per core.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
def hep_cnn(events: int, out: Path, size: str, seed: int | None, jobs: int | None, overwrite: bool) -> int:
    """Simulate collisions with PYTHIA 8: gluino pairs as signal, QCD jets as background.

    \b
    Example: dlscale data hep-cnn --events 100000 --size 224 --out events_224.h5
    """  # noqa: D301
    from dlscale.models.hep_cnn.events import DEFAULT_SEED, generate

    with _counted("events", events) as progress:
        generate(
            events,
            out,
            image_size=int(size),
            seed=DEFAULT_SEED if seed is None else seed,
            num_processes=jobs or len(os.sched_getaffinity(0)),
            overwrite=overwrite,
            progress=progress,
        )
    click.echo(f"{out}: {events} events of {size}x{size} pixels, {out.stat().st_size / 2**20:.1f} MiB")
    return 0


@click.group(cls=SubVerbs)
def data() -> None:
    """Generate or convert input data.

    \b
    Examples:
      dlscale data hep-cnn --events 100000 --out events.h5
      dlscale data cosmogan --maps 10000 --out maps.npy
      dlscale data digits --out digits.bin
      dlscale data convert ImageNet/train imagenet.lmdb --to lmdb
    """  # noqa: D301


for command in (hep_cnn, cosmogan, digits, convert):
    data.add_command(command)


@contextmanager
def _counted(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows how many are made: tell it of each number more."""
    from rich.progress import Progress

    with Progress() as display:
        task = display.add_task(what, total=total)
        yield lambda number: display.advance(task, number)
