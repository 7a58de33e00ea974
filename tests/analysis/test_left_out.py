"""Commands that show a study are made from what is sound of it, and say what they left out."""

import pytest
from click.testing import CliRunner

from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.compare import compare
from dlscale.benchmarks.cli.figures import figures
from tests.made_records import make_study, write_study


@pytest.fixture
def run(tmp_path):
    """Runs a command on a study of two backends; text becomes a spoiled record."""

    def invoke(command, *words, num_blocks=6, spoiled=""):
        records = make_study(
            efficiency={"none": (1.0, 1.0), "mpi": (1.0, 1.0), "ring": (1.2, 1.2)}, num_blocks=num_blocks
        )
        folder = write_study(tmp_path / "local" / "weak-scaling-1a2b3c4d", records, launches=[])
        if spoiled:
            (folder / "records" / "torn-00.1.json").write_text(spoiled)
        words = [*words, "--results", str(tmp_path)]
        return CliRunner().invoke(command, words, standalone_mode=False)

    return invoke


@pytest.mark.parametrize(
    ("command", "words", "shown"),
    [
        (figures, ("--only", "throughput"), "figures: "),
        (compare, ("weak-scaling", "--reference", "mpi"), "ring"),
    ],
    ids=["figures", "compare"],
)
def test_a_spoiled_record_is_named_and_the_others_are_shown(run, command, words, shown):
    done = run(command, *words, spoiled='{"schema_version": 7, "stu')
    assert done.return_value == FAILED_CASES
    assert shown in done.stdout
    assert "left out: " in done.stderr
    assert "torn-00.1.json" in done.stderr


def test_a_study_without_numbers_has_no_figure(run):
    done = run(figures, num_blocks=0)
    assert (done.return_value, done.stdout) == (INSUFFICIENT_DATA, "no figures: no training has a number\n")
