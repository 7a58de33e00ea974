"""Time to a target from records with known times, steps and ends."""

import numpy as np
import pytest

from dlscale.analysis.findings.evaluations import trainings
from dlscale.analysis.findings.solution import FINDING
from dlscale.analysis.load import Study
from dlscale.benchmarks.records.record import EnergyReading
from dlscale.models.optimizers import optimizer_rule
from tests.analysis.findings.made_trainings import (
    EVALUATING,
    LAUNCH,
    SET_UP,
    one_and_two_ranks,
    saved,
    training,
)
from tests.made_records import TARGET


def rows(records):
    frame = FINDING.of(Study(records))
    return {row["name"]: row for row in frame.to_dict("records")}


def said(records):
    return FINDING.sentence(FINDING.of(Study(records)))


def test_the_speed_up_of_training_is_the_product_of_two_ratios():
    ring = rows(one_and_two_ranks())["ring"]
    assert ring["rate_ratio"] == pytest.approx(1.6)
    assert ring["samples_ratio"] == pytest.approx(1.2)
    assert ring["training_speed_up"] == pytest.approx(1.6 / 1.2)
    assert ring["rate_ratio_low"] == pytest.approx(ring["rate_ratio_high"]), "noise of a block is in both"
    assert ring["evaluating_share"] == pytest.approx(0.5 / (0.5 + 15.0 * 1.05), rel=1e-3)
    assert ring["base"] == "none on 1 rank"
    assert np.isnan(rows(one_and_two_ranks())["none"]["speed_up"]), "the base itself"


def test_the_time_counts_from_the_launch():
    alone = rows(one_and_two_ranks())["none"]
    seconds = [LAUNCH + SET_UP + EVALUATING + 200 * 0.1 * (1 + 0.02 * block) for block in range(6)]
    assert alone["seconds"] == pytest.approx((seconds[2] + seconds[3]) / 2)
    assert (alone["seconds_low"], alone["seconds_high"]) == (
        pytest.approx(seconds[0]),
        pytest.approx(seconds[-1]),
    )
    assert alone["node_hours_low"] == pytest.approx(seconds[0] / 3600)
    assert alone["seconds_per_epoch_n"] != 6, "no record says how many samples an epoch has"


def test_a_later_failure_may_take_all_its_time_after_its_start():
    """All 6 arrived alike: the upper limit is that of the share alone."""
    records = [training(steps=100, step_seconds=0.1, block=block) for block in range(6)]
    row = rows(records)["none"]
    each = LAUNCH + SET_UP + EVALUATING + 10
    reached = 0.0125 ** (1 / 6)  # Clopper-Pearson at half the error
    assert row["expected_seconds"] == row["expected_seconds_low"] == pytest.approx(each)
    odds = (1 - reached) / reached
    assert row["expected_seconds_high"] == pytest.approx(each + odds * (60 + LAUNCH + SET_UP))


@pytest.mark.parametrize("missed", [{"end": "budget", "auc": 0.8}, {"end": "diverged", "auc": None}])
def test_one_training_that_missed_leaves_no_ratio_and_counts_as_the_longest(missed):
    records = one_and_two_ranks({2: missed})
    ring = rows(records)["ring"]
    assert ring["reached"] == "5/6"
    assert np.isnan([ring["speed_up"], ring["rate_ratio"], ring["samples_ratio"], ring["seconds_high"]]).all()
    assert ring["reached_share"] == pytest.approx(5 / 6)
    assert ring["expected_seconds"] > ring["seconds"]
    assert said(records) == "11 of 12 trainings reached auc 0.9."


def test_where_most_missed_it_the_closest_value_is_known():
    missed = {block: {"end": "budget", "auc": 0.8 + block / 100} for block in range(6)}
    ring = rows(one_and_two_ranks(missed))["ring"]
    assert np.isnan([ring["seconds"], ring["samples"], ring["expected_seconds"], ring["node_hours"]]).all()
    assert (ring["closest"], ring["front"]) == (pytest.approx(0.85), "")


def ways(*, num_seeds=8):
    """Trainings on 2 ranks: the ring, late gradients, elastic averaging, slow gloo, servers of which one misses."""
    records = []
    for block in range(num_seeds):
        noise = 1 + 0.05 * block
        own = {"num_ranks": 2, "block": block, "step_seconds": 0.1 * noise, "backend": "ring"}
        served = own | {"backend": "mpi_ps", "num_servers": 1, "algorithm": "downpour"}
        records += [
            training(steps=100 + block, **own),
            training(steps=86 + 6 * block, backend_options={"pipelined": True}, **own),
            training(steps=50 + block, algorithm="easgd", **own),
            training(steps=100, **own | {"step_seconds": 0.3 * noise, "backend": "gloo"}),
            training(steps=90, end="reached" if block else "budget", **served).model_copy(
                update={"staleness": {0: 10, 1: 80, 2: 9, 5: 1}}
            ),
        ]
    return records


