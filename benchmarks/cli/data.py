"""`dlscale data`: whether a workload reads some data, and what it finds there."""

from __future__ import annotations

from pathlib import Path

import click

from dlscale.models import load_workload


@click.command()
@click.argument("workload")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--preset", help="Size of the workload; default: its own.")
def data(workload: str, path: Path | None, preset: str | None) -> int:
    """Check input data: whether WORKLOAD reads PATH, and how many samples are there.

    HDF5 for hep_cnn, .npy for cosmogan, class folders, TFRecord, LMDB, CIFAR-10 or Flowers-102 for resnet50 and
    inception_v3, any file for gpt. Without PATH, the data included in dlscale. Studies take it as --data PATH.

    \b
    Examples:
      dlscale data resnet50 ImageNet/train
      dlscale data hep_cnn events.h5 --preset paper
    """  # noqa: D301
    facts = load_workload(workload)
    chosen = facts.preset(preset)
    source = facts.input(chosen.name, path)
    shape = " x ".join(map(str, chosen.input_shape))
    found = (
        f"{source.path}: {facts.num_samples(source, chosen):,} samples" if source.path else "random tensors"
    )
    click.echo(f"{found} for {facts.name} ({chosen.name}), of shape {shape}")
    return 0
