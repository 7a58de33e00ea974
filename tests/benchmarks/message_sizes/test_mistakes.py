"""Users' mistakes in one line."""

from pathlib import Path

import pytest

from dlscale.benchmarks.cli import main
from dlscale.benchmarks.message_sizes import peers


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--operations sum", ["'sum'", "allreduce, ", ", all"]),
        ("--operations ,", ["''", "allreduce"]),
        ("--nodes 2", ["--nodes", "--system"]),
        ("--system local --nodes 2", ["no scheduler"]),
        ("--system cori", ["--system cori", "--nodes"]),
        ("--system cori --nodes 1", ["--nodes", "2 or more"]),
        ("--system cori --nodes 2,4", ["start this command in a job of 4 nodes", "4 nodes"]),
        ("--sizes big", ["'big'", "4KiB"]),
        ("--sizes 8KiB:4KiB", ["'8KiB:4KiB'", "ascending"]),
        ("--ranks 1", ["--ranks 1", "2 or more"]),
        ("--ranks none", ["'none'"]),
        ("--budget soon", ["--budget", "'soon'"]),
        ("--budget 0", ["--budget 0", "no time"]),
        ("--backends rccl", ["'rccl'", "ring, mpich, openmpi, intelmpi, gloo, horovod, nccl, xccl"]),
        ("--sizes 100GiB --ranks 64", ["100 GiB", "64 ranks", "smaller sizes"]),
        ("--backends mpich", ["nothing can be measured", "make collectives-setup"]),
        ("report --results {folder}", ["no run of this benchmark", "dlscale collectives"]),
        ("report {folder}", ["campaign.json", "dlscale collectives wrote"]),
        ("report {folder}/old", ["schema_version", "6", "5", "run again"]),
        ("setup --backends rccl", ["'rccl'"]),
    ],
)
def test_mistakes(
    words: str,
    expected: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(peers, "PEERS", tmp_path / "peers")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "campaign.json").write_text('{"schema_version": 5, "modes": ["hot"]}')
    given = ["collectives", *words.format(folder=tmp_path).split()]
    if given[1] not in ("report", "setup"):
        given += ["--results", str(tmp_path / "results")]
    with pytest.raises(SystemExit) as caught:
        main(given)
    text = capsys.readouterr().err
    assert caught.value.code == 1, text
    assert len(text.splitlines()) == 1, text
    for part in expected:
        assert part in text
