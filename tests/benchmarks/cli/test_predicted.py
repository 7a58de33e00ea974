"""`--predicted` of report and proposal: files by name, and refusals in one line."""

import csv
import json

import pytest

from dlscale.benchmarks.records.prediction import write_predictions
from tests.analysis.made_predictions import prediction, predictions
from tests.made_records import make_record, write_study

STUDY = "weak-scaling-1a2b3c4d"
pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def place(tmp_path):
    """Results with a study over none and ring on 1 and 2 ranks, and with its system's predictions."""
    folder = tmp_path / "results" / "local"
    write_study(
        folder / STUDY,
        [
            make_record(backend=backend, num_ranks=n, block=b, samples_per_second=95 * n)
            for backend in ("none", "ring")
            for n in (1, 2)
            for b in range(6)
        ],
        planned=True,
    )
    (folder / "predictions").mkdir()
    write_predictions(predictions(), folder / "predictions" / "hep_cnn-tiny-torch-weak-scaling.jsonl")
    return folder


@pytest.fixture
def told(place, dlscale):
    """Run a verb on these results: (exit status, standard output, standard error)."""
    return lambda *words: dlscale(*words, "--results", place.parent)


@pytest.mark.parametrize("named", ["latest", "hep_cnn", "PATH"])
def test_files_are_named_by_path_by_their_beginning_or_all_of_the_system(told, place, named):
    (path,) = (place / "predictions").iterdir()
    status, out, err = told("report", "--json", "--predicted", str(path) if named == "PATH" else named)
    assert (status, err) == (0, "")
    rows = json.loads(out)["predicted"]
    assert [row["num_ranks"] for row in rows] == [1, 2, 4, 8, 16]
    assert rows[0]["error"] == pytest.approx(0.99 / 0.95 - 1)
    assert [row["inside_band"] for row in rows] == [True, True, None, None, None]
    plain = json.loads(told("report", "--json")[1])
    assert plain["predicted"] == []
    assert json.loads(out)["scaling"] == plain["scaling"]


def test_screen_and_page_have_them_only_where_they_were_asked_for(told, place):
    status, out, _ = told("report", "--predicted", "latest")
    assert status == 0
    assert "Predictions (simulated) of 2 measured sizes: 2 inside the band" in " ".join(out.split())
    assert "Predicted, not measured" in (place / STUDY / "report.html").read_text()
    told("report")
    assert "Predicted, not measured" not in (place / STUDY / "report.html").read_text()


def test_what_belongs_to_another_training_is_told_and_left_out(told, place):
    write_predictions([prediction(workload="resnet50")], place / "predictions" / "resnet50.jsonl")
    status, out, err = told("report", "--json", "--predicted", "latest")
    assert status == 0
    assert len(json.loads(out)["predicted"]) == 5
    assert err.startswith("not shown: 1 prediction of resnet50 tiny in torch")


def test_what_predict_writes_belongs_to_a_study_of_the_same_system(told, place):
    machine = {"system": "cori", "framework": "tensorflow", "preset": "paper", "local_batch": 128}
    write_study(
        place.parent / "cori" / STUDY,
        [
            make_record(
                backend="ring", num_ranks=n, num_nodes=n, block=b, samples_per_second=20 * n, **machine
            )
            for n in (1, 2, 4)
            for b in range(6)
        ],
        planned=True,
    )
    assert told("predict", *["weak-scaling", "--system", "cori", "--nodes", "1,2,4,8"])[0] == 0
    folder = str(place.parent / "cori" / STUDY)
    status, out, err = told("report", folder, "--predicted", "latest", "--json")
    rows = [row for row in json.loads(out)["predicted"] if row["error"] is not None]
    assert (status, err) == (0, "")
    assert [(row["num_ranks"], row["inside_band"]) for row in rows] == [(1, False), (2, False), (4, False)]


def test_a_proposal_has_a_table_of_its_own_for_them_and_no_node_hours(told, place):
    status, out, _ = told("proposal", "--predicted", "latest", "--samples", "1000000")
    assert status == 0
    text = (place / STUDY / "proposal" / "proposal.md").read_text()
    assert "they are simulated, and no measurements" in text
    assert text.splitlines()[2].startswith("**Caution: Evidence is measured and simulated")
    assert "on 2 ranks (1 node) takes" in out  # the largest measured size
    with next((place / STUDY / "proposal").glob("*-predicted.csv")).open() as file:
        rows = list(csv.DictReader(file))
    assert [row["num_ranks"] for row in rows] == ["1", "2", "4", "8", "16"]


def test_a_mistake_is_one_line(place, mistake):
    write_predictions([prediction(system="cori")], path := place / "cori.jsonl")
    for words, text in (
        (["report", "--predicted", "resnet50"], "no predictions 'resnet50' in "),
        (["report", "--predicted", "none.jsonl"], "choose one of: hep_cnn-tiny-torch-weak-scaling.jsonl"),
        (
            ["report", "--predicted", path],
            "predicted is hep_cnn tiny in torch, weak scaling on cori, batch 8",
        ),
        (["figures", "--published", "--predicted", "latest"], "--predicted is of a study"),
    ):
        assert text in mistake(*words, "--results", place.parent)
    assert not (place / STUDY / "report.html").exists()
