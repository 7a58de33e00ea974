"""Whatever happens to a launch becomes a record, and nothing is left running."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dlscale.benchmarks.message_sizes import launch
from dlscale.benchmarks.message_sizes.launch import LaunchOrder
from dlscale.benchmarks.message_sizes.peers import Place
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch

from .conftest import BLOCK, END, FAILURE, HEADER, write_mpiexec

Run = Callable[[str], MessageSizeLaunch]


@pytest.fixture
def run(order: LaunchOrder, place: Place) -> Run:
    def started(body: str) -> MessageSizeLaunch:
        write_mpiexec(place, body)
        return launch.run_launch(order, place, position=7, cpus=[0, 1], cold_bytes=2**20)

    return started


def lines(*written: str) -> str:
    return "\n".join(f"echo '{line}' >> $output" for line in written)


def test_a_good_launch(run: Run):
    record = run(lines(HEADER, '{"kind": "round_trip", "nanoseconds": 60}', BLOCK, FAILURE, END))
    assert record.failure is None
    assert record.library == "MPICH 5"
    assert record.round_trip_nanoseconds == [60]
    assert record.samples[0].nanoseconds == [[1000, 1100], [1050, 1090]]
    assert record.failures[0].reason == "wrong result"
    assert (record.position, record.block, record.setting) == (7, 1, "default")
    assert "--output <spool>/samples.jsonl --flags <flags> --store <spool>/store" in record.command
    assert not list(launch.MEMORY.glob("dlscale-flags-*"))


def test_a_crash_keeps_what_was_finished(run: Run):
    said = "echo 'collectives benchmark: rank 1 is dead' >&2; exit 9"
    record = run(f"{lines(HEADER, BLOCK)}\nprintf '%s' '{BLOCK[:40]}' >> $output\n{said}")
    assert record.failure == "collectives benchmark: rank 1 is dead"
    assert len(record.samples) == 1
    assert "rank 1 is dead" in record.log_tail


def test_an_end_without_results_is_a_failure(run: Run):
    assert run(lines(HEADER)).failure == "it ended without an error and without its results"


def test_a_mute_failure_says_its_status(run: Run):
    assert run("exit 7").failure == "mpiexec ended with exit status 7"


def test_no_mpiexec(order: LaunchOrder, place: Place):
    record = launch.run_launch(order, place, position=0, cpus=[0], cold_bytes=2**20)
    assert record.failure is not None
    assert "cannot be started: No such file" in record.failure


def test_what_hangs_is_ended_with_all_that_it_started(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(launch, "GRACE_SECONDS", -65.7)
    record = run(f"sleep 300 &\necho $! > {tmp_path}/pid\nsleep 300")
    assert record.failure == "not finished after 66 s, and ended"
    child = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if gone(child):
            break
        time.sleep(0.05)
    else:
        os.kill(child, 9)
        pytest.fail("a process was left running")


def gone(pid: int) -> bool:
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


IMB = """
#----------------------------------------------------------------
# Benchmarking Allreduce
# #processes = 2
#----------------------------------------------------------------
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            0          200         0.03         0.03         0.03
         4096          200         3.79         6.42         5.10
     16777216           16       802.25      1803.88      1303.06

# All processes entering MPI_Finalize
"""


def test_the_table_of_imb(order: LaunchOrder, place: Place, tmp_path: Path):
    table = tmp_path / "table"
    table.write_text(IMB)
    write_mpiexec(place, f"cat {table}")
    theirs = replace(order, program="IMB-MPI1", reference=Path("/imb/IMB-MPI1"))
    record = launch.run_launch(theirs, place, position=0, cpus=[0, 1], cold_bytes=2**20)
    assert record.failure is None
    times = [(line.message_bytes, line.num_calls, line.seconds) for line in record.references]
    assert times == [(4096, 200, pytest.approx(6.42e-6)), (2**24, 16, pytest.approx(1803.88e-6))]


def test_lines_that_only_look_like_imbs_are_left_out():
    text = "   4  0000  1.02  2.30  1.55\n   8  10  1.02  2..30  1.55\n   16  10  1.02  2.30  1.55\n"
    (found,) = launch._imb_times(text)
    assert (found.message_bytes, found.num_calls, found.seconds) == (16, 10, pytest.approx(2.30e-6))
