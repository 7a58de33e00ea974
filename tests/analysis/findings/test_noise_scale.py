"""The noise scale, the samples at other batches and the predicted time, of trainings that follow the law exactly."""

import json
import math
import os

import numpy as np
import pytest

from dlscale.analysis.findings import solution_table
from dlscale.analysis.findings.noise_scale import law_of_samples, noise_scales
from dlscale.analysis.findings.predicted_solutions import predictions
from dlscale.analysis.launches import launches_of
from dlscale.analysis.measured import WeakScaling, measure
from dlscale.analysis.statistics import half_width, ratio_of_sums
from dlscale.benchmarks.cli.study_report import load
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.records.target import GradientNoise
from tests.analysis.reading import data_of
from tests.made_records import TARGET, make_record, solved, write_study

LEAST, SCALE = 16_000, 64.0  # samples, of E(B) = LEAST (1 + B / SCALE)
SQUARE, LOCAL_BATCH = 2.0, 16


def noise(num_batches, *, factor=1.0):
    """Expected norms for |G|^2 = SQUARE and B_noise = SCALE."""
    trace = factor * SQUARE * SCALE
    return GradientNoise(
        num_batches=num_batches,
        local_square_norm=SQUARE + trace / LOCAL_BATCH,
        mean_square_norm=SQUARE + trace / LOCAL_BATCH / num_batches,
        seconds=0.01,
    )


def training(num_ranks, block, *, rate, drawn=True, least=LEAST, scale=SCALE, end="reached", target=None):
    backend = "ring" if num_ranks > 1 else "none"
    record = make_record(
        target=TARGET | {"evaluate_every": 240} | (target or {}),
        local_batch=LOCAL_BATCH,
        backend=backend,
        num_ranks=num_ranks,
        block=block,
    )
    batch = record.case.cell.global_batch
    steps = round(least * (1 + batch / scale) / batch)
    norms = noise(max(num_ranks, 2), factor=1 + 0.1 * (block - 2.5)) if drawn else None
    last = {"step": steps, "seconds": steps * batch / rate, "auc": 0.95, "noise": norms}
    return solved(record, last, end=end, set_up_seconds=0.4, noise_every=120 * drawn)


def study(rates, **changed):
    """6 seeds on 1, 2 and 4 ranks; `rates` are samples per second by ranks."""
    return measure(
        [
            training(num_ranks, block, rate=rate, **changed)
            for block in range(6)
            for num_ranks, rate in rates.items()
        ]
    )


LINEAR = {1: 100.0, 2: 200.0, 4: 400.0}
FLAT = {1: 100.0, 2: 190.0, 4: 200.0}


def test_gradients_and_samples_give_the_same_scale():
    (found,) = noise_scales(solution_table.FINDING.of(study(LINEAR)))
    assert found.num_draws == 18
    assert found.scale.center == pytest.approx(SCALE)
    assert found.scale.low < SCALE < found.scale.high
    assert found.critical.center == pytest.approx(SCALE, rel=0.01)
    assert found.critical.low == pytest.approx(found.critical.high), "all seeds took the same"
    assert "is 64 [" in found.text