def test_ways_of_training_are_compared_with_synchronous_sgd_over_the_ring():
    found = rows(ways())
    assert {name: row["verdict"] for name, row in found.items()} == {
        "ring": "reference",
        "ring (pipelined=True)": "not shown",
        "ring easgd": "sooner",
        "gloo": "later",
        "mpi_ps downpour": "1 missed it",
    }
    assert found["ring easgd"]["reference_rate_ratio"] == pytest.approx(1)
    assert found["ring easgd"]["synchronous_speed_up"] == found["ring easgd"]["reference_speed_up"]
    assert found["gloo"]["reference"] == "ring on 2 ranks"
    assert np.isnan(found["mpi_ps downpour"]["reference_speed_up"])
    assert found["mpi_ps downpour"]["synchronous"] == "", "was not measured"
    assert found["mpi_ps downpour"]["mean_staleness"] == pytest.approx(1.03)
    assert "39 of 40 trainings reached auc 0.9. Times as fast as ring on 2 ranks: gloo 0." in said(ways())


def test_nothing_is_ranked_without_an_interval():
    assert {row["verdict"] for row in rows(ways(num_seeds=1)).values()} == {
        "reference",
        "too few seeds",
        "1 missed it",
    }
    assert (
        said(one_and_two_ranks(num_seeds=1))
        == "2 of 2 trainings reached auc 0.9; too few seeds to compare times."
    )
    assert said(one_and_two_ranks()).startswith(
        "12 of 12 trainings reached auc 0.9. Times as fast on 2 ranks as none on 1 rank: ring 1.2"
    )
    assert Study(one_and_two_ranks()).title == "Time of HEP-CNN to auc 0.9 on local"


def test_of_a_busy_machine_nothing_is_claimed(monkeypatch):
    monkeypatch.setattr("dlscale.analysis.findings.cautions.is_busy", lambda _: True)
    assert rows(ways())["gloo"]["verdict"] == "busy machine"
    assert (
        said(ways()) == "39 of 40 trainings reached auc 0.9; the machine was busy, so times are not compared."
    )


def test_rates_that_are_tried_have_bases_of_their_own():
    records = []
    for rate, steps in ((1e-3, 100), (2e-3, 80)):
        target = TARGET | {"learning_rate": rate}
        for block in range(3):
            own = {"target": target, "step_seconds": 0.1, "block": block}
            records.append(training(steps=2 * steps, **own))
            records.append(training(steps=steps, backend="ring", num_ranks=2, **own))
    found = rows(records)
    assert [row["learning_rate"] for row in found.values()] == [1e-3, 2e-3, 1e-3, 2e-3]
    assert found["ring, learning rate 0.002"]["base"] == "none, learning rate 0.002 on 1 rank"
    assert found["ring, learning rate 0.002"]["samples_ratio"] == pytest.approx(1)


def test_the_front_has_what_nothing_beats_in_time_and_cost():
    records = [
        training(steps=100, step_seconds=0.1),
        training(steps=60, step_seconds=0.1, backend="ring", num_ranks=2),
        training(steps=80, step_seconds=0.1, backend="gloo", num_ranks=2, num_nodes=2),
    ]
    assert {name: row["front"] for name, row in rows(records).items()} == {
        "none": "core-hours",
        "ring": "node-hours, core-hours",
        "gloo": "",
    }


def test_energy_is_that_of_the_samples_that_were_needed():
    """10 windows of 5 steps of 16 samples take 80 J."""
    record = training(steps=100, step_seconds=0.1)
    read = EnergyReading(rank=0, node="n", source="rapl", joules=80.0, seconds=4.0)
    row = rows([record.model_copy(update={"energy": [read]})])["none"]
    assert row["kilojoules"] == pytest.approx(100 * 16 * 80 / 800 / 1000)
    assert row["front"] == "node-hours, core-hours, energy"
    assert rows([record])["none"]["front"] == "node-hours, core-hours"


def test_a_training_of_several_launches_counts_what_led_to_its_end():
    whole = [training(steps=100, step_seconds=0.1, block=block) for block in (0, 1)]
    # The second launch saved nothing that a later one went on from, and the third began where it had.
    study = Study([*saved(whole[0], 0, 40, 40), *saved(whole[1], 0)])
    assert trainings(study)["seconds"].tolist() == [
        pytest.approx(2 * 2.5 + 0.25 + 2 * 1.0 + 100 * 0.1 + EVALUATING),
        pytest.approx(2.5 + 1.0 + 100 * 0.1 + EVALUATING),
    ]
    (row,) = FINDING.of(study).to_dict("records")
    assert row["num_resumed"] == 1
    assert row["saving_share"] == pytest.approx((2.25 / 17.75 + 1 / 14) / 2)
    anew = saved(whole[0], 20, 0)  # somebody deleted the checkpoint
    assert trainings(Study(anew))["seconds"].tolist() == [pytest.approx(2.5 + 1.0 + 100 * 0.1 + EVALUATING)]
    assert np.isnan(rows(saved(whole[0], 0, 40, set_up=None))["none"]["seconds"])


def test_a_row_has_the_rules_for_large_batches_and_the_time_of_an_epoch():
    target = TARGET | {
        "scaling": "linear",
        "schedule": {"first_rate": 1e-3, "warm_up_samples": 640, "decay_samples": [1000, 2000]},
        "optimizer": optimizer_rule("sgd", momentum=0.5),
    }
    row = rows([training(steps=40, step_seconds=0.5, num_training=800, target=target)])["none"]
    assert row["rules"] == (
        "decay_samples=[1000, 2000], momentum=0.5, name=sgd, scaling=linear, warm_up_samples=640"
    )
    # The made-up windows: 16 samples at 100 samples per second.
    assert (row["seconds_per_step"], row["seconds_per_epoch"]) == (pytest.approx(0.16), pytest.approx(8))
