"""From spools to records, whatever became of the launch."""

import json
from pathlib import Path

import pytest

from dlscale.benchmarks.records.assemble import assemble
from dlscale.benchmarks.records.record import (
    EnergyReading,
    Failure,
    Gate,
    LaunchMetadata,
    NodeSettings,
    Record,
)
from dlscale.benchmarks.records.spool import (
    CaseEnd,
    CaseResult,
    MeasuredWindow,
    SpoolWriter,
    read_spools,
)
from tests.benchmarks.spools import metadata_of, rank_info
from tests.made_records import CONFIGURATION, make_record, rows_of

MADE = make_record(backend="ring", num_ranks=2, local_batch=2)
CASE, METADATA = MADE.case, metadata_of(MADE)


@pytest.fixture
def write(tmp_path):
    """Write one rank's spool: three steady windows, and the end unless it died before."""

    def rank(index, *, ends=True):
        spool = SpoolWriter(tmp_path, index)
        spool.write(rank_info(index))
        spool.write(Gate(name="gradient", passed=True, value=0.0, tolerance=1e-4, detail="change"))
        spool.write(MeasuredWindow(phase="warmup", num_steps=1, start=10.0, seconds=0.5), case=0)
        for number in range(3):
            window = MeasuredWindow(
                phase="steady", num_steps=4, start=11.0 + number + index / 100, seconds=0.4 + index / 10
            )
            spool.write(window, case=0)
        if ends:
            settings = {"overlap": bool(index)}
            spool.write(CaseResult(steady=True, settings=settings, skipped_samples=index), case=0)
            spool.write(CaseEnd(peak_rss_bytes=10**8, load=2.5 + index, num_throttled=7 + index), case=0)
        spool.close()

    return rank


def record(tmp_path, failure=None):
    spools = read_spools(tmp_path, 2)
    return assemble(CASE, 0, spools, attempt=1, metadata=METADATA, failure=failure)


KILLED = Failure(kind="killed", rank=1, message="rank 1 died")


def test_a_valid_launch(tmp_path, write):
    write(0)
    write(1)
    found = record(tmp_path)
    assert found.good
    assert [window.phase for window in rows_of(found.windows)] == ["warmup", *["steady"] * 3]
    assert rows_of(found.windows)[1].seconds == [0.4, 0.5]
    assert rows_of(found.windows)[1].start_seconds == pytest.approx([1.0, 1.01])
    assert found.skipped_samples == [0, 1]
    assert found.backend_settings == {"overlap": "False | True"}  # ranks that differ are shown, not averaged
    assert found.evidence == "measured"


def test_starts_count_on_each_machine_from_its_own_first_window(tmp_path):
    """A clock counts from its machine's boot, and these two booted a day apart."""
    for index, (boot, uptime) in enumerate((("boot 0", 10.0), ("boot 0", 10.25), ("boot 1", 86_410.0))):
        spool = SpoolWriter(tmp_path, index)
        spool.write(rank_info(index, boot_id=boot))
        for number in range(2):
            spool.write(
                MeasuredWindow(phase="steady", num_steps=4, start=uptime + number, seconds=0.5), case=0
            )
        spool.write(CaseEnd(peak_rss_bytes=10**8, load=2.5), case=0)
        spool.close()
    case = CASE.model_copy(update={"cell": CASE.cell.model_copy(update={"num_ranks": 3})})
    found = assemble(case, 0, read_spools(tmp_path, 3), attempt=1, metadata=METADATA, failure=None)
    assert [window.start_seconds for window in rows_of(found.windows)] == [[0.0, 0.25, 0.0], [1.0, 1.25, 1.0]]
    assert found.clocks == [[0, 1], [2]]


def test_a_rank_that_never_started(tmp_path, write):
    write(0, ends=False)
    found = record(tmp_path, KILLED)
    assert [facts.rank for facts in found.ranks] == [0]
    assert not found.windows