@pytest.mark.parametrize(
    ("scaling", "rates", "num_groups"),
    [
        ("none", {1: 1e-3, 2: 1e-3}, 1),
        ("none", {1: 1e-3, 2: 2e-3}, 2),
        ("linear", {1: 1e-3, 2: 2e-3}, 1),
        ("linear", {1: 1e-3, 2: 1e-3}, 2),
        ("sqrt", {1: 1e-3, 2: math.sqrt(2) * 1e-3}, 1),
    ],
)
def test_only_trainings_by_the_same_rules_are_put_together(scaling, rates, num_groups):
    """The rate may differ as the rule says; evaluations are at other steps."""
    records = [
        training(
            num_ranks,
            block,
            rate=100.0,
            target={"learning_rate": learning_rate, "scaling": scaling, "evaluate_every": 240 // num_ranks},
        )
        for block in range(3)
        for num_ranks, learning_rate in rates.items()
    ]
    assert len(noise_scales(solution_table.FINDING.of(measure(records)))) == num_groups


def test_samples_that_do_not_grow_have_no_critical_batch():
    for table in (study(LINEAR, scale=-640.0), study({1: 100.0})):
        (found,) = noise_scales(solution_table.FINDING.of(table))
        assert found.critical is None
    assert not predictions([found], None), "one number of ranks has no prediction"
    assert law_of_samples(np.array([16.0, 32.0, 64.0]), np.full((1, 3), 3200.0)).scale == math.inf
    law = law_of_samples(np.array([16.0, 32.0]), np.array([[100.0, 90.0], [100.0, 200.0], [100.0, 300.0]]))
    assert law.scale[0] == math.inf
    assert law.scale[1] == pytest.approx(0.0), "every step is needed"
    assert law.scale[2] == 0.0
    assert law.samples(16)[2] == pytest.approx((1 / 100 + 2 / 300) / (1 / 100**2 + 4 / 300**2), rel=0.01)


def test_without_draws_it_says_why():
    (found,) = noise_scales(solution_table.FINDING.of(study(LINEAR, drawn=False)))
    assert (found.scale, found.cost_share) == (None, None)
    assert "was not measured: the records are older." in found.text


def test_time_that_falls_up_to_the_last_ranks_stops_nowhere_within():
    (found,) = predictions(noise_scales(solution_table.FINDING.of(study(LINEAR))), None)
    assert [point.cell.num_ranks for point in found.points] == [1, 2, 4]
    assert (found.best.center, found.stops) == (4, False)
    expected = LEAST * (1 + 64 / SCALE) / 400
    assert found.points[-1].seconds.center == pytest.approx(expected, rel=0.01)
    assert found.points[-1].seconds.low <= expected <= found.points[-1].seconds.high


@pytest.mark.parametrize("drawn", [True, False])  # from gradients, or from the samples of several batches
def test_time_that_stops_falling_names_the_ranks(drawn):
    (found,) = predictions(noise_scales(solution_table.FINDING.of(study(FLAT, drawn=drawn))), None)
    assert found.of_gradients == drawn
    assert (found.best.center, found.stops) == (2, True)


def renamed(record):
    """Its cell, over mpi in place of ring."""
    cell = record.case.cell
    return cell.model_copy(update={"backend": cell.backend.replace("ring", "mpi")})


def test_rates_are_those_of_a_weak_scaling_study_where_there_is_one():
    noises = noise_scales(solution_table.FINDING.of(study({1: 100.0, 2: 150.0})))
    rates = [
        make_record(
            local_batch=LOCAL_BATCH,
            backend="none" if num_ranks == 1 else "ring",
            num_ranks=num_ranks,
            block=block,
        )
        for block in range(7)
        for num_ranks in (1, 2, 8)
    ]
    weak = WeakScaling(study="weak-scaling-1a2b", launches=tuple(launches_of(rates)))
    (found,) = predictions(noises, weak)
    assert found.source == "the rates of weak-scaling-1a2b"
    assert [point.cell.num_ranks for point in found.points] == [1, 2, 8]
    mpi = [r.model_copy(update={"case": r.case.model_copy(update={"cell": renamed(r)})}) for r in rates]
    ring, more = predictions(noises, WeakScaling(study="s", launches=tuple(launches_of(mpi))))
    assert (ring.cell.backend, ring.source) == ("ring", "the trainings' own rates")
    assert (more.cell.backend, more.source) == ("mpi", "the rates of s")
    other = tuple(launches_of([r.model_copy(update={"system": "cori"}) for r in rates]))
    (found,) = predictions(noises, WeakScaling(study="weak-scaling-1a2b", launches=other))
    assert found.source == "the trainings' own rates"


def test_a_report_finds_the_newest_weak_scaling_study_of_the_same_system(tmp_path):
    def write(name, records, study, *, age):
        folder = write_study(tmp_path / "local" / name, records, planned=True, schema=1, study=study)
        os.utime(folder / "records", (age, age))
        return Store(folder)

    rates = [make_record(local_batch=LOCAL_BATCH, block=block) for block in range(2)]
    others = [make_record(local_batch=LOCAL_BATCH + 1, block=block) for block in range(2)]
    trained = [training(1, block, rate=100.0) for block in range(2)]
    target = write("time-to-solution-1", trained, {"scaling_mode": "weak", "target": {}}, age=4e9)
    assert load(target).study.weak_scaling is None
    write("weak-scaling-1", rates, {"scaling_mode": "weak"}, age=1e9)
    write("weak-scaling-2", rates, {"scaling_mode": "weak"}, age=2e9)
    write("weak-scaling-of-another-batch", others, {"scaling_mode": "weak"}, age=3e9)
    write("strong-scaling-1", rates, {"scaling_mode": "strong"}, age=3e9)
    assert load(target).study.weak_scaling.study == "weak-scaling-2"


def test_json_has_it_apart_from_what_was_measured():
    table = study(FLAT)
    found = json.loads(json.dumps(data_of(table)))
    (row,) = found["noise_scales"]
    assert row["noise_scale"] == pytest.approx(SCALE)
    assert row["trace"] == pytest.approx(SQUARE * SCALE)
    assert [row["num_ranks"] for row in found["predicted_solutions"]] == [1, 2, 4]
    assert not any("predicted" in key for row in found["time_to_solution"] for key in row)


@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_the_interval_of_a_ratio_of_sums_covers(spread):
    """Of noisy denominators too, which may be negative; 6 blocks."""
    rng = np.random.default_rng(0)
    hits, unbounded = 0, 0
    for _ in range(2000):
        under = rng.normal(1.0, spread, 6)
        found = ratio_of_sums(5 + rng.normal(0, 1, 6), under)
        if found is not None:
            hits += found.low <= 5 <= (math.inf if found.high is None else found.high)
            unbounded += found.high is None
    assert hits / 2000 >= 0.93
    assert (unbounded > 200) == (spread == 1.0)


def test_no_ratio_of_sums_that_are_not_positive():
    assert ratio_of_sums([1.0, 1.0, 1.0], [1.0, -2.0, 0.5]) is None
    assert ratio_of_sums([1.0, 1.0], [1.0, -1.0]) is None
    assert ratio_of_sums([], []) is None


def test_a_ratio_of_sums_has_an_interval_from_three_blocks_on():
    two = ratio_of_sums([1.0, 3.0], [0.25, 0.25])
    assert (two.center, two.low, two.n) == (8.0, None, 2)
    three = ratio_of_sums([7.0, 9.0, 8.0], [0.25, 0.25, 0.25])
    assert [three.low, three.high] == pytest.approx([32 - 4 * half_width(3), 32 + 4 * half_width(3)])
