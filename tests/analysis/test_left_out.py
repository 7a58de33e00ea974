"""Commands that show a study are made from what is sound of it, and say what they left out."""

import json

import pytest
from click.testing import CliRunner

from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.compare import compare
from dlscale.benchmarks.cli.figures import figures


@pytest.fixture
def run(tmp_path, make_record):
    """Runs a command on a study of two backends; text becomes a spoiled record."""

    def invoke(command, *words, ranks=(1, 2), spoiled=""):
        folder = tmp_path / "local" / "weak-scaling-1a2b3c4d"
        (folder / "records").mkdir(parents=True)
        (folder / "study.json").write_text(json.dumps({"launches": []}))
        for backend in ("none", "mpi", "ring"):
            for num_ranks in ranks:
                for block in range(6):
                    speed = num_ranks * (100 + block + 20 * (backend == "ring"))
                    record = make_record(
                        backend=backend, num_ranks=num_ranks, block=block, samples_per_second=speed
                    )
                    path = folder / "records" / f"{record.case.id}.1.json"
                    path.write_text(record.model_dump_json())
        if spoiled:
            (folder / "records" / "torn-00.1.json").write_text(spoiled)
        words = [*words, "--results", str(tmp_path)]
        return CliRunner().invoke(command, words, standalone_mode=False)

    return invoke


@pytest.mark.parametrize("spoiled", ['{"schema_version": 5, "stu', '{"schema_version": 2}', "NaN"])
@pytest.mark.parametrize(
    ("command", "words", "shown"),
    [
        (figures, ("--only", "throughput"), "figures: "),
        (compare, ("weak-scaling", "--reference", "mpi"), "ring"),
    ],
    ids=["figures", "compare"],
)
def test_a_spoiled_record_is_named_and_the_others_are_shown(run, command, words, shown, spoiled):
    done = run(command, *words, spoiled=spoiled)
    assert done.return_value == FAILED_CASES
    assert shown in done.stdout
    assert "left out: " in done.stderr
    assert "torn-00.1.json" in done.stderr


def test_a_study_without_numbers_has_no_figure(run):
    done = run(figures, ranks=())
    assert (done.return_value, done.stdout) == (INSUFFICIENT_DATA, "no figures: no training has a number\n")
