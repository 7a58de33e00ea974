"""Data of a comparison in several formats: each is repackaged once, which is timed, then read by a study of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from dlscale.analysis.text import number
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder
from dlscale.benchmarks.cli.request import Request
from dlscale.benchmarks.records.preparation import Preparation, read_preparation, write_preparation
from dlscale.benchmarks.study.cells import data_name, data_paths
from dlscale.models import NAMES as WORKLOADS
from dlscale.models.workload import SYNTHETIC

OF_IMAGES = ("resnet50", "inception_v3")  # the workloads that read them
LAUNCHES = 6  # of each cell, as many as an interval needs


def images_of(data: str | None, asked: Sequence[str] | None) -> tuple[str, Path]:
    """The first workload that reads images, and those that --data names for it. Raises UsageError without any."""
    workloads = WORKLOADS if list(asked or ()) == ["all"] else asked or ()
    paths = data_paths(data, workloads) if workloads else {}
    for name in workloads:
        if name in OF_IMAGES and name in paths and paths[name] != SYNTHETIC:
            return name, paths[name]
    raise UsageError(
        "choice.formats needs images to repackage: give --workloads resnet50 --data PATH (class folders, TFRecord "
        "files, an LMDB, a list or CIFAR-10's files; dlscale data digits writes some)"
    )


def prepare(
    source: Path, formats: Sequence[str], folder: Path, *, skip_bad: bool
) -> Iterator[tuple[Path, Preparation]]:
    """The source in each format, in a folder of its own below `folder`; what is there is not made again.

    Raises UsageError if the source cannot be read, or a format not be written.
    """
    if not source.exists():
        raise UsageError(f"--data {source}: there is no such file or folder; check the path")
    make_folder(folder)
    stem, _, digest = data_name(source).rpartition(":")
    for name in formats:
        target = folder / f"{Path(stem).stem}-{digest[:8]}-{name}"
        found = read_preparation(folder, target.name)
        if found is None:
            click.echo(f"repackaging {source} as {name} ...")
            found = _prepared(source, target, name, skip_bad=skip_bad)
            write_preparation(found, folder)
        click.echo(
            f"{target}: {found.num_samples} samples, {found.num_bytes / 1e6:.1f} MB in {found.num_files} files, "
            f"repackaged in {number(found.seconds)} s"
        )
        yield target, found


def _prepared(source: Path, target: Path, name: str, *, skip_bad: bool) -> Preparation:
    from dlscale.models.images.convert import convert

    begin = time.perf_counter()
    converted = convert(source, target, name, skip_bad=skip_bad, overwrite=True)
    seconds = time.perf_counter() - begin
    files = [path for path in target.rglob("*") if path.is_file()]
    return Preparation(
        name=target.name,
        format=name,
        source=source.name,
        source_format=converted.source_format,
        num_samples=converted.num_samples,
        num_skipped=len(converted.skipped),
        image_bytes=converted.num_bytes,
        num_bytes=sum(path.stat().st_size for path in files),
        num_files=len(files),
        seconds=seconds,
    )


def format_request(request: Request, workload: str, path: Path) -> Request:
    """What asks for the study that reads one format: training and reading alone, on 1 rank, without compilers."""
    own = {
        "workloads": [workload],
        "backends": ["none"],
        "controls": ["loader"],
        "compiled": False,
        "ranks": [1],
        "launches": request.get("launches") or LAUNCHES,
    }
    return request.changed(without=("backend_options", "nodes"), fields=own, data=str(path))
