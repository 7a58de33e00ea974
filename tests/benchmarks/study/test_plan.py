"""How long a plan's launches take, by hand: a step of the workloads here takes 0.08 s."""

import pytest

from dlscale.base.quantities import Quantity
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.study.plan import Launch, Plan, Shape, machine_pace
from dlscale.benchmarks.study.study import load_study
from dlscale.models import load_workload
from tests.made_records import make_record

STEP = 0.08  # 4 ranks per node with a batch of 2, at a published 0.01 s per sample of a node
AUDITS = 0.25 + 4 * STEP + 2 * 1.0  # of a training: two steps, and a window in twice its time
START = 2.4 + 4 * STEP + AUDITS
RULES = {"warmup_steps": 10, "min_windows": 5, "min_window_seconds": 1.0, "min_steps": 20}
WINDOWS = 1.35 * 5 * 1.0  # with their warm-up
LONG_STEPS = START + 2 * (STEP - 1.0)


def a_cell(**changes):
    fields = {"backend": "ring", "num_ranks": 2, "preset": "paper", "local_batch": 2}
    return make_record(**fields | changes).case.cell


def a_launch(*controls, block=0, **changes):
    cells = [a_cell(control=control, **changes) for control in controls or ("train",)]
    return Launch(cases=tuple(Case(cell=cell, block=block, position=0) for cell in cells), data=None)


def a_plan(*launches, budget=None, rules=None, ranks_per_node=4, **options):
    shape = Shape(
        ranks=(2,), ranks_per_node=ranks_per_node, num_cores=4, cores_per_rank=1, threads_per_rank=1
    )
    return Plan(
        study=load_study("weak-scaling", budget=budget, rules=RULES | (rules or {})),
        launches=launches,
        num_launches=1,
        shape=shape,
        sample_times={"hep_cnn": Quantity(value="10 ms", number=0.01, source="paper")},
        **options,
    )


@pytest.mark.parametrize(
    ("controls", "cell", "rules", "seconds"),
    [
        ((), {}, {}, START + WINDOWS),
        ((), {}, {"min_window_seconds": 0.0}, LONG_STEPS + (20 + 10) * STEP),
        ((), {}, {"min_window_seconds": 0.0, "min_windows": 25}, LONG_STEPS + (25 + 10) * STEP),
        ((), {}, {"min_window_seconds": 0.0, "warmup_steps": 30}, LONG_STEPS + (20 + 30) * STEP),
        (("train", "exchange"), {}, {}, START + WINDOWS + 0.6),
        (("train", "loader"), {}, {}, START + WINDOWS + 0.6),
        (
            ("train", "synthetic"),
            {"backend": "none", "compiled": True},
            {},
            3 * 30 + START + AUDITS + 2 * WINDOWS,
        ),
        ((), {"framework": "tensorflow"}, {}, 5.7 + 4 * STEP + AUDITS + 0.25 + WINDOWS),
    ],
)
def test_a_launch_takes_its_start_and_its_cases(controls, cell, rules, seconds):
    launch = a_launch(*controls, **cell)
    assert a_plan(launch, rules=rules).seconds([launch]) == pytest.approx(seconds)
    assert a_plan(launch, rules=rules).seconds([launch, launch]) == pytest.approx(2 * seconds)
    assert a_plan(launch).seconds([]) == 0


def test_what_is_left_of_the_budget_is_shared_by_all_cases_but_short_ones():
    launches = (a_launch("train", "exchange"), a_launch("train", "synthetic", backend="none"))
    plan = a_plan(*launches, budget="100s")
    share = (100 - 2 * START - AUDITS - 0.6) / 3
    assert plan.budget_per_case == pytest.approx(share)
    assert plan.seconds(launches) == pytest.approx(100)
    assert plan.seconds(launches[:1]) == pytest.approx(START + share + 0.6)
    part = a_plan(launches[0], budget="100s", known_budget_per_case=17.0)
    assert part.seconds(launches[:1]) == pytest.approx(START + 17.0 + 0.6)
    assert (a_plan(a_launch()).budget_per_case, a_plan(budget="10s").budget_per_case) == (0, 10)
    assert a_plan(a_launch(), budget="1s").budget_per_case == pytest.approx(1 - START)


def test_a_slower_machine_takes_longer_but_for_the_length_of_windows():
    launch = a_launch(preset="tiny")
    windows = 1.35 * 5 + 2.0
    usual, slow = (a_plan(launch, pace=pace).seconds([launch]) - windows for pace in (1.0, 1.5))
    assert slow == pytest.approx(1.5 * usual)
    assert 0.05 < machine_pace() < 50


@pytest.mark.parametrize(("device", "speed"), [("cpu", 2 * 50e9), ("gpu", 5e12)])
def test_without_a_published_speed_the_operations_of_three_forward_passes_count(device, speed):
    flops = load_workload("hep_cnn").preset("tiny").forward_flops_per_sample
    launch = a_launch(preset="tiny", cores_per_rank=2, device=device)
    expected = 2.4 + 0.25 + 2.0 + 8 * (3 * 2 * flops / speed) + 1.35 * 5
    assert a_plan(launch).seconds([launch]) == pytest.approx(expected)


def test_workers_and_servers_fit_where_each_has_its_cores():
    plan = a_plan(ranks_per_node=None)  # 4 cores
    assert plan.sharing(a_cell(num_ranks=2, cores_per_rank=2)) == 1
    assert plan.sharing(a_cell(num_ranks=3, num_servers=1)) == 1
    assert plan.sharing(a_cell(num_ranks=4, num_servers=1)) == 5 / 4
    assert plan.sharing(a_cell(num_ranks=3, cores_per_rank=2)) == 6 / 4
    assert a_plan(ranks_per_node=4).sharing(a_cell(num_ranks=64)) == 1, "the scheduler finds the nodes"


def test_the_digest_is_that_of_the_cells_whatever_their_order():
    first, second = a_launch(block=0), a_launch(block=1)
    assert a_plan(first, second).digest == a_plan(second, first).digest
    assert len({a_plan(first).digest, a_plan(second).digest, a_plan(first, second).digest}) == 3
