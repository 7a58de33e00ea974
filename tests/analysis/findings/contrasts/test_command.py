"""`dlscale compare` of one study, and of two, as a user types it."""

import json

import pytest

from dlscale.benchmarks.cli import main
from tests.analysis.made_studies import write_study

KEPT = {"none": (1.0, 0.98), "ring": (0.99, 0.92), "mpi": (0.985, 0.86)}


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def study(results):
    """Write a study of these records, whose backends are in this order; its name."""

    def write(name, records, backends=("none", "mpi", "ring", "gloo")):
        described = {"backends": list(backends), "frameworks": ["torch", "tensorflow"]}
        return write_study(results / "local" / name, records, study=described).name

    return write


@pytest.fixture
def compare(results, capsys):
    """Run the verb: (exit status, what it printed, what it complained)."""

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(["compare", *map(str, words), "--results", str(results)])
        said = capsys.readouterr()
        return ended.value.code, " ".join(said.out.split()), said.err

    return run


def test_one_study(study, compare, make_study):
    study("a", make_study(efficiency=KEPT))
    status, said, _ = compare("a")
    assert status == 0
    assert "ring is 6." in said
    assert "faster than mpi on 2 ranks (corrected p 0.031, 6 blocks)" in said
    assert "slower than ring" in compare("a", "--reference", "ring")[1]


def test_six_blocks_cannot_carry_two_comparisons_unless_one_is_asked_for(study, compare, make_study):
    study("a", make_study())
    status, said, _ = compare("a")
    assert "6 launches cannot decide 2 comparisons: --launches 7 can" in said
    status, said, _ = compare("a", "--backends", "ring")
    assert status == 0
    assert "1 comparison of backend" in said
    assert "ring is" in said


def test_status_4_if_nothing_can_be_shown(study, compare, make_study):
    study("a", make_study(num_blocks=4))
    status, said, _ = compare("a", "--json")
    found = json.loads(said)
    assert status == 4
    assert (found["blocks_needed"], {row["verdict"] for row in found["rows"]}) == (7, {"cannot be shown"})


def test_a_single_record_and_what_failed(study, compare, make_record, make_study, results):
    records = make_study(efficiency={"ring": (1.0, 0.9), "mpi": (1.0, 0.8)})
    failed = [make_record(backend="gloo", num_ranks=2, block=block, failure="hung") for block in range(6)]
    study("a", records + failed)
    assert "every launch of gloo failed" in compare("a")[1]
    (one,) = (results / "local" / "a" / "records").glob("*ring-2r*-00.1.json")
    status, _, complaint = compare(one)
    assert (status, complaint.count("\n")) == (1, 1)
    assert "nothing to compare: of backend there is only ring" in complaint


def test_two_studies_are_seen_beside_each_other_below_their_fields(study, compare, make_study):
    study("a", make_study(efficiency=KEPT))
    study("b", make_study(efficiency=dict.fromkeys(KEPT, (1.1, 1.1))))
    status, said, _ = compare("a", "b")
    assert status == 0
    assert said.index("compared at") < said.index("6 comparisons of B with A.")
    assert said.endswith("comparable")
    assert "nothing is claimed" in said
    found = json.loads(compare("a", "b", "--json")[1])
    assert len(found["contrasts"]) == 6
    assert {one["verdict"] for one in found["contrasts"]} == {"cannot be shown"}
    assert found["contrasts"][0]["ratio_method"] == "unpaired t"


def test_what_is_not_comparable_is_not_set_side_by_side(study, compare, make_study):
    study("a", make_study(efficiency=KEPT))
    study("b", make_study(efficiency=KEPT, precision="bf16"))
    status, said, _ = compare("a", "b")
    assert status == 3
    assert "comparisons of B with A" not in said
    assert json.loads(compare("a", "b", "--json")[1])["contrasts"] == []


def test_mistakes_are_one_line(study, compare, make_study):
    study("a", make_study())
    study("b", make_study())
    for words in (
        ("a", "--reference", "nccl"),
        ("a", "--factor", "workload"),
        ("a", "--factor", "backend,framework"),
        ("a", "--ranks", "3"),
        ("a", "b", "--reference", "ring"),
        ("nothing",),
    ):
        status, said, complaint = compare(*words)
        assert (status, said, complaint.count("\n")) == (1, "", 1), words
