"""From spools to records, whatever became of the launch."""

import pytest

from dlscale.benchmarks.records.assemble import LaunchMetadata, assemble
from dlscale.benchmarks.records.record import Allocation, Case, Cell, Configuration, Failure, Fingerprint
from dlscale.benchmarks.records.spool import MeasuredWindow, SpoolWriter, read_spools

CELL = Cell(
    workload="hep_cnn", preset="tiny", framework="torch", backend="ring", environment=".venv", scaling_mode="weak",
    num_ranks=2, cores_per_rank=1, threads_per_rank=1, local_batch=2, global_batch=4, precision="fp32",
    data="synthetic",
)  # fmt: skip
CASE = Case(cell=CELL, block=0, position=0)
CIRCUMSTANCES = LaunchMetadata(
    study="tiny-1",
    system="local",
    fingerprint=Fingerprint(digest="d", code_digest="c", commit="unknown", versions={}, node={}),
    started_at="2026-01-01T00:00:00+00:00",
    order_seed=1,
    command="mpiexec",
    oversubscribed=False,
    environment_variables={},
)
GATE = {"name": "gradient", "passed": True, "value": 0.0, "tolerance": 1e-4, "detail": "change"}


@pytest.fixture
def write(tmp_path):
    """Write one rank's spool: `num_windows` steady windows, and the end unless it died before."""

    def rank(index, *, num_windows=3, ends=True, gate=GATE):
        spool = SpoolWriter(tmp_path, index)
        spool.write(
            "hello", local_rank=index, pid=100 + index, node="n", boot_id="b", affinity=[index], num_threads=1
        )
        spool.write("gates", gates=[gate])
        spool.window(0, MeasuredWindow("warmup", 1, 10.0, 0.5))
        for number in range(num_windows):
            spool.window(0, MeasuredWindow("steady", 4, 11.0 + number + index / 100, 0.4 + index / 10))
        if ends:
            spool.write("result", case=0, steady=True, loss=0.7, settings={"overlap": bool(index)})
            spool.write("case_end", case=0, peak_rss_bytes=10**8)
        spool.close()

    return rank


def record(tmp_path, failure=None):
    spools = read_spools(tmp_path, 2)
    return assemble(CASE, 0, spools, attempt=1, circumstances=CIRCUMSTANCES, failure=failure)


KILLED = Failure(kind="killed", rank=1, message="rank 1 died")


def test_a_sound_launch(tmp_path, write):
    write(0)
    write(1)
    found = record(tmp_path)
    assert found.good
    assert [window.phase for window in found.windows] == ["warmup", *["steady"] * 3]
    assert found.windows[1].seconds == [0.4, 0.5]
    assert found.windows[1].start_seconds == pytest.approx([1.0, 1.01])
    assert found.phases.warm_up == [0.5, 0.5]
    assert found.final_loss == [0.7, 0.7]
    assert found.backend_settings == {"overlap": "False | True"}  # ranks that differ are shown, not averaged
    assert found.evidence == "measured"


def test_windows_that_not_all_ranks_finished_do_not_count(tmp_path, write):
    write(0, num_windows=3, ends=False)
    write(1, num_windows=1, ends=False)
    found = record(tmp_path, KILLED)
    assert found.failure == KILLED
    assert len(found.windows) == 2


def test_a_line_cut_by_death_is_left_out(tmp_path, write):
    write(0, ends=False)
    write(1, ends=False)
    path = tmp_path / "rank-00001.jsonl"
    path.write_text(path.read_text() + '{"event": "window", "case": 0, "pha')
    assert len(record(tmp_path, KILLED).windows) == 4


def test_a_case_that_had_ended_keeps_its_result(tmp_path, write):
    write(0)
    write(1)
    assert record(tmp_path, KILLED).good


def test_a_rank_that_never_started(tmp_path, write):
    write(0, ends=False)
    found = record(tmp_path, KILLED)
    assert [facts.rank for facts in found.ranks] == [0]
    assert found.windows == []
    assert found.phases.warm_up == [0.5, None]


