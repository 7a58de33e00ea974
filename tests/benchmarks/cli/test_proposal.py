"""`dlscale proposal` on a study's folder."""

import json

import pytest

from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.study_report import load
from tests.made_records import make_record, write_study

pytestmark = pytest.mark.usefixtures("no_pictures")


def records(num_blocks=6, ranks=(1, 2)):
    return [
        make_record(backend=backend, num_ranks=n, block=b, samples_per_second=100 * n)
        for backend in ("none", "ring")
        for n in ranks
        for b in range(num_blocks)
    ]


@pytest.fixture
def run(tmp_path, dlscale):
    """Write the records as a study and run the verb on it: (exit status, standard output, standard error, folder)."""

    def invoke(found, *words, corrupt=""):
        folder = write_study(tmp_path / "local" / "weak-scaling-1a2b3c4d", found, planned=True)
        if corrupt:
            (folder / "records" / "torn-00.1.json").write_text(corrupt)
        return *dlscale("proposal", *words, "--results", tmp_path), folder

    return invoke


def test_it_says_the_verdict_and_where_the_section_is(run):
    status, out, _, folder = run(records(), "--samples", "1_000_000", "--runs", "3")
    assert status == 0
    assert "Efficiency stays at or above 75 % up to 2 ranks" in out
    assert "3 trainings take" in out
    assert f"proposal: {folder / 'proposal' / 'proposal'}.md and .tex" in out
    assert (folder / "proposal" / "proposal.tex").exists()


def test_too_few_launches_are_insufficient_but_written_where_one_says(run, tmp_path):
    place = tmp_path / "section"
    status, out, _, _ = run(records(num_blocks=2), "--out", place)
    assert status == INSUFFICIENT_DATA
    assert "Insufficient data for a threshold of 75 %" in out
    assert (place / "proposal.md").exists()


@pytest.mark.parametrize(
    ("found", "words"), [([make_record(failure="died")], ()), (records(), ("--backends", "mpi"))]
)
def test_nothing_measured_writes_nothing(run, found, words):
    status, _, errors, folder = run(found, *words)
    assert (status, "nothing was written" in errors) == (INSUFFICIENT_DATA, True)
    assert not (folder / "proposal").exists()


def test_corrupt_records_are_told(run):
    status, _, errors, _ = run(records(), corrupt="{")
    assert (status, "torn-00.1.json: not complete JSON" in errors) == (FAILED_CASES, True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--threshold", "0.75"), "--threshold"),
        (("--threshold", "120"), "--threshold"),
        (("--threshold", "nan"), "--threshold"),
    ],
)
def test_mistakes_are_told_in_one_line(run, words, reason):
    status, out, errors, _ = run(records(), *words)
    assert (status, out, errors.count("\n")) == (1, "", 1)
    assert reason in errors


def test_a_study_without_1_rank_is_relative_to_its_smallest_size(run):
    status, out, _, folder = run(records(ranks=(4, 8)))
    assert status == 0
    assert "Efficiency stays at or above 75 % up to 8 ranks" in out
    assert "relative to 4 ranks without communication" in (folder / "proposal" / "proposal.md").read_text()


def test_the_base_that_a_study_was_run_with_is_its_own(tmp_path):
    folder = write_study(tmp_path / "mine", [*records(), *records(ranks=(4, 8))], planned=True)
    plan = json.loads((folder / "study.json").read_text())
    (folder / "study.json").write_text(json.dumps(plan | {"study": {"base": "smallest"}}))
    assert set(load(folder).trained["base_ranks"]) == {1}
    (folder / "study.json").write_text(json.dumps(plan | {"study": {"base": "node"}}))
    assert set(load(folder).trained["base_ranks"]) == {8}
    assert set(load(folder, base="1").trained["base_ranks"]) == {1}
