"""The trainings of a study of time to solution, and targets that are refused."""

import math

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import Cell
from dlscale.benchmarks.study.study import load_study
from tests.benchmarks.study.test_study import cells, plan


def targets(**target):
    found = plan("time-to-solution", target=target, ranks=[1, 2, 4], num_cores=4)
    return {cell.num_ranks: cell.target for cell in cells(found)}


def test_one_rank_trains_without_a_communication_layer_and_all_others_over_one():
    found = cells(plan("time-to-solution", ranks=[1, 2, 4], num_cores=4, launches=1))
    assert sorted((cell.num_ranks, cell.backend) for cell in found) == [
        (1, "none"),
        *((2, backend) for backend in ("gloo", "ring")),
        *((4, backend) for backend in ("gloo", "ring")),
    ]
    assert {cell.control for cell in found} == {"train"}


def test_without_none_the_backends_train_on_one_rank_too():
    found = cells(plan("time-to-solution", backends=["ring"], launches=1))
    assert {cell.num_ranks for cell in found} == {1, 2}


def test_evaluations_come_after_equal_numbers_of_samples():
    assert {ranks: target.evaluate_every for ranks, target in targets(evaluate_samples=3200).items()} == {
        1: 200,
        2: 100,
        4: 50,
    }
    assert {target.evaluate_every for target in targets(evaluate_samples=1).values()} == {1}


def test_evaluations_come_after_equal_seconds_where_the_user_says_so():
    found = targets(evaluate_seconds="5s")
    assert {(target.evaluate_every, target.evaluate_seconds) for target in found.values()} == {(None, 5.0)}
    assert "evaluate_every" not in found[1].model_dump()
    assert "evaluate_seconds" not in targets()[1].model_dump(), "cells by samples have the ids that they had"
    assert "evaluate_seconds" not in load_study("time-to-solution").model_dump()["target"]


@pytest.mark.parametrize(("scaling", "growth"), [("none", 1), ("linear", 4), ("sqrt", 2)])
def test_the_learning_rate_follows_the_batch_as_asked(scaling, growth):
    found = targets(learning_rate=2e-3, learning_rate_scaling=scaling)
    assert found[1].learning_rate == 2e-3
    assert math.isclose(found[4].learning_rate, growth * 2e-3)


def test_the_rate_warms_up_from_that_of_1_rank_and_decays_as_asked():
    found = targets(
        learning_rate=2e-3, learning_rate_scaling="linear", warm_up_samples=640, decay_samples=[1000, 2000]
    )
    assert found[1].rate(0) == found[1].rate(640) == 2e-3
    assert found[4].rate(0) == 2e-3
    assert math.isclose(found[4].rate(320), 5e-3)
    assert math.isclose(found[4].rate(999), 8e-3)
    assert math.isclose(found[4].rate(2000), 8e-5)
    assert targets()[4].rate(10**9) == 1e-3, "constant"


def test_a_growing_batch_is_recorded_and_needs_its_samples():
    assert targets(growth_samples=[100, 200])[2].growth.model_dump() == {"samples": [100, 200], "factor": 5}
    with pytest.raises(UsageError, match="one global batch of 8000: give more samples"):
        targets(growth_samples=[100, 200, 300])


def test_an_optimizer_by_name_is_recorded_with_all_its_terms():
    found = targets(learning_rate=2.0, optimizer="lars", weight_decay=0.0)[4]
    assert found.model_dump()["optimizer"] == {
        "name": "lars",
        "momentum": 0.9,
        "weight_decay": 0.0,
        "trust_coefficient": 1e-3,
    }
    assert targets()[4].optimizer is None


def test_without_rules_for_large_batches_studies_and_cells_are_written_as_before():
    found = load_study("time-to-solution").model_dump()["target"]
    assert "optimizer" not in found
    assert "warm_up_samples" not in found
    assert {"schedule", "optimizer"} & set(targets()[1].model_dump()) == set()
    asked = load_study("time-to-solution", target={"decay_samples": [5], "decay_factor": 0.5})
    assert type(asked).model_validate_json(asked.model_dump_json()) == asked


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"warm_up_samples": 10}, "set target.learning_rate_scaling to linear or sqrt"),
        (
            {"warm_up_samples": -1, "learning_rate_scaling": "sqrt"},
            "target.warm_up_samples: input should be greater than",
        ),
        ({"growth_factor": 2}, "no use without growth_samples"),
        ({"growth_samples": [5], "growth_factor": 1}, "target.growth_factor: input should be greater"),
        ({"decay_factor": 0.5}, "no use without decay_samples"),
        ({"decay_samples": [9, 5]}, "9,5 are not in ascending order"),
        ({"optimizer": "lars"}, "optimizer lars needs a learning rate"),
        ({"optimizer": "adam", "learning_rate": 0.1, "momentum": 0.5}, "adam has no momentum"),
        ({"momentum": 0.5}, "momentum 0.5 needs an optimizer by name"),
        (
            {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 1.0},
            "target.momentum: input should be less",
        ),
    ],
)
def test_rules_that_do_not_fit_together_are_refused_in_one_line(target, words):
    with pytest.raises(UsageError, match=words) as refused:
        load_study("time-to-solution", target=target)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"growth_samples": [50]}, "target.growth_samples over grpc_ps: its servers"),
        (
            {"decay_samples": [50]},
            "target.decay_samples over grpc_ps: its servers make the updates, with one",
        ),
        ({"warm_up_samples": 50, "learning_rate_scaling": "linear"}, "target.warm_up_samples over grpc_ps"),
        (
            {"optimizer": "larc", "learning_rate": 0.1},
            "optimizer larc over grpc_ps: its servers hold pieces",
        ),
    ],
)
def test_servers_make_plain_updates_alone(target, words):
    with pytest.raises(UsageError, match=words):
        plan("time-to-solution", backends=["grpc_ps"], target=target)


