"""`dlscale data convert`: from one format of image data to another."""

from __future__ import annotations

from pathlib import Path

import click

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
