"""The trainings of a study of time to solution, and targets that are refused."""

import math

import pytest

from tests.benchmarks.study.plans import cells, plan


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


def test_an_optimizer_by_name_is_recorded_with_all_its_terms():
    found = targets(learning_rate=2.0, optimizer="sgd", momentum=0.9)[4]
    assert found.model_dump()["optimizer"] == {"name": "sgd", "momentum": 0.9}
    assert targets()[4].optimizer is None


def test_rates_and_goals_come_from_the_user_then_the_study_then_the_workload():
    assert targets()[1].learning_rate == 1e-3
    small = cells(plan("time-to-solution", preset="small", batch=2))[0].target
    assert (small.metric, small.threshold, small.learning_rate) == ("auc", 0.94, 1e-3)
    asked = targets(metric="signal_efficiency", threshold=0.5)[1]
    assert (asked.metric, asked.threshold) == ("signal_efficiency", 0.5)


def test_the_plan_knows_about_how_long_it_takes():
    known = plan("time-to-solution", launches=1)
    assert known.seconds(known.launches) < 60
    unknown = plan("time-to-solution", launches=1, target={"goals": {}, "metric": "auc", "threshold": 0.5})
    assert unknown.seconds(unknown.launches) > 3 * 60, "up to a minute each"


def test_servers_may_be_asynchronous_and_trainings_saved():
    assert plan("time-to-solution", backends=["grpc_ps"], backend_options={"grpc_ps": {"asynchronous": True}})
    assert plan("time-to-solution", backends=["ring"], rules={"checkpoint_every": 50}).launches
