"""Predictions beside measured numbers: which belong to a study, their errors, and where they are shown."""

import json
from dataclasses import replace

import pytest

from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all, scaling
from dlscale.analysis.findings.predicted_points import comparison_sentence, place_predictions, placed_row
from dlscale.analysis.findings.scaling import scaling_rows
from dlscale.analysis.measured import measure
from dlscale.analysis.render.markdown import study_markdown
from dlscale.base.errors import UsageError
from tests.analysis.made_predictions import prediction, predictions
from tests.analysis.reading import data_of, screen_text, table_text
from tests.made_records import make_record, make_study


@pytest.fixture
def table():
    return measure(make_study())


def beside(table, *records):
    return replace(table, predictions=records)


def test_the_error_is_that_of_the_rate_and_the_band_is_compared_with_the_measured_one():
    records = [
        make_record(backend="ring", num_ranks=n, block=b, samples_per_second=100 * n)
        for n in (1, 2)
        for b in range(6)
    ]
    (first, second, third), left = place_predictions(
        [prediction("ring", n, efficiency=1.05, half=half) for n, half in ((1, 0.1), (2, 0.01), (4, 0.1))],
        scaling.FINDING.of(measure(records)),
    )
    assert left == ()
    assert (first.error, second.error) == (pytest.approx(0.05), pytest.approx(0.05))
    assert (first.inside, second.inside) == (True, False)
    assert (third.error, third.inside, third.measured) == (None, None, None)
    assert comparison_sentence([first, second, third]) == (
        "Predictions against 2 measured sizes: 1 inside the band; the rate is wrong by 5.0 % in the median, by +5.0 % "
        "at worst (ring on 1 rank (1 node))."
    )
    assert comparison_sentence([third]) == ""


@pytest.mark.parametrize(
    "other",
    [
        {"system": "cori"},
        {"workload": "resnet50"},
        {"preset": "paper"},
        {"framework": "tensorflow"},
        {"local_batch": 16},
        {"scaling_mode": "strong"},
    ],
)
def test_what_trains_something_else_belongs_to_no_family(table, other):
    points, (sentence,) = place_predictions([prediction("ring", 2, **other)], scaling.FINDING.of(table))
    assert points == ()
    assert sentence.startswith("1 prediction of ")
    assert sentence.endswith(": the study has no such training")


def test_what_fits_several_trainings_is_of_none():
    rows = scaling.FINDING.of(measure([*make_study(), *make_study(precision="bf16")]))
    points, (sentence,) = place_predictions([prediction()], rows)
    assert points == ()
    assert "the study has 2 such trainings, which differ in what predictions do not state" in sentence


@pytest.mark.parametrize(
    ("cell", "record", "name", "held"),
    [
        ({}, {}, "ring", True),
        ({"backend_options": {"teams": 0}}, {}, "ring", False),
        ({"backend_options": {"teams": 0}}, {"backend_options": {"teams": 0}}, "ring (teams=0)", True),
        # That ports are open changes nothing that is predicted, and the curve has the measured one's name.
        ({"backend_options": {"check_every": 7}}, {}, "ring (check_every=7)", True),
        ({}, {"exchange_algorithm": "two_level_ring"}, "ring (algorithm=two_level_ring)", False),
        ({}, {"num_nodes": 2}, "ring", False),
        ({}, {"num_servers": 1}, "ring", False),
        ({"algorithm": "easgd"}, {}, "ring", False),
    ],
)
def test_it_is_held_against_the_same_backend_size_and_modelled_options(cell, record, name, held):
    rows = scaling.FINDING.of(
        measure([make_record(backend="ring", num_ranks=2, block=b, **cell) for b in range(6)])
    )
    ((point,), _) = place_predictions([prediction("ring", 2, **record)], rows)
    assert point.name == name
    assert (point.error is not None) is held


def test_nodes_of_servers_count_as_in_a_cell():
    size = {"num_ranks": 4, "num_servers": 2}
    rows = scaling.FINDING.of(
        measure([make_record(backend="grpc_ps", num_nodes=3, block=b, **size) for b in range(6)])
    )
    ((point,), _) = place_predictions([prediction("grpc_ps", 4, num_servers=2, num_nodes=2)], rows)
    assert point.cell == (4, 3)
    assert point.error is not None


def test_an_emulated_number_is_called_so():
    rows = scaling.FINDING.of(
        measure(
            [
                make_record(backend="ring", num_ranks=2, block=b, evidence="emulated", samples_per_second=200)
                for b in range(6)
            ]
        )
    )
    ((point,), _) = place_predictions([prediction("ring", 2)], rows)
    assert placed_row(point)["measured_evidence"] == "emulated"
    assert "against 1 emulated size:" in comparison_sentence([point])


def test_two_predictions_of_one_point_are_refused(table):
    with pytest.raises(
        UsageError, match=r"two predictions of ring on 2 ranks \(1 node\), hep_cnn tiny in torch"
    ):
        place_predictions([prediction(), prediction(engine_version="2")], scaling.FINDING.of(table))


def test_a_base_of_several_ranks_has_no_predicted_efficiency():
    records = make_study(rank_counts=(2, 4))
    ((point,), _) = place_predictions(
        [prediction("ring", 4)], scaling.FINDING.of(measure(records, base="smallest"))
    )
    assert point.efficiency_none is None
    assert point.throughput.center == 360


def test_nothing_measured_changes_by_what_stands_beside_it(table):
    plain, both = (data_of(table), data_of(beside(table, *predictions())))
    rows = both.pop("predicted")
    assert plain.pop("predicted") == []
    assert json.loads(json.dumps(both)) == json.loads(json.dumps(plain))
    assert [row["num_ranks"] for row in rows] == [1, 2, 4, 8, 16]
    assert {row["evidence"] for row in rows} == {"simulated"}
    assert [row["inside_band"] for row in rows] == [True, True, None, None, None]
    assert {"error", "measured_samples_per_second", "measured_evidence", "engine", "profile_digest"} <= set(
        rows[0]
    )
    assert scaling_rows(beside(table, *predictions())) == scaling_rows(table)


def test_predictions_are_shown_apart_and_only_where_there_are_some(table):
    both = beside(table, *predictions(doubts=("beyond 64 times",)), prediction("mpi", 4))
    for shown in (table_text(both), study_markdown(collect(load_all(), both), origin="here")):
        assert "Predicted: simulated, nothing of it was run" in shown
    assert "Predictions over ring are not to be trusted: beyond 64 times" in screen_text(both)
    assert "Predict" not in table_text(table) + screen_text(table)
