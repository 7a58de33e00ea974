"""`dlscale data`: makes input data, and repacks it."""

from __future__ import annotations

import click

from dlscale.benchmarks.commands.data_convert import convert
from dlscale.benchmarks.commands.data_cosmogan import cosmogan
from dlscale.benchmarks.commands.data_hep_cnn import hep_cnn


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
