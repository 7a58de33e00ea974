"""Sleep in the place of computation: how it is asked for, when gradients are ready, and what a replica makes of it."""

import time

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import main
from dlscale.models import load_workload
from dlscale.models.slept import Sleeper, Slept, read_slept
from dlscale.models.workload import Execution, Input, Shard

SLEPT = Slept(forward_seconds=0.02, backward_seconds=0.06)
PROFILED = Slept(
    forward_seconds=0.02,
    backward_seconds=0.06,
    source="weak-scaling, a cell",
    digest="0123456789ab",
    ready={"a.weight": 0.06, "a.bias": 0.03, "b.weight": 0.01, "c.weight": 0.05, "c.bias": 0.05},
)


def test_seconds_are_read_with_their_units():
    assert read_slept("sleep:20ms,60ms") == SLEPT
    assert read_slept("real") is None
    assert SLEPT.text == "sleep of 20 + 60 ms for computation"


@pytest.mark.parametrize(
    "text", ["sleep", "sleep:20ms", "sleep:20,40", "nap:1s,1s", "sleep:-1ms,1ms", "sleep:2h,1s"]
)
def test_other_texts_are_no_computation(text):
    with pytest.raises(ValueError, match=r"write real, or sleep|is not in seconds|at most"):
        read_slept(text)


def test_sleeps_add_up():
    sleeper, begin = Sleeper(most=0.05), time.perf_counter()
    for _ in range(100):
        sleeper.sleep(0.0005)
    assert time.perf_counter() - begin >= 0.05 - 0.001


@pytest.mark.nightly
def test_what_is_computed_meanwhile_is_a_part_of_the_sleep():
    sleeper, begin = Sleeper(most=0.2), time.perf_counter()
    sleeper.sleep(0.01, since=begin - 0.1)  # 90 ms too long, which the next ones take less
    sleeper.sleep(0.08)
    assert time.perf_counter() - begin < 0.01
    sleeper.sleep(0.02)
    assert time.perf_counter() - begin >= 0.01


def test_a_rank_that_was_stopped_makes_up_for_one_step_at_most():
    sleeper, begin = Sleeper(most=0.01), time.perf_counter()
    sleeper.sleep(0.01, since=begin - 60)
    for _ in range(3):
        sleeper.sleep(0.01)
    assert time.perf_counter() - begin >= 0.02 - 0.001


def test_objectives_share_a_sleep():
    first, second = SLEPT.passes([["a", "b", "c"], ["d"]])
    assert (first.forward_seconds, second.forward_seconds) == (0.01, 0.01)
    assert [place for place, _ in first.gradients] == [2, 1, 0]
    assert [seconds for _, seconds in first.gradients] == pytest.approx([0.01] * 3)
    assert second.gradients == ((0, 0.03),)


def test_by_a_profile_gradients_are_ready_when_they_were_measured():
    first, second = PROFILED.passes([["a.weight", "a.bias", "b.weight"], ["c.weight", "c.bias"]])
    assert (first.forward_seconds, second.forward_seconds) == (0.02, 0.0)
    assert [place for place, _ in first.gradients] == [2, 1, 0]
    assert [seconds for _, seconds in first.gradients] == pytest.approx([0.01, 0.02, 0.03])
    # After those of the first objective, though the profile had them before: objectives have an order here.
    assert second.gradients == ((1, 0.0), (0, 0.0))


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["a.weight", "a.bias", "b.weight"], r"only the profile has the gradient c\.bias"),
        (
            [*PROFILED.ready, "d.weight"],
            r"0123456789ab \(weak-scaling, a cell\): only the network .* d\.weight",
        ),
    ],
)
def test_a_profile_of_other_gradients_is_refused(names, problem):
    with pytest.raises(UsageError, match=problem):
        PROFILED.passes([names])


def test_only_a_profile_adds_fields_and_its_digest():
    assert SLEPT.model_dump() == {"forward_seconds": 0.02, "backward_seconds": 0.06}
    assert Slept.model_validate(PROFILED.model_dump()) == PROFILED
    assert PROFILED.text == "sleep of 20 + 60 ms for computation, profile 0123456789ab"


@pytest.mark.requires("torch")
def test_a_replica_sleeps_and_has_gradients_of_the_real_sizes_last_layer_first():
    workload = load_workload("hep_cnn")
    build = workload.factory(
        framework="torch", preset="tiny", local_batch=2, source=Input(), execution=Execution(slept=SLEPT)
    )
    replica = build(shard=Shard(index=0, count=1), seed=1)
    ready: list[tuple[int, float]] = []
    (objective,) = replica.objectives
    for index, parameter in enumerate(objective.parameters):
        parameter.register_post_accumulate_grad_hook(
            lambda _, index=index: ready.append((index, time.perf_counter() - begin))
        )
    batch = replica.next_batch()
    begin = time.perf_counter()
    loss = objective.loss(*batch)
    assert time.perf_counter() - begin >= 0.02
    loss.backward()
    number = len(objective.parameters)
    assert [index for index, _ in ready] == list(reversed(range(number)))
    for place, (_, seconds) in enumerate(ready, start=1):
        assert seconds >= 0.02 + 0.06 * place / number - 0.002
    mean = float(batch[0].double().mean())
    for gradient, weight in zip(replica.gradients(), replica.weights(), strict=True):
        np.testing.assert_array_equal(gradient, np.full_like(weight, mean))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--system", "local"), "compute=sleep on local, which is not emulated"),
        (("--system", "emulated-4", "--set", "compiled=yes"), "there is nothing to compile"),
    ],
)
def test_where_sleep_stands_for_nothing_it_is_refused(capsys, words, reason):
    with pytest.raises(SystemExit) as caught:
        main(["run", "weak-scaling", "--dry-run", "--set", "compute=sleep:20ms,60ms", *words])
    assert caught.value.code == 1
    assert reason in capsys.readouterr().err


def test_sleep_learns_nothing():
    from dlscale.benchmarks.study.sizes import check_slept
    from dlscale.benchmarks.study.study import load_study
    from dlscale.benchmarks.systems.system import load_system

    study = load_study("time-to-solution", slept=SLEPT)
    with pytest.raises(UsageError, match="sleep learns nothing"):
        check_slept(study, load_system("emulated-4"))


def test_the_forward_pass_is_shared_out_as_backpropagation_is():
    assert SLEPT.passes([["a", "b", "c"], ["d"]])[0].forward() == pytest.approx([0.01 / 3] * 3)
    first, second = PROFILED.passes([["a.weight", "a.bias", "b.weight"], ["c.weight", "c.bias"]])
    assert first.forward() == pytest.approx([0.01, 0.02 / 3, 0.01 / 3])
    assert second.forward() == [0, 0]
