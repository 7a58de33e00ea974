"""What a person gets: the tables on a narrow terminal, the figures, the CSV, and why a number is missing."""

import csv

import pytest

from dlscale.analysis.message_sizes.report import blocks, write_files
from dlscale.analysis.message_sizes.summary import run_origin, summarise
from dlscale.analysis.render.screen import in_full
from dlscale.benchmarks.records.message_sizes import PeerState
from tests.analysis.reading import printed

from .conftest import KIB, MIB


@pytest.fixture
def summary(make_campaign, make_launch):
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


def shown(summary):
    return printed(*(part for block in blocks(summary) for part in in_full(block)), width=80).splitlines()


def test_a_terminal_of_80_columns_shows_every_number(summary):
    lines = shown(summary)
    assert max(map(len, lines)) <= 80
    (line,) = [line for line in lines if "4 KiB" in line and "ring" in line]
    assert line.split() == ["4", "KiB", "ring", "4.10", "4.10", "1.00", "-"]
    tuned = next(line for line in lines if "mpich *" in line)
    assert "1.52" in tuned  # 4 KiB in 2.7 us
    # (4 KiB / 1 us + 1 MiB / 200 us) / 2, and so on
    assert "in GB/s: ring 4.67, MPICH 2.21, Gloo 0.545" in " ".join(" ".join(lines).split())


def test_files_have_every_row_and_are_redrawn_to_the_byte(summary, tmp_path):
    written = write_files(summary, tmp_path)
    assert [path.name for path in written] == [
        "collectives.csv",
        *(f"collectives-2r.{end}" for end in ("png", "pdf", "svg")),
    ]
    lines = list(csv.DictReader(written[0].read_text().splitlines()))
    assert len(lines) == len(summary.rows)
    assert {line["data_hash"] for line in lines} == {summary.provenance.data_hash}
    assert {line["backend"] for line in lines} == {"ring", "memory", "mpich", "gloo", "horovod"}
    before = [path.read_bytes() for path in written]
    assert all(summary.provenance.line().encode() in content for content in before[1:])
    assert [path.read_bytes() for path in write_files(summary, tmp_path)] == before


def test_the_hash_is_of_the_records_in_any_order(make_campaign, make_launch):
    launches = [make_launch({"mpi": {MIB: time}}) for time in (400.0, 410.0)]
    origin = run_origin(make_campaign(), launches)
    assert origin == run_origin(make_campaign(), launches[::-1])
    assert origin.data_hash != run_origin(make_campaign(), launches[:1]).data_hash
    assert origin.data_hash != run_origin(make_campaign(sizes=[MIB]), launches).data_hash


def test_an_interrupted_run_has_no_rows_and_no_files(make_campaign, tmp_path):
    summary = summarise(make_campaign(), [])
    assert list(summary.rows) == []
    assert write_files(summary, tmp_path) == []
    assert shown(summary)
