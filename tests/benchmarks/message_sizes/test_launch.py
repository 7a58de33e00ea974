"""Whatever happens to a launch becomes a record, and nothing is left running."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dlscale.benchmarks.message_sizes import launch
from dlscale.benchmarks.message_sizes.machine import Machine
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch

HEADER = '{"kind": "launch", "library": "MPICH 5"}'
BLOCK = (
    '{"kind": "block", "operation": "mpi", "message_bytes": 4096, "round": 0, "num_warmup": 5, '
    '"nanoseconds": [[1000, 1100], [1050, 1090]]}'
)
FAILURE = '{"kind": "failure", "operation": "mpi", "message_bytes": 4096, "reason": "wrong result"}'
END = '{"kind": "end"}'
# A launch that waits for its turn a number of times, and says when it has one.
IN_TURN = """
for word in "$@"; do [ "$before" = name ] && name=$word; before=$word; done
exec 3<$folder/turn 4>$folder/waiting
for round in 1 2 3; do
  printf x >&4
  head -c 16 <&3 >/dev/null
  echo $name$round >> {log}
done
"""

Run = Callable[[str], list[MessageSizeLaunch]]


@pytest.fixture
def run(
    order: MessageSizeLaunch,
    machine: Machine,
    write_mpiexec: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., list[MessageSizeLaunch]]:
    """run(body, names): launches whose mpiexec does `body`, which may read their names."""
    memory = tmp_path / "memory"  # which no other test looks at
    memory.mkdir()
    monkeypatch.setattr(launch, "MEMORY", memory)

    def started(body: str, names: str = "a") -> list[MessageSizeLaunch]:
        if body:
            write_mpiexec(body)
        orders = [order.model_copy(update={"setting": name, "variables": {"name": name}}) for name in names]
        made = launch.run_together(orders, machine, sizes=[4096], seconds=1.0, results=tmp_path)
        assert not list(memory.iterdir())
        return made

    return started


def lines(*written: str) -> str:
    return "\n".join(f"echo '{line}' >> $output" for line in written)


def test_a_good_launch(run: Run):
    (record,) = run(lines(HEADER, BLOCK, FAILURE, END))
    assert record.failure is None
    assert record.library == "MPICH 5"
    assert record.samples[0].nanoseconds == [[1000, 1100], [1050, 1090]]
    assert record.failures[0].reason == "wrong result"
    assert record.command.endswith("/benchmarks/message_sizes/start.py <spool>")
    assert "mpiexec -launcher fork -rmk user -n 2 -bind-to none -genv OMP_NUM_THREADS 1" in record.command


@pytest.mark.parametrize("nanoseconds", [[[1, 2], [1]], [[], []], [[1, 2]], []])
def test_a_block_without_the_times_of_all_calls_is_refused(nanoseconds):
    block = json.loads(BLOCK) | {"nanoseconds": nanoseconds}
    launch = {"block": 0, "backend": "mpi", "setting": "default", "variables": {}, "thread_level": "single"}
    with pytest.raises(ValueError, match="as many calls on each of 2 ranks"):
        MessageSizeLaunch.model_validate(launch | {"num_ranks": 2, "samples": [block]})


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (
            f"{lines(HEADER, BLOCK)}\nprintf '%s' '{BLOCK[:40]}' >> $output\n"
            "echo 'collectives benchmark: rank 1 is dead' >&2; exit 9",
            "collectives benchmark: rank 1 is dead",
        ),
        (lines(HEADER), "it ended without an error and without its results"),
        ("exit 7", "mpiexec ended with exit status 7"),
        ("", "mpiexec cannot be started: No such file or directory"),
    ],
)
def test_a_failure_keeps_what_was_finished(run: Run, body: str, failure: str):
    (record,) = run(body)
    assert str(record.failure).endswith(failure)
    assert len(record.samples) == int("BLOCK" in body or '"block"' in body)


def test_what_hangs_is_ended_with_all_that_it_started(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(launch, "HANGING_SECONDS", -1.5)
    (record,) = run(f"sleep 300 &\necho $! > {tmp_path}/pid\nsleep 300")
    assert "ended" in str(record.failure)
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


@pytest.mark.parametrize(
    ("trouble", "turns"),
    [
        ("", "a1 b1 c1 c2 b2 a2 a3 b3 c3"),  # the order is reversed after each pass
        ("exit 3", "a1 b1 c1 c2 a2 a3 c3"),
        ("sleep 300", "a1 b1 c1 c2 a2 a3 c3"),
    ],
)
def test_launches_take_turns_and_a_bad_one_does_not_take_the_others_with_it(
    run: Callable[..., list[MessageSizeLaunch]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
    turns: str,
):
    monkeypatch.setattr(launch, "HANGING_SECONDS", 1)
    log = tmp_path / "log"
    spoiled = IN_TURN.replace("  echo", f'  [ "$name$round" = "b2" ] && {trouble or ":"}\n  echo')
    records = run(spoiled.format(log=log) + lines(HEADER, BLOCK, END), "abc")
    assert log.read_text().split() == turns.split()
    assert [record.failure is None for record in records] == [True, not trouble, True]
