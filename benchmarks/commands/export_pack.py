"""`dlscale export pack` and `dlscale export unpack`."""

from __future__ import annotations

from pathlib import Path

import click

from dlscale.benchmarks.commands.options import results_option
from dlscale.benchmarks.commands.studies import choose_study
from dlscale.benchmarks.packed import PACK_FILE
from dlscale.benchmarks.packing import pack as pack_records
from dlscale.benchmarks.packing import unpack as unpack_records
from dlscale.benchmarks.store import Store


@click.command()
@click.argument("study", required=False)
@results_option
def pack(study: str | None, results: Path) -> int:
    """Put the records of STUDY (default: the latest) into one Parquet file, which every verb reads.

    Their files go away once it was read back and compared. Records that are measured later are files again, beside it,
    until they are packed too.

    \b
    Example: dlscale export pack weak-scaling
    """  # noqa: D301
    return pack_study(study, results)


@click.command()
@click.argument("study", required=False)
@results_option
def unpack(study: str | None, results: Path) -> int:
    """Make the records of STUDY (default: the latest) files again, byte by byte as they were.

    \b
    Example: dlscale export unpack weak-scaling
    """  # noqa: D301
    return unpack_study(study, results)


def pack_study(study: str | None, results: Path) -> int:
    """As `pack`."""
    store = Store(choose_study(results, study))
    num_records = pack_records(store)
    path = store.folder / PACK_FILE
    size = f", {path.stat().st_size / 1e6:.1f} MB" if path.exists() else ""
    click.echo(f"{num_records} records packed into {path}{size}")
    return 0


def unpack_study(study: str | None, results: Path) -> int:
    """As `unpack`."""
    store = Store(choose_study(results, study))
    num_records = unpack_records(store)
    click.echo(f"{num_records} records unpacked into {store.records_folder}")
    return 0
