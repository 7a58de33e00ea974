"""`dlscale compare` as a user types it."""

import json

import pytest

from dlscale.benchmarks.cli import main
from tests.analysis.made_studies import write_study


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def study(results):
    """Write a study of these records; its name."""

    def write(name, records):
        return write_study(results / "local" / name, records).name

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


def test_alike(study, compare, make_study, results):
    study("a-1", make_study(study="a-1"))
    study("b-1", make_study(study="b-1"))
    status, said, _ = compare("a", results / "local" / "b-1")
    assert status == 0
    assert "compared at 8 points with equal backend, num_ranks" in said
    assert "to know study a-1 b-1" in said
    assert said.endswith("comparable")
    assert "not comparable" not in said


def test_not_comparable(study, compare, make_study):
    study("a", make_study())
    study("b", make_study(precision="bf16", environment="x[bold]y"))
    status, said, _ = compare("a", "b")
    assert status == 3
    assert "blocks precision fp32 bf16" in said
    assert "x[bold]y" in said  # nothing in a record is taken for markup
    assert "not comparable: A and B differ in precision" in said
    assert said.index("precision") < said.index("environment")
    assert "--factor backend,num_ranks,precision" in said
    status, said, _ = compare("a", "b", "--factor", "backend,num_ranks,precision")
    assert status == 0
    assert "comparable; 1 of the differences" in said


def test_single_records(study, compare, make_record, results):
    study("a", [make_record(backend="ring"), make_record(backend="mpi", num_ranks=2)])
    files = sorted((results / "local" / "a" / "records").iterdir())
    status, said, _ = compare(*files)
    assert status == 3
    assert "ranks" in said
    assert compare(*files, "--factor", "backend ranks")[0] == 0
    assert compare(files[0], "a")[0] == 0


def test_json(study, compare, make_study):
    study("a", make_study())
    study("b", make_study(precision="bf16"))
    status, said, _ = compare("a", "b", "--json")
    found = json.loads(said)
    assert (status, found["schema"], found["comparable"]) == (3, 1, False)
    assert found["factors"] == ["backend", "num_ranks"]
    assert found["rows"][0] == {
        "field": "case.cell.precision",
        "factor": "precision",
        "title": "precision",
        "class": "blocking",
        "blocks": True,
        "a": ["fp32"],
        "b": ["bf16"],
        "num_points": 8,
    }


def test_only_the_latest_good_attempts_count(study, compare, make_record):
    failed = make_record(failure="hung", precision="bf16")
    again = make_record(attempt=2, block=0)
    other = make_record(attempt=1, block=0, evidence="emulated")
    study("a", [again, other])
    study("b", [failed, make_record()])
    assert compare("a", "b")[0] == 0


def test_mistakes_are_one_line(study, compare, make_record, results):
    study("good", [make_record()])
    study("failed", [make_record(failure="hung")])
    study("empty", [])
    study("cut", [make_record()])
    study("old", [make_record()])
    (cut,) = (results / "local" / "cut" / "records").iterdir()
    text = cut.read_text()
    cut.write_text(text[:100])
    (old,) = (results / "local" / "old" / "records").iterdir()
    old.write_text(json.dumps(json.loads(text) | {"schema_version": 3}))
    for name, words in {
        "failed": "no good record (1 failed)",
        "empty": "no good record (0 failed)",
        "cut": "not complete JSON",
        str(cut): "not complete JSON",
        "old": "schema version 3",
        "nothing": "no study 'nothing'",
        str(results): "no records in",
    }.items():
        status, said, complaint = compare("good", name)
        assert (status, said) == (1, "")
        assert words in complaint
        assert complaint.count("\n") == 1
    status, _, complaint = compare("good", "good", "--factor", "bakcend")
    assert (status, complaint.count("\n")) == (1, 1)
