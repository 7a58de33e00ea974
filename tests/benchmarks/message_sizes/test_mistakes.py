"""Users' mistakes in one line."""

from pathlib import Path

import pytest

from dlscale.benchmarks.cli import main
from dlscale.benchmarks.message_sizes.peers import choose_peers


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--operations sum", ["'sum'", "allreduce, ", ", all"]),
        ("--operations ,", ["''", "allreduce"]),
        ("--nodes 2", ["--nodes", "--system"]),
        ("--system local --nodes 2", ["--system local", "no scheduler"]),
        ("--system cori", ["--system cori", "--nodes"]),
        ("--system cori --nodes 1", ["--nodes 1", "--ranks"]),
        ("--system cori --nodes 2,4", ["start this command in a job of 4 nodes", "4 nodes"]),
        ("--sizes big", ["'big'", "4KiB"]),
        ("--sizes 8KiB:4KiB", ["'8KiB:4KiB'", "ascending"]),
        ("--ranks 1", ["--ranks 1", "2 or more"]),
        ("--ranks none", ["'none'"]),
        ("--budget soon", ["--budget", "'soon'"]),
        ("--budget 0", ["--budget 0", "no time"]),
        ("--backends rccl", ["'rccl'", "ring, mpich, openmpi, intelmpi, gloo, horovod, nccl, xccl"]),
        ("--sizes 100GiB --ranks 64", ["100 GiB", "64 ranks", "smaller sizes"]),
        ("--backends mpich --environments {folder}", ["nothing can be measured", "make collectives-setup"]),
        ("report --results {folder}", ["no run of this benchmark", "dlscale collectives"]),
        ("report {folder}", ["campaign.json", "dlscale collectives wrote"]),
        ("report {folder}/old", ["schema_version", "6", "5", "run again"]),
        ("setup --backends rccl", ["'rccl'"]),
    ],
)
def test_mistakes(words: str, expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
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


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (
            "all",
            ["ring", "mpich", "openmpi", "intelmpi", "gloo", "horovod"],
        ),  # between GPUs only where it is named
        ("gloo", ["gloo"]),
        ("mpi", ["mpich", "openmpi", "intelmpi"]),  # a study's name
    ],
)
def test_peers_of_a_name(asked: str, found: list[str]):
    assert [peer.name for peer in choose_peers([asked])] == found
