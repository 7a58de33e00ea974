"""Whatever happens to a launch becomes a record, and nothing is left running."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dlscale.benchmarks.message_sizes import launch
from dlscale.benchmarks.message_sizes.launch import LaunchOrder
from dlscale.benchmarks.message_sizes.machine import ThisNode
from dlscale.benchmarks.message_sizes.peers import Place
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, Samples

from .conftest import BLOCK, END, FAILURE, HEADER, write_mpiexec

Run = Callable[[str], MessageSizeLaunch]


@pytest.fixture
def run(order: LaunchOrder, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    memory = tmp_path / "memory"  # which no other test looks at
    memory.mkdir()
    monkeypatch.setattr(launch, "MEMORY", memory)

    def started(body: str) -> MessageSizeLaunch:
        write_mpiexec(place, body)
        return run_alone(order, place, position=7)

    return started


def at(place: Place) -> ThisNode:
    return ThisNode(cpus=[0, 1], environments=place.folder.parent)


def run_alone(order: LaunchOrder, place: Place, position: int = 0) -> MessageSizeLaunch:
    (record,) = launch.run_together([order], at(place), position=position)
    return record


def lines(*written: str) -> str:
    return "\n".join(f"echo '{line}' >> $output" for line in written)


def test_a_good_launch(run: Run):
    record = run(lines(HEADER, BLOCK, FAILURE, END))
    assert record.failure is None
    assert record.library == "MPICH 5"
    assert record.samples[0].round_trip_nanoseconds == [60, 65]
    assert record.samples[0].nanoseconds == [[1000, 1100], [1050, 1090]]
    assert record.failures[0].reason == "wrong result"
    assert (record.position, record.block, record.setting) == (7, 1, "default")
    assert "--folder <spool> --flags <flags>" in record.command
    assert not list(launch.MEMORY.iterdir())


@pytest.mark.parametrize(
    "change", [("[1050, 1090]", "[1050]"), ("[10, 20]", "[10]"), ("[[1000, 1100], [1050, 1090]]", "[]")]
)
def test_a_block_without_the_times_of_all_calls_is_refused(change):
    block = json.loads(BLOCK.replace(*change))
    del block["kind"]
    with pytest.raises(ValueError, match="as many calls on every rank, and one at least"):
        Samples.model_validate(block)


def test_a_crash_keeps_what_was_finished(run: Run):
    said = "echo 'collectives benchmark: rank 1 is dead' >&2; exit 9"
    record = run(f"{lines(HEADER, BLOCK)}\nprintf '%s' '{BLOCK[:40]}' >> $output\n{said}")
    assert record.failure == "collectives benchmark: rank 1 is dead"
    assert len(record.samples) == 1
    assert "rank 1 is dead" in record.log_tail


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (lines(HEADER), "it ended without an error and without its results"),
        ("exit 7", "mpiexec ended with exit status 7"),
    ],
)
def test_an_end_without_a_word_is_a_failure(run: Run, body: str, failure: str):
    assert run(body).failure == failure


def test_no_mpiexec(order: LaunchOrder, place: Place):
    record = run_alone(order, place)
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


# A launch that waits for its turn a number of times, and says when it has one.
IN_TURN = """
exec 3<$folder/turn 4>$folder/waiting
for round in 1 2 3; do
  printf x >&4
  read -r -n 2 -u 3 _
  echo $name$round >> {log}
done
"""


@pytest.fixture
def named_orders(order: LaunchOrder, place: Place) -> Callable[[str], list[LaunchOrder]]:
    """Launches a, b and c, which do the same."""

    def made(body: str) -> list[LaunchOrder]:
        write_mpiexec(place, body)
        setting = order.setting
        return [
            replace(order, setting=setting.model_copy(update={"name": name, "variables": {"name": name}}))
            for name in "abc"
        ]

    return made


def run_all(orders: list[LaunchOrder], place: Place) -> list[MessageSizeLaunch]:
    return launch.run_together(orders, at(place), position=5)


def name_from_arguments() -> str:
    """The variable `name` as mpiexec is given it: -genv name a."""
    return 'for word in "$@"; do [ "$before" = name ] && name=$word; before=$word; done\n'


def test_launches_take_turns_and_the_order_is_reversed_after_each(
    named_orders: Callable[[str], list[LaunchOrder]], place: Place, tmp_path: Path
):
    log = tmp_path / "log"
    body = name_from_arguments() + IN_TURN.format(log=log) + lines(HEADER, BLOCK, END)
    records = run_all(named_orders(body), place)
    assert log.read_text().split() == ["a1", "b1", "c1", "c2", "b2", "a2", "a3", "b3", "c3"]
    assert [(one.position, one.together, one.failure) for one in records] == [
        (5, 5, None),
        (6, 5, None),
        (7, 5, None),
    ]
    assert sum(one.seconds for one in records) < 10


@pytest.mark.parametrize("trouble", ["exit 3", "sleep 300"])
def test_one_that_fails_or_hangs_in_its_turn_does_not_take_the_others_with_it(
    named_orders: Callable[[str], list[LaunchOrder]],
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
):
    monkeypatch.setattr(launch, "GRACE_SECONDS", -65)
    log = tmp_path / "log"
    spoiled = IN_TURN.replace("  echo", f'  [ "$name $round" = "b 2" ] && {trouble}\n  echo')
    body = name_from_arguments() + spoiled.format(log=log) + lines(HEADER, BLOCK, END)
    records = run_all(named_orders(body), place)
    assert [one.failure is None for one in records] == [True, False, True]
    assert log.read_text().split() == ["a1", "b1", "c1", "c2", "a2", "a3", "c3"]