def test_rates_and_goals_come_from_the_user_then_the_study_then_the_workload():
    assert targets()[1].learning_rate == 1e-3
    small = cells(plan("time-to-solution", preset="small", batch=2))[0].target
    assert (small.metric, small.threshold, small.learning_rate) == ("auc", 0.94, 1e-3)
    asked = targets(metric="signal_efficiency", threshold=0.5)[1]
    assert (asked.metric, asked.threshold) == ("signal_efficiency", 0.5)


def test_a_target_is_part_of_the_cell_and_its_absence_leaves_names_as_they_were():
    with_target = cells(plan("time-to-solution"))[0]
    without = with_target.model_copy(update={"target": None})
    assert with_target.id != without.id
    assert Cell.model_validate_json(with_target.model_dump_json()) == with_target
    assert "target" not in without.model_dump()


def test_the_plan_knows_about_how_long_it_takes():
    known = plan("time-to-solution", launches=1)
    assert known.seconds(known.launches) < 60
    unknown = plan("time-to-solution", launches=1, target={"goals": {}, "metric": "auc", "threshold": 0.5})
    assert unknown.seconds(unknown.launches) > 3 * 60, "up to a minute each"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"metric": "auc", "threshold": 1.2}, "can never be reached"),
        ({"metric": "auc", "threshold": -0.1}, "can never be reached"),
        ({"metric": "f1", "threshold": 0.5}, "no metric 'f1'; choose one of: auc"),
        ({"metric": "signal_efficiency"}, "has no target; give one, e.g. --target signal_efficiency=0.9"),
        (
            {"evaluate_samples": 960, "evaluate_seconds": 5.0},
            "give either evaluate_samples or evaluate_seconds",
        ),
        ({"evaluate_seconds": 60.0}, "max_seconds = 60 are over before the first evaluation"),
        ({"evaluate_seconds": 0.0}, "evaluate_seconds: input should be greater than 0"),
        ({"evaluate_seconds": "soon"}, "evaluate_seconds"),
        ({"held_out": 1e-6}, "holds out 0 and leaves 4000"),
        ({"held_out": 0.9999}, "one global batch of 32"),
        ({"max_seconds": 0.001}, "an evaluation on 503 held-out samples takes about 0.033 s alone"),
    ],
)
def test_what_cannot_be_reached_is_refused(target, words):
    with pytest.raises(UsageError, match=words):
        plan("time-to-solution", target=target)


def test_every_gradient_has_to_count_and_somebody_to_have_the_whole_network():
    assert plan("time-to-solution", backends=["grpc_ps"], backend_options={"grpc_ps": {"asynchronous": True}})
    with pytest.raises(
        UsageError, match=r"grpc_ps\.backup_workers in time-to-solution: gradients of some ranks"
    ):
        plan(
            "time-to-solution",
            frameworks=["tensorflow"],
            ranks=[2],
            backends=["grpc_ps"],
            backend_options={"grpc_ps": {"backup_workers": 1}},
        )
    maps = {"metric": "pixel_distance", "threshold": 0.5, "goals": {}}
    with pytest.raises(UsageError, match="cosmogan over grpc_ps: servers do not have what batch norm keeps"):
        plan("time-to-solution", workloads=["cosmogan"], preset="tiny", backends=["grpc_ps"], target=maps)


def test_every_grid_of_a_search_has_as_many_rates():
    grid = {"algorithm": "downpour", "rates": [0.1, 0.2]}
    with pytest.raises(
        UsageError, match="the grid of downpour has 2 rates and search has 3; give as many to each"
    ):
        plan("time-to-solution", target={"search": [1e-3, 2e-3, 4e-3], "grids": [grid]})
    with pytest.raises(UsageError, match="ascending, each there once"):
        plan("time-to-solution", target={"search": [1e-3, 2e-3], "grids": [grid | {"rates": [0.2, 0.1]}]})


def test_only_this_study_has_a_target():
    with pytest.raises(UsageError, match=r"belongs to time-to-solution: leave target\.learning_rate out"):
        load_study("weak-scaling", target={"learning_rate": 1e-3})
    with pytest.raises(UsageError, match=r"end at their target: leave out rules\.train_steps"):
        load_study("time-to-solution", rules={"train_steps": 100})


def test_trainings_are_saved_where_their_state_is_on_every_rank():
    assert plan("time-to-solution", backends=["ring"], rules={"checkpoint_every": 50}).launches
    with pytest.raises(UsageError, match="do not work with backend grpc_ps, whose servers hold part"):
        plan("time-to-solution", backends=["grpc_ps"], rules={"checkpoint_every": 50})
