"""`dlscale compare` of one study, of two and of several, as a user types it; and which fields differ."""

import json

import pytest

from dlscale.benchmarks.cli import main
from tests.made_records import make_record, make_study, write_study

KEPT = {"none": (1.0, 0.98), "ring": (0.99, 0.92), "mpi": (0.985, 0.86)}


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def study(results):
    """Write a study of these records, with its backends in this order; its folder."""

    def write(name, records, backends=("none", "mpi", "ring", "gloo")):
        described = {"backends": list(backends), "frameworks": ["torch", "tensorflow"]}
        return write_study(results / "local" / name, records, planned=True, study=described)

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


def test_one_study(study, compare):
    study("a", make_study(efficiency={**KEPT, "ring@x": (0.9, 0.9)}, num_blocks=7))
    status, said, _ = compare("a")
    assert status == 0
    assert "ring is faster than mpi on 2 ranks (+5.5 % [+4.1, +6.9], corrected p 0.031, 7 launches)" in said
    assert "ring@x mpi 2" in said
    assert "slower than ring" in compare("a", "--reference", "ring")[1]
    study("b", make_study(efficiency=KEPT), backends=("ring", "mpi"))
    assert "slower than ring on 2 ranks" in compare("b")[1]


def test_fewer_comparisons_need_fewer_blocks(study, compare):
    study("a", make_study())
    assert "too few launches: 6 cannot decide 2 comparisons, --launches 7 can" in compare("a")[1]
    study("b", make_study(num_blocks=4))
    status, said, _ = compare("b", "--json")
    rows = json.loads(said)["comparison"]
    assert (status, {row["blocks_needed"] for row in rows}) == (4, {7})
    assert {row["verdict"] for row in rows} == {"cannot be shown"}


def test_frameworks(study, compare):
    records = [
        record
        for framework in ("torch", "tensorflow")
        for record in make_study(efficiency=KEPT, num_blocks=10, noise=0.002, framework=framework)
    ]
    study("a", records)
    status, said, _ = compare("a", "--by", "framework", "--reference", "torch", "--ranks", "2")
    assert status == 0
    assert "tensorflow and torch are within 2 % of each other over ring on 2 ranks" in said


def test_what_failed_and_what_was_left_out(study, compare):
    records = make_study(efficiency={"ring": (1.0, 0.9), "mpi": (1.0, 0.8)})
    failed = [make_record(backend="gloo", num_ranks=2, block=block, failure="hung") for block in range(6)]
    other = make_study(efficiency=KEPT, framework="tensorflow")
    study("a", records + failed + other)
    said = compare("a", "--reference", "gloo")[1]
    assert "every launch of gloo failed" in said
    assert "Not compared: hep_cnn tensorflow has no gloo." in said


def test_two_studies_are_shown_beside_each_other_below_their_fields(study, compare):
    study("a-1", make_study(efficiency=KEPT, study="a-1"))
    folder = study("b-1", make_study(efficiency=dict.fromkeys(KEPT, (1.5, 1.5)), study="b-1"))
    status, said, _ = compare("a", folder)
    assert status == 0
    assert "compared at 6 points with equal backend, num_ranks" in said
    assert "to know study a-1 b-1" in said
    assert said.index("compared at") < said.index("B versus A")
    assert said.endswith("comparable")
    assert "nothing is claimed" in said
    assert "is 50" not in said
    found = json.loads(compare("a", "b", "--json")[1])
    assert len(found["between"]) == 6
    assert {(row["num_a"], row["num_b"]) for row in found["between"]} == {(6, 6)}


def test_what_is_not_comparable_is_not_set_side_by_side(study, compare):
    study("a", make_study())
    study("b", make_study(precision="bf16", environment="x[bold]y"))
    status, said, _ = compare("a", "b")
    assert status == 3
    assert "blocks precision fp32 bf16" in said
    assert "x[bold]y" in said
    assert "not comparable: A and B differ in precision" in said
    assert "B versus A" not in said
    status, said, _ = compare("a", "b", "--json")
    found = json.loads(said)
    assert (status, found["schema"], found["comparable"], found["between"]) == (3, 2, False, [])
    assert found["factors"] == ["backend", "num_ranks"]
    assert found["differences"][0] == {
        "field": "case.cell.precision",
        "factor": "precision",
        "title": "precision",
        "class": "blocking",
        "blocks": True,
        "a": ["fp32"],
        "b": ["bf16"],
        "num_points": 8,
    }
    status, said, _ = compare("a", "b", "--by", "backend,num_ranks,precision")
    assert status == 0
    assert "comparable; 1 of the differences" in said


def test_only_the_latest_good_attempts_count(study, compare):
    study("a", [make_record(attempt=2), make_record(attempt=1, evidence="emulated")])
    study("b", [make_record(failure="hung", precision="bf16"), make_record()])
    assert compare("a", "b")[0] == 0


def test_of_several_the_newest_is_beside_the_earlier_ones_and_their_range(study, compare):
    for day, rate in enumerate((97.0, 100.0, 103.0, 80.0)):
        rates = {"none": 100.0, "ring": rate}
        facts = {"study": f"day-{day}", "started_at": f"2026-11-2{day}T12:00:00+00:00"}
        study(
            f"day-{day}",
            [
                make_record(backend=backend, samples_per_second=rate, block=block, **facts)
                for backend, rate in rates.items()
                for block in range(6)
            ],
        )
    names = ["day-3", "day-0", "day-1", "day-2"]
    status, said, _ = compare(*names)
    assert status == 0
    assert "1 of 2 trainings outside the range" in said
    study_json = json.loads(compare(*names, "--json")[1])
    assert study_json["study"] == "day-3"
    none, ring = sorted(study_json["earlier"], key=lambda row: row["backend"])
    assert (none["outside"], ring["outside"]) == (False, True)
    assert ring["change"] == pytest.approx(-0.2)
    assert (ring["earlier_low"], ring["earlier_high"], ring["num_earlier"]) == pytest.approx((97, 103, 3))
    study("other", [make_record(precision="bf16", study="other")])
    status, _, told = compare("other", *names)
    assert status == 3
    assert "A: other, B: day-3: not comparable" in told


def test_mistakes_are_one_line(study, compare, results):
    study("good", make_study())
    study("failed", [make_record(failure="hung")])
    study("empty", [])
    (cut,) = (study("cut", [make_record()]) / "records").iterdir()
    cut.write_text(cut.read_text()[:100])
    (old,) = (study("old", [make_record()]) / "records").iterdir()
    old.write_text(json.dumps(json.loads(old.read_text()) | {"schema_version": 3}))
    cases = {
        ("failed",): "no good record",
        ("empty",): "no good record",
        ("cut",): "not complete JSON",
        ("old",): "schema version 3",
        ("nothing",): "no study 'nothing'",
        (results,): "no study",
        ("good", "--reference", "ring"): "apply to one study",
        ("--by", "backend,framework"): "give a single factor",
    }
    for words, complaint in cases.items():
        status, said, told = compare("good", *words)
        assert (status, said, told.count("\n")) == (1, "", 1), words
        assert complaint in told
