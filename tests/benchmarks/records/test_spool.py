"""Events come back from a spool as they were written, and anything else is refused in one line."""

import json
import math
import os
import re

import pytest

from dlscale.benchmarks.records.record import (
    Checkpoint,
    Ended,
    EnergyReading,
    Evaluation,
    Gate,
    GpuMemory,
    NodeFacts,
    Resumption,
    StateBytes,
)
from dlscale.benchmarks.records.spool import (
    TYPES,
    Abort,
    CaseEnd,
    CaseResult,
    MeasuredWindow,
    Phase,
    RankEnd,
    RankError,
    RankInfo,
    SpoolWriter,
    node_facts,
    read_spools,
)

EVENTS = [
    RankInfo(rank=0, local_rank=0, pid=7, node="n0", boot_id="b", affinity=[0, 1]),
    node_facts(),
    Phase(name="connect", seconds=0.5),
    Gate(name="gradient", passed=False, value=None, tolerance=1e-4, detail="é"),
    MeasuredWindow(
        phase="steady", num_steps=2, start=3.5, seconds=0.5, step_seconds=[0.2, 0.3], num_applied=4,
        bucket_seconds=[0.1], foreign_cpu=-0.01,
    ),
    Checkpoint(step=7, seconds=0.5, num_bytes=9),
    Resumption(step=7, seconds=0.5),
    Evaluation(
        step=4, samples=8, training_seconds=1, evaluating_seconds=0, loss=None, metrics={"auc": 0.9},
    ),
    Ended(end="reached", set_up_seconds=1.0, num_training=5),
    EnergyReading(source="rapl", joules=42.0, seconds=4.0),
    GpuMemory(allocated_bytes=1, reserved_bytes=None, total_bytes=2),
    StateBytes(parameters=8, gradients=None, optimizer=0),
    CaseResult(steady=True, settings={"a": 1, "b": "c", "d": 0.5, "e": True}, staleness={0: 3, 2: 1}),
    CaseEnd(peak_rss_bytes=1, load=None),
    RankError(time=1.5, message="m", traceback="t"),
    Abort(time=1.5),
    RankEnd(status=3),
]  # fmt: skip
SPOOL = "rank-00000.jsonl"


def spooled(folder, *events):
    """The lines of (case, event)."""
    writer = SpoolWriter(folder, 0)
    for case, event in events:
        writer.write(event, case=case)
    writer.close()
    return (folder / SPOOL).read_text().splitlines(keepends=True)


def test_every_event_comes_back(tmp_path):
    assert {type(event) for event in EVENTS} == {*TYPES.values()}
    events = [(case, event) for event in EVENTS for case in (None, 0, 3)]
    spooled(tmp_path, *events)
    (read,) = read_spools(tmp_path, 1)
    assert read.events == events
    assert not read.damage
    assert read.of(RankEnd) == [EVENTS[-1]] * 3
    assert read.of(RankEnd, 3) == [EVENTS[-1]] * 2, "that of the launch, too"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"event": "hello", "rank": 0}', "unknown event 'hello'"),
        ('{"rank": 0}', "it does not begin as an event"),
        ('{"event": "RankEnd", "status": 0, "colour": "red"}', "event RankEnd, colour: "),
        ('{"event": "RankEnd", "sta', "event RankEnd, the file: invalid JSON"),
        ('{"event": "RankEnd", "status": "0"}', "event RankEnd, status: input should be a valid integer"),
        ('{"event": "RankEnd", "status": true}', "event RankEnd, status: input should be a valid integer"),
        (
            r'{"event": "RankEnd", "status": 0, "a\n\u001b]0;b": 1}',
            r"event RankEnd, a \\x1b\]0;b: extra inputs are not permitted",
        ),
    ],
)
def test_a_line_of_another_version_is_damage_with_its_place(tmp_path, line, problem):
    (tmp_path / SPOOL).write_text('{"event": "RankEnd", "status": 0}\n' + line + "\n")
    (found,) = read_spools(tmp_path, 1)
    ((case, text),) = found.damage
    assert re.match(rf"rank-00000.jsonl, line 2: {problem}", text)
    assert case is None
    assert found.events == [(None, RankEnd(status=0))]


@pytest.mark.parametrize(
    ("event", "field", "value"),
    [
        ("Phase", "seconds", -1),
        ("Phase", "seconds", 1e308),
        ("MeasuredWindow", "step_seconds", [-1]),
        ("MeasuredWindow", "foreign_cpu", math.nan),
        ("CaseResult", "staleness", {"-1": 1}),
        ("CaseResult", "settings", {"a": math.inf}),
        ("CaseEnd", "load", math.inf),
        ("Evaluation", "metrics", {"auc": math.nan}),
        ("Gate", "value", math.nan),
    ],
)
def test_a_number_that_no_record_can_have_is_damage_to_its_case(tmp_path, event, field, value):
    (line,) = spooled(tmp_path, (1, next(made for made in EVENTS if type(made).__name__ == event)))
    (tmp_path / SPOOL).write_text(json.dumps(json.loads(line) | {field: value}) + "\n")
    (found,) = read_spools(tmp_path, 1)
    assert not found.events
    ((case, text),) = found.damage
    assert case == 1
    assert text.startswith(f"rank-00000.jsonl, line 1: event {event}, {field}")


def test_a_spool_that_is_no_file_is_damage_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / SPOOL)
    (tmp_path / "rank-00001.jsonl").mkdir()
    first, second = read_spools(tmp_path, 2)
    assert first.damage == [(None, "rank-00000.jsonl: not a regular file")]
    assert second.damage == [(None, "rank-00001.jsonl: Is a directory")]


def test_the_line_in_which_a_rank_was_killed_is_left_out(tmp_path):
    (tmp_path / SPOOL).write_text('{"event": "RankEnd", "status": 0}\n{"event": "MeasuredWindow", "pha')
    first, second = read_spools(tmp_path, 2)
    assert first.of(RankEnd) == [RankEnd(status=0)]
    assert (second.events, second.damage, second.info) == ([], [], None)


def test_what_a_node_says(tmp_path):
    silent = node_facts(top=tmp_path)
    assert (silent.cpu_governor, silent.throttled_before) == (None, 0)
    files = {
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
        "sys/devices/system/cpu/cpufreq/policy1/scaling_governor": "performance\n",
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/cpu.stat": "nr_periods 9\nnr_throttled 3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    info = node_facts(top=tmp_path)
    assert info.cpu_governor == "performance, powersave"
    assert NodeFacts(node="n", load_after=None, throttled_after=5, **dict(info)).num_throttled == 2
