"""What a person gets: the table in wide and narrow terminals, the figure, the CSV."""

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

from dlscale.analysis.message_sizes.figure import write_figure
from dlscale.analysis.message_sizes.summary import (
    MessageSizeSummary,
    run_origin,
    summarise,
    write_message_sizes_csv,
)
from dlscale.analysis.message_sizes.terminal import render_message_sizes
from dlscale.benchmarks.records.message_sizes import PeerState

from .conftest import KIB, MIB, MakeCampaign, MakeLaunch


@pytest.fixture
def summary(make_campaign: MakeCampaign, make_launch: MakeLaunch) -> MessageSizeSummary:
    launches = []
    for block in range(3):
        times = {"mpi": {4 * KIB: 3.0, MIB: 400.0}, "ring": {4 * KIB: 1.0, MIB: 200.0}, "stream": {MIB: 80.0}}
        launches.append(make_launch(times, block=block))
        faster = {**times, "mpi": {4 * KIB: 2.7, MIB: 360.0}}
        launches.append(make_launch(faster, block=block, setting="a very long name of a setting"))
        launches.append(make_launch({"gloo": {4 * KIB: 100.0, MIB: 1000.0}}, block=block, backend="gloo"))
    peers = [
        PeerState(name="mpich", title="MPICH", kind="mpi", versions={}, unusable=None),
        PeerState(name="gloo", title="Gloo", kind="torch", versions={}, unusable=None),
        PeerState(name="horovod", title="Horovod", kind="torch", versions={}, unusable="pip: no network"),
    ]
    return summarise(make_campaign(peers=peers), launches)


def printed(summary: MessageSizeSummary, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render_message_sizes(summary))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_has_letters_for_settings_and_whole_numbers(summary: MessageSizeSummary):
    text = printed(summary, 100)
    assert max(len(line) for line in text.splitlines()) <= 100
    line = next(line for line in text.splitlines() if "mpich b *" in line)
    assert "1.52" in line  # 4 KiB in 2.7 us
    assert "mpich b: MPICH, a very long name of a setting: SOME_SETTING=" in " ".join(text.split())
    assert "gloo a *" in text


def test_a_line_of_averages_and_every_failure_says_why(summary: MessageSizeSummary):
    text = " ".join(printed(summary, 120).split())
    # (4 KiB / 1 us + 1 MiB / 200 us) / 2, and so on
    assert "Average bus bandwidth over all sizes, in GB/s: ring 4.67, MPICH 2.21, Gloo 0.545" in text
    assert "Horovod: pip: no network" in text
    assert "IMB-MPI1" not in text


def test_the_csv_has_every_row(summary: MessageSizeSummary, tmp_path: Path):
    (path,) = write_message_sizes_csv(summary, tmp_path)
    lines = list(csv.DictReader(path.read_text().splitlines()))
    assert len(lines) == len(summary.rows)
    assert {line["data_hash"] for line in lines} == {summary.provenance.data_hash}
    assert [line["command"] for line in lines[:2]] == ["mpiexec", ""]
    assert {line["backend"] for line in lines} == {"ring", "memory", "mpich", "gloo", "horovod"}


def test_the_figure_is_redrawn_to_the_byte(summary: MessageSizeSummary, tmp_path: Path):
    written = write_figure(summary, tmp_path)
    assert [path.name for path in written] == [f"collectives-2r.{end}" for end in ("png", "pdf", "svg")]
    before = [path.read_bytes() for path in written]
    assert before[0].startswith(b"\x89PNG")
    assert before[1].startswith(b"%PDF")
    line = summary.provenance.line()
    assert line.endswith("; command mpiexec")
    assert all(line.encode() in content for content in before)
    assert [path.read_bytes() for path in write_figure(summary, tmp_path)] == before


def test_the_hash_is_of_the_records_in_any_order(make_campaign: MakeCampaign, make_launch: MakeLaunch):
    launches = [make_launch({"mpi": {MIB: time}}) for time in (400.0, 410.0)]
    origin = run_origin(make_campaign(), launches)
    assert origin == run_origin(make_campaign(), launches[::-1])
    assert origin.data_hash != run_origin(make_campaign(), launches[:1]).data_hash
    assert origin.data_hash != run_origin(make_campaign(sizes=[MIB]), launches).data_hash


def test_no_figure_without_numbers(make_campaign: MakeCampaign, tmp_path: Path):
    assert write_figure(summarise(make_campaign(), []), tmp_path) == []