def test_silence_is_a_failure(tmp_path):
    assert record(tmp_path).failure.kind == "error"


def test_what_was_asked_and_where_it_ran(tmp_path, write):
    configuration = CONFIGURATION.model_copy(update={"fabric": {"name": "Aries", "bandwidth": 8e9}})
    known = METADATA.model_copy(update={"configuration": configuration, "batch_job": "slurm 7"})
    known = LaunchMetadata.model_validate_json(known.model_dump_json())  # as an interrupted launch leaves it
    known_of_node = {"num_cpus": 2, "memory_bytes": 1, "load_before": 0.5, "throttled_before": 3}
    node = NodeSettings(**dict.fromkeys(NodeSettings.model_fields) | known_of_node)
    for rank in range(2):
        write(rank)
        spool = SpoolWriter(tmp_path, rank)
        spool.write(node)
        spool.close()
    spools = read_spools(tmp_path, 2)
    found = assemble(CASE, 0, spools, attempt=1, metadata=known, failure=None)
    assert (found.configuration, found.batch_job) == (configuration, "slurm 7")
    assert [(facts.load_after, facts.num_throttled) for facts in found.nodes] == [(2.5, 4)]


def test_a_launch_that_was_killed_gives_the_same_records():
    """Files that hold every kind of event, the last line of rank 1 cut off, and the records from them."""
    folder = Path(__file__).parent / "killed_launch"
    spools = read_spools(folder, 3)
    metadata = LaunchMetadata.model_validate_json((folder / "metadata.json").read_text())
    failure = Failure(kind="killed", rank=1, message="rank 1 died", log_tail="the last lines")
    expected = (folder / "records.jsonl").read_text().splitlines()
    assert len(expected) == 3
    for index, text in enumerate(expected):
        case = Record.model_validate_json(text).case
        made = assemble(case, index, spools, attempt=1, metadata=metadata, failure=failure)
        assert json.loads(made.model_dump_json()) == json.loads(text)


READING = EnergyReading(source="rapl", joules=42.0, seconds=4.0)
OTHER = READING.model_copy(update={"joules": 43.0})


@pytest.mark.parametrize(
    ("per_rank", "local_ranks", "num_servers", "nodes"),
    [
        ([READING, OTHER], (0, 0), 0, [("n0", 42.0), ("n1", 43.0)]),
        ([READING, None], (0, 1), 0, [("n0", 42.0)]),  # other ranks of a node do not count it again
        ([READING, OTHER, None], (0, 0, 0), 1, [("n0", 42.0), ("n1", 43.0)]),  # servers have no windows
        ([None, None], (0, 0), 0, []),  # a launch that never came so far
    ],
)
def test_the_energy_of_each_node_is_in_the_record_once(tmp_path, per_rank, local_ranks, num_servers, nodes):
    for rank, reading in enumerate(per_rank):
        spool = SpoolWriter(tmp_path, rank)
        spool.write(rank_info(rank, local_rank=local_ranks[rank], node=f"n{rank}", boot_id=f"b{rank}"))
        if reading:
            spool.write(reading, case=0)
        spool.write(CaseEnd(peak_rss_bytes=1, load=None), case=0)
        spool.close()
    cell = CASE.cell.model_copy(update={"num_servers": num_servers})
    spools, case = read_spools(tmp_path, len(per_rank)), CASE.model_copy(update={"cell": cell})
    energy = assemble(case, 0, spools, attempt=1, metadata=METADATA, failure=None).energy
    assert [(reading.node, reading.joules) for reading in energy] == nodes


def test_a_gate_that_failed_on_any_rank_fails_the_case(tmp_path, write):
    write(0)
    write(1)
    spool = SpoolWriter(tmp_path, 1)
    spool.write(Gate(name="gradient", passed=False, value=0.5, tolerance=1e-4, detail="change"))
    spool.close()
    failure = record(tmp_path).failure
    assert (failure.kind, failure.message) == ("gate", "gate gradient failed: change: 0.5, allowed 0.0001")
