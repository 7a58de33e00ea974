"""The command line as a user calls it, and records as the supervisor writes them, made up."""

import io
from collections.abc import Callable

import pytest

from dlscale.benchmarks.cli import main
from dlscale.benchmarks.records.record import Failure, Record
from tests import made_records

MakeRecord = Callable[..., Record]


def _make_record(
    block: int = 0, *, attempt: int = 1, failure: str | None = None, backend: str = "ring"
) -> Record:
    """An attempt at a case on 2 ranks with windows of its own; one with a `failure` was killed."""
    made = made_records.make_record(
        backend=backend,
        num_ranks=2,
        block=block,
        attempt=attempt,
        study="weak-scaling-00000000",
        started_at="2026-11-22T03:47:20+00:00",
        samples_per_second=500 + block + attempt / 10,
        window_factors=[1 + index / 7 for index in range(10)],
    )
    killed = Failure(kind="killed", rank=1, message=failure) if failure else None
    return made.model_copy(update={"failure": killed})


@pytest.fixture
def make_record() -> MakeRecord:
    return _make_record


@pytest.fixture
def dlscale(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line: (exit status, standard output, standard error)."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture
def mistake(dlscale: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Run a command line with a mistake: the one line that it says."""

    def run(*words: object) -> str:
        status, _, error = dlscale(*words)
        assert status == 1, error
        (line,) = error.splitlines()
        assert line.startswith("dlscale: ")
        return line

    return run


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures have their files, and nothing is drawn into them: that takes longest."""

    def blank(_: object, file: io.IOBase, **_options: object) -> None:
        file.write("<svg/>" if isinstance(file, io.TextIOBase) else b"<svg/>")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", blank)
