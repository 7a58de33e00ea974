"""`--predicted` of report, figures, compare, proposal and export: files by name, and refusals in one line."""

import csv
import json

import pytest

from dlscale.benchmarks.cli import INSUFFICIENT_DATA
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
    answer = json.loads(out)
    assert [row["num_ranks"] for row in answer["predicted"]] == [1, 2, 4, 8, 16]
    plain = json.loads(told("report", "--json")[1])
    assert plain["predicted"] == []
    assert answer["scaling"] == plain["scaling"]


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
    (line,) = err.splitlines()
    assert line.startswith(
        "not shown: 1 prediction of resnet50 tiny in torch, weak scaling on local, batch 8: "
    )


def test_a_study_is_compared_with_its_predictions_size_by_size(told):
    status, out, _ = told("compare", STUDY, "--predicted", "latest", "--json")
    rows = json.loads(out)["rows"]
    assert status == 0
    assert [row["num_ranks"] for row in rows] == [1, 2]
    assert rows[0]["error"] == pytest.approx(0.99 / 0.95 - 1)
    assert [row["inside_band"] for row in rows] == [True, True]
    status, out, _ = told("compare", STUDY, "--predicted", "latest")
    assert status == 0
    assert "Predictions (simulated) of 2 measured sizes: 2 inside the band" in " ".join(out.split())


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
    words = ["weak-scaling", "--system", "cori", "--nodes", "1,2,4,8"]
    assert told("predict", *words)[0] == 0
    folder = str(place.parent / "cori" / STUDY)
    status, out, err = told("compare", folder, "--predicted", "latest", "--json")
    rows = json.loads(out)["rows"]
    assert (status, err) == (0, "")
    assert [(row["num_ranks"], row["inside_band"]) for row in rows] == [(1, False), (2, False), (4, False)]
    assert all(
        row["error"] == pytest.approx(row["samples_per_second"] / 20 / row["num_ranks"] - 1) for row in rows
    )


def test_predictions_of_sizes_that_were_not_measured_are_insufficient(told, place):
    path = place / "large.jsonl"
    write_predictions(predictions(ranks=(64, 128)), path)
    status, _, err = told("compare", STUDY, "--predicted", str(path))
    assert status == INSUFFICIENT_DATA
    assert err == f"{STUDY} measured none of the predicted sizes (64, 128 ranks)\n"


def test_a_proposal_has_a_table_of_its_own_for_them_and_no_node_hours(told, place):
    status, out, _ = told("proposal", "--predicted", "latest", "--samples", "1000000")
    assert status == 0
    text = (place / STUDY / "proposal" / "proposal.md").read_text()
    assert "they are simulated, and no measurements" in text
    assert "Hollow markers are simulated" in text
    assert text.splitlines()[2].startswith("**Caution: Evidence is measured and simulated")
    assert "on 2 ranks (1 node) takes" in out  # the largest measured size
    with next((place / STUDY / "proposal").glob("*-predicted.csv")).open() as file:
        rows = list(csv.DictReader(file))
    assert [row["num_ranks"] for row in rows] == ["1", "2", "4", "8", "16"]


def test_tidy_tables_and_markdown_have_them_apart(told, place):
    assert told("export", "tidy", STUDY, "--predicted", "latest")[0] == 0
    tables = place / STUDY / "tables"
    with (tables / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["num_ranks"], row["evidence"]) for row in rows] == [
        (str(n), "simulated") for n in (1, 2, 4, 8, 16)
    ]
    assert float(rows[1]["samples_per_second_low"]) < float(rows[1]["samples_per_second"])
    with (tables / "launches.csv").open() as file:
        assert {row["evidence"] for row in csv.DictReader(file)} == {"measured"}
    status, out, _ = told("export", "markdown", STUDY, "--predicted", "latest")
    assert status == 0
    assert "Evidence is measured and simulated" in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["report", "--predicted", "resnet50"], "no predictions 'resnet50' in "),
        (["report", "--predicted", "none.jsonl"], "choose one of: hep_cnn-tiny-torch-weak-scaling.jsonl"),
        (["compare", STUDY, STUDY, "--predicted", "latest"], "compared with the numbers of one study"),
        (["compare", STUDY, "--ranks", "2", "--predicted", "latest"], "leave out --by"),
        (["figures", "--published", "--predicted", "latest"], "are of a study's figures"),
    ],
)
def test_a_mistake_is_one_line(place, mistake, words, text):
    assert text in mistake(*words, "--results", place.parent)


def test_predictions_of_another_system_belong_to_no_study_here(mistake, place):
    path = place / "cori.jsonl"
    write_predictions([prediction(system="cori")], path)
    line = mistake("report", "--predicted", path, "--results", place.parent)
    assert "predicted is hep_cnn tiny in torch, weak scaling on cori, batch 8; the study has" in line
    assert not (place / STUDY / "report.html").exists()
