"""Progress of a study: one updating line on a terminal, a line per launch in a log."""

import re

import pytest

from dlscale.benchmarks.cli.progress import LaunchProgress

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def shown(capsys, monkeypatch):
    """What two launches show, the second of which fails; `terminal` is where it is shown."""

    def show(*, terminal: bool) -> str:
        monkeypatch.setenv("COLUMNS", "100")
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
            monkeypatch.delenv(name, raising=False)
        if terminal:
            monkeypatch.setenv("FORCE_COLOR", "1")
        with LaunchProgress(num_launches=2, planned_seconds=20.0) as progress:
            progress.started("block 1/1, hep_cnn in torch over none on 1 rank")
            progress.finished(10.0)
            progress.started("block 1/1, hep_cnn in torch over ring on 2 ranks")
            progress.finished(10.0, [f"ring-2r: rank 1 [died] {'and more ' * 20}"])
        return CONTROL.sub("", capsys.readouterr().out)

    return show


def test_a_log_has_a_line_per_launch_and_failure(shown):
    first, second, failure = shown(terminal=False).splitlines()
    assert first == "block 1/1, hep_cnn in torch over none on 1 rank; 20 s left"
    assert second.startswith("block 1/1, hep_cnn in torch over ring on 2 ranks; ")
    assert failure.startswith("failed: ring-2r: rank 1 [died] and more")
    assert failure.endswith("and more ")


def test_a_terminal_has_one_line_that_is_written_again(shown):
    text = shown(terminal=True)
    updates = [line.rstrip() for line in re.split(r"[\r\n]", text) if "launches" in line]
    assert "over none on 1 rank" in text
    assert any("0 of 2 launches 20 s left" in line for line in updates)
    assert updates[-1].endswith("2 of 2 launches")
    assert all(len(line) <= 100 for line in updates)
    assert "failed: ring-2r" in text
