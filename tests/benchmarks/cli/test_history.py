"""`dlscale history`: what changed is named, and what else changed there; what does not belong is left out."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dlscale.benchmarks.cli import cli
from tests.made_histories import make_history


def ask(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["history", "--results", str(folder), *words], standalone_mode=False)


def worse(result: Result) -> set[tuple[str, str, int]]:
    return {
        (row["metric"], row["backend"], row["num_ranks"])
        for row in json.loads(result.stdout)["history"]
        if row["verdict"] not in ("as expected", "too few studies", "not in the newest")
    }


RING = {("throughput", "ring", 2), ("efficiency", "ring", 2)}


def test_a_loss_of_7_percent_in_one_backend_after_three_studies_is_named_and_that_cell_alone(tmp_path):
    make_history(tmp_path, studies=4, lost={(3, "ring", 2): 0.07}, spread=0.004, common=0.004)
    result = ask(tmp_path, "--json")
    assert result.return_value == 2
    assert worse(result) == RING


def test_a_history_without_a_change_is_as_before(tmp_path):
    make_history(tmp_path, studies=6)
    result = ask(tmp_path, "--json")
    assert result.return_value == 0
    assert worse(result) == set()


def test_what_changed_beside_it_is_named_and_since_ends_the_alarm(tmp_path, no_pictures):
    make_history(
        tmp_path,
        studies=12,
        lost={(6, "ring", 2): 0.1},
        spread=0.004,
        common=0.004,
        versions={6: {"mpi": "MPICH 5.0"}},
        node={6: {"kernel": "6.2"}},
    )
    result = ask(tmp_path)
    assert result.return_value == 2
    told = " ".join(result.stdout.split())
    assert "Since 2026-11-07: ring on 2 ranks, throughput -9" in told
    assert "changed there: mpi MPICH 4.3 -> MPICH 5.0; kernel 6.1 -> 6.2" in told
    assert all(
        len(line) <= 80 for line in result.stdout.splitlines() if "ring" in line and "Since" not in line
    )
    page = next((tmp_path / "reports").glob("*.html")).read_text()
    assert "usual" in page
    assert "MPICH 5.0" in page
    assert next((tmp_path / "reports").rglob("*history.csv")).is_file()
    assert ask(tmp_path, "--json", "--since", "2026-11-07").return_value == 0


def test_three_studies_are_too_few(tmp_path):
    make_history(tmp_path, studies=3)
    result = ask(tmp_path, "--json")
    assert result.return_value == 4
    assert {row["verdict"] for row in json.loads(result.stdout)["history"]} == {"too few studies"}


def test_what_does_not_belong_is_left_out_in_a_line_and_the_rest_is_answered(tmp_path):
    studies = make_history(tmp_path, studies=11, lost={(7, "ring", 2): 0.1}, spread=0.004, common=0.004)
    damaged, older, machine, empty = studies[0], studies[1], studies[2], studies[3]
    for path in damaged.glob("records/*"):
        path.write_text(path.read_text()[:100])
    for path in older.glob("records/*"):
        path.write_text(path.read_text().replace('"schema_version":5', '"schema_version":4'))
    for path in machine.glob("records/*"):
        path.write_text(path.read_text().replace("EPYC", "Xeon"))
    for path in empty.glob("records/*"):
        path.unlink()
    result = ask(tmp_path, "--json")
    assert result.return_value == 2
    assert worse(result) == RING
    left_out = result.stderr.splitlines()
    assert len(left_out) == 4
    expected = ("not complete JSON", "schema version 4", "cpu_model EPYC, here Xeon", "no good record")
    for text in expected:
        assert sum(text in line for line in left_out) == 1, (text, left_out)


def test_one_damaged_record_is_named_and_its_study_counts(tmp_path):
    studies = make_history(tmp_path, studies=4)
    next(studies[1].glob("records/*ring-2r*")).write_text("{")
    result = ask(tmp_path, "--json")
    assert "not complete JSON" in result.stderr
    assert {row["num_studies"] for row in json.loads(result.stdout)["history"]} == {4}


def test_a_cell_that_the_newest_study_lacks_is_said_to_be(tmp_path):
    studies = make_history(tmp_path, studies=5)
    for path in studies[-1].glob("records/*gloo-2r*"):
        path.unlink()
    rows = json.loads(ask(tmp_path, "--json").stdout)["history"]
    lacking = {(row["backend"], row["num_ranks"]) for row in rows if row["verdict"] == "not in the newest"}
    assert lacking == {("gloo", 2)}


@pytest.mark.parametrize("words", [["--since", "yesterday"], ["strong-scaling"]])
def test_mistakes_are_one_line(tmp_path, words):
    make_history(tmp_path, studies=1)
    result = ask(tmp_path, *words)
    assert type(result.exception).__name__ == "UsageError"
    assert "\n" not in str(result.exception)
