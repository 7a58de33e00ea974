"""Progress of a study: one updating line on a terminal, a line per launch in a log."""

import re
import time

import pytest

from dlscale.benchmarks.cli.progress import LaunchProgress

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def shown(capsys, monkeypatch):
    """What two launches show: the first takes so many seconds, the second fails. `terminal` is where it is shown."""

    def show(*, terminal: bool, kind: str = "xterm", seconds: float = 0.0, columns: int = 100) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", kind)
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
            monkeypatch.delenv(name, raising=False)
        if terminal:
            monkeypatch.setenv("FORCE_COLOR", "1")
        with LaunchProgress(num_launches=2, planned_seconds=20.0) as progress:
            progress.started("block 1/1, hep_cnn in torch over none on 1 rank", 10.0)
            time.sleep(seconds)
            progress.finished()
            progress.started("block 1/1, hep_cnn in torch over ring on 2 ranks", 10.0)
            progress.finished([f"ring-2r: rank 1 [died] {'and more ' * 20}"])
        return CONTROL.sub("", capsys.readouterr().out)

    return show


@pytest.mark.parametrize(("terminal", "kind"), [(False, "xterm"), (True, "dumb")], ids=["log", "dumb"])
def test_where_the_cursor_cannot_be_moved_is_a_line_per_launch_and_failure(shown, terminal, kind):
    first, second, failure = shown(terminal=terminal, kind=kind, seconds=1.1).splitlines()
    assert first == "block 1/1, hep_cnn in torch over none on 1 rank; 20 s left"
    assert second.startswith("block 1/1, hep_cnn in torch over ring on 2 ranks; ")
    assert failure.startswith("failed: ring-2r: rank 1 [died] and more")
    assert failure.endswith("and more ")


# Seconds of launches that were planned to take 10 s each, on a machine with other programs at the start.
RECORDED = [58.1, 23.7, 12.4, 11.8, 10.2, 12.9, 10.4, 11.1, 10.8, 11.6, 10.3, 10.9, 13.5, 10.6, 11.2, 10.7]


def test_one_slow_launch_does_not_multiply_what_is_left(capsys, monkeypatch):
    """The pace of the first launch alone made 15 minutes of two and a half."""
    clock = [0.0]
    monkeypatch.setattr("dlscale.benchmarks.cli.progress.time.monotonic", lambda: clock[0])
    with LaunchProgress(num_launches=len(RECORDED), planned_seconds=10.0 * len(RECORDED)) as progress:
        for seconds in RECORDED:
            progress.started("a launch", 10.0)
            clock[0] += seconds
            progress.finished()
    minutes = re.findall(r"; (?:(\d+) min )?(\d+) s left", capsys.readouterr().out)
    left = [60 * int(whole or 0) + int(rest) for whole, rest in minutes]
    assert len(left) == len(RECORDED)
    assert left[0] == 160
    truth = [sum(RECORDED[index:]) for index in range(len(RECORDED))]
    assert all(said < 1.6 * real for said, real in zip(left, truth, strict=True))
    assert max(left) < 1.6 * left[0]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_terminal_has_one_line_that_is_written_again_and_never_wraps(shown, monkeypatch, columns):
    text = shown(terminal=True, columns=columns)
    updates = [line.rstrip() for line in re.split(r"[\r\n]", text) if "launches" in line]
    first = next(line for line in updates if "0 of 2 launches, 0 s, 20 s left" in line)
    assert updates[-1].endswith("2 of 2 launches")
    assert all(len(line) < columns for line in updates)
    assert ("━" in first, "over none on 1 rank " in first) == (columns > 80, columns > 80), (
        "the bar goes first"
    )
    assert "failed: ring-2r" in text


def test_during_a_launch_its_time_and_what_is_left_move_once_a_second(shown):
    times = re.findall(r"(\d+) s, (\d+) s left", shown(terminal=True, seconds=2.4))
    assert {("0", "20"), ("1", "19"), ("2", "18")} <= {*times}
    assert len(times) < 12  # drawn once a second, and when something happens