def test_a_failed_gate_is_a_failure(tmp_path, write):
    for rank in (0, 1):
        write(rank, gate={**GATE, "passed": False, "value": 0.5})
    found = record(tmp_path)
    assert not found.good
    assert found.failure.kind == "gate"
    assert "gradient" in found.failure.message
    assert "0.5" in found.failure.message


def test_silence_is_a_failure(tmp_path):
    assert record(tmp_path).failure.kind == "error"


def test_servers_are_kept_apart_from_the_ranks_that_train(tmp_path, write):
    served = CELL.model_copy(update={"backend": "grpc_ps", "num_servers": 1})
    for rank in range(2):
        write(rank)
    server = SpoolWriter(tmp_path, 2)
    server.write("hello", local_rank=2, pid=102, node="n", boot_id="b", affinity=[0, 1], num_threads=1)
    server.write("case_end", case=0, peak_rss_bytes=5)
    server.close()
    case = CASE.model_copy(update={"cell": served})
    spools = read_spools(tmp_path, served.num_processes)
    found = assemble(case, 0, spools, attempt=1, circumstances=CIRCUMSTANCES, failure=None)
    assert found.good
    assert [facts.rank for facts in found.ranks] == [0, 1]
    assert [(facts.rank, facts.peak_rss_bytes) for facts in found.servers] == [(2, 5)]
    assert all(len(window.seconds) == 2 for window in found.windows)


def test_windows_of_fixed_time_keep_every_ranks_steps(tmp_path, write):
    for rank, num_steps in enumerate((7, 5)):
        spool = SpoolWriter(tmp_path, rank)
        spool.write(
            "hello", local_rank=rank, pid=100 + rank, node="n", boot_id="b", affinity=[rank], num_threads=1
        )
        spool.write("gates", gates=[GATE])
        spool.window(0, MeasuredWindow("steady", num_steps, 1.0, 0.5, num_applied=12))
        spool.write("result", case=0, steady=True, loss=0.7, settings={})
        spool.write("case_end", case=0, peak_rss_bytes=1)
        spool.close()
    (window,) = record(tmp_path).windows
    assert (window.num_steps, window.rank_steps, window.num_applied) == (7, [7, 5], 12)


def test_what_was_asked_and_where_it_ran(tmp_path, write):
    configuration = Configuration(
        study_digest="s",
        system_digest="y",
        skip_bad=False,
        budget_seconds=60,
        rules={"min_windows": 10, "min_window_seconds": 0.15},
        fabric={"name": "Aries", "bandwidth": 8e9},
    )
    allocation = Allocation(scheduler="slurm", job_id="7", partition="regular", num_nodes=2, nodes="n[1-2]")
    known = CIRCUMSTANCES.model_copy(update={"configuration": configuration, "allocation": allocation})
    known = LaunchMetadata.model_validate_json(known.model_dump_json())  # as an interrupted launch leaves it
    node = {"num_cpus": 2, "memory_bytes": 1, "load_before": 0.5}
    node |= dict.fromkeys(
        (
            "cache_bytes",
            "numa_domains",
            "cpu_governor",
            "cpu_boost",
            "transparent_huge_pages",
            "clock_source",
            "device_driver",
        )
    )
    node |= dict.fromkeys(("devices", "container", "results_filesystem", "data_filesystem"))
    for rank in range(2):
        write(rank)
        spool = SpoolWriter(tmp_path, rank)
        # The scheduler's nodes may share one host, which has one name.
        spool.write("node", rank=rank, switch_path=f"s0.n{rank}", **node)
        spool.write("node", rank=rank, switch_path=f"s0.n{rank}", **node)
        spool.write("case_end", case=0, peak_rss_bytes=10**8, load=2.5 + rank)
        spool.close()
    spools = read_spools(tmp_path, 2)
    found = assemble(CASE, 0, spools, attempt=1, circumstances=known, failure=None)
    assert (found.configuration, found.allocation) == (configuration, allocation)
    assert [(one.rank, one.switch_path, one.load_after) for one in found.nodes] == [
        (0, "s0.n0", 2.5),
        (1, "s0.n1", 3.5),
    ]
