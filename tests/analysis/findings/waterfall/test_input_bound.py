"""Nobody waits for samples longer than fetching takes: the input stall stays within what fetching alone takes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dlscale.analysis.findings.waterfall import LOSSES as LOSS_TABLE
from dlscale.analysis.findings.waterfall import headline, loss_rows, waterfall_rows
from dlscale.analysis.findings.waterfall_levels import INPUT_TERMS, InputBound, Levels, difference
from dlscale.analysis.findings.waterfall_parts import waterfalls_of
from dlscale.analysis.launches import launches_of

from .conftest import LOSSES, MS, Planted, losses, only, plant

CONTROLS = ("alone", "synthetic", "loader")
FETCHING = Planted(base_input=0.01 * MS, input=0.05 * MS, co_running=0.3 * MS, exposed=1 * MS)


def part_of(found, name):
    return next(part for part in found.parts if part.name == name)


@pytest.mark.parametrize("seed", range(8))
def test_what_the_controls_differ_by_is_drawn_within_what_fetching_takes(seed):
    free = only(plant(FETCHING, noise=0.05, seed=seed))
    found = only(plant(FETCHING, noise=0.05, seed=seed, controls=CONTROLS))
    stall, co_running = part_of(found, "input stall"), part_of(found, "sharing the machine")
    assert found.bound.high == pytest.approx(0.013 / 0.942, rel=0.2)
    assert found.bound.low <= stall.loss.low <= stall.loss.center <= stall.loss.high <= found.bound.high
    assert co_running.loss.low <= co_running.loss.center <= co_running.loss.high
    assert sum(part.loss.center for part in found.parts) == pytest.approx(found.loss.center, abs=1e-12)
    assert free.bound is None


def test_a_stall_that_noise_put_outside_is_told_with_what_was_measured():
    found = only(plant(FETCHING, noise=0.05, seed=0, controls=CONTROLS))
    stall = part_of(found, "input stall")
    assert abs(stall.by_controls) > 0.02
    assert abs(stall.loss.center) < 0.02
    (note,) = found.notes
    assert note.startswith(f"input stall bounded to {100 * stall.loss.center:.1f} %")
    assert f"the controls differ by {100 * stall.by_controls:.1f} %" in note
    row = next(row for row in waterfall_rows([found]) if row["cause"] == "input stall")
    assert (row["loss"], row["loss_by_controls"]) == (stall.loss.center, stall.by_controls)
    assert (row["bound_low"], row["bound_high"]) == (found.bound.low, found.bound.high)
    others = [row for row in waterfall_rows([found]) if row["cause"] != "input stall"]
    assert {row["bound_high"] for row in others} == {None}
    assert "input stall" not in headline(found)
    shown = [[value.text for value in row.values] for row in LOSS_TABLE.of(loss_rows([found])).rows]
    (texts,) = [texts for texts in shown if "input stall" in texts]
    assert f"at most {100 * stall.loss.high:.1f}" in texts


@pytest.mark.parametrize("kind", LOSSES)
def test_what_was_planted_is_within_its_bound(kind):
    truth = Planted(**LOSSES[kind])
    found = only(plant(truth, controls=CONTROLS))
    assert losses(found) == pytest.approx(truth.losses, abs=1e-12)
    assert all(part.loss.low <= part.loss.center <= part.loss.high < math.inf for part in found.parts)


def test_without_fetching_on_1_rank_only_the_upper_limit_holds():
    records = [
        one
        for one in plant(FETCHING, noise=0.05, controls=CONTROLS)
        if (one.case.cell.control, one.case.cell.num_ranks) != ("loader", 1)
    ]
    found = only(records)
    assert found.bound.low == -math.inf
    row = next(row for row in waterfall_rows([found]) if row["cause"] == "input stall")
    assert row["bound_low"] is None


@pytest.mark.parametrize("num_blocks", [3, 6, 10])
def test_the_intervals_of_parts_hold_their_level_within_the_bound(num_blocks):
    """Fetching takes 0.2 of a step of 11 on N ranks, and 0.1 on 1; the noise of the controls is ten times that."""
    generator = np.random.default_rng(2016)
    steps = {
        "ideal": 8.0,
        "ideal_resident": 7.95,
        "resident": 8.4,
        "mean": 8.6,
        "latest": 9.0,
        "measured": 11.0,
    }
    bound = InputBound(low=-0.1 / 11, high=0.2 / 11)
    co_running = difference({"resident": 1}, {"ideal_resident": 1})
    hits = np.zeros(2)
    widths = np.zeros((2, 2))
    for _ in range(1000):
        drift = 0.2 * generator.standard_normal(num_blocks)
        launch = {name: 0.03 * generator.standard_normal(num_blocks) for name in steps}
        launch["latest"] = launch["mean"]
        near = {name: seconds * np.exp(drift + launch[name]) for name, seconds in steps.items()}
        levels = Levels(near=near, far={}, bound=bound)
        for index, (terms, truth) in enumerate(((INPUT_TERMS, 0.15 / 11), (co_running, 0.45 / 11))):
            found = levels.bounded_share(terms)
            hits[index] += found.low <= truth <= found.high
            free = replace(levels, bound=None).bounded_share(terms)
            widths[index] += [found.high - found.low, free.high - free.low]
    assert min(hits / 1000) >= 0.935
    assert widths[0, 0] < 0.5 * widths[0, 1]
    assert widths[1, 0] < widths[1, 1]


@pytest.mark.parametrize(
    ("resident", "noise", "stall", "least", "ends"),
    [
        (5.0, 0.01, 0.02, -0.01, (-0.02, 0.01)),  # the stall is certainly outside of its bound,
        (5.0, 0.01, 0.02, -math.inf, (-0.02, -0.02)),
        (7.95, 0.3, 0.005, -0.01, (-0.02, 0.01)),  # or it may be anything
    ],
)
def test_within_the_bound_of_the_stall_other_parts_are_as_certain_as_without_it(
    resident, noise, stall, least, ends
):
    """Fetching takes `least` to 0.02 of a step. The interval is that of the sum without the stall, and the bound."""

    def level(seconds, logs, noise=0.01):
        return seconds * np.exp(noise * np.array(logs))

    near = {
        "measured": np.full(4, 10.0),
        "ideal": level(4, [1, -1, 2, -2]),
        "ideal_resident": level(4, [0, 1, 0, -1]),
        "resident": level(resident, [2, 0, -2, 0], noise),
        "mean": level(8, [-1, 1, 1, -1]),
    }
    levels = Levels(near=near, far={}, bound=InputBound(low=least, high=0.02))
    found = levels.bounded_share({"resident": 1, "ideal_resident": -1})
    rest = levels.share({"mean": 1, "ideal": -1})
    assert (found.low, found.center, found.high) == pytest.approx(
        (rest.low + ends[0], rest.center - stall, rest.high + ends[1])
    )


def test_a_gain_is_never_among_the_largest_losses():
    truth = Planted(co_running=-0.4 * MS, exposed=0.8 * MS, reads=False)
    told = 0
    for seed in range(20):
        (found,) = waterfalls_of(launches_of(plant(truth, noise=0.06, seed=seed, num_windows=2)))
        gains = {part.name for part in found.parts if part.loss.center <= 0}
        assert not gains & set(found.rivals)
        assert not gains & set(found.largest_names)
        verdicts = {row["cause"]: row["verdict"] for row in waterfall_rows([found])}
        assert {verdicts[name] for name in gains} <= {"gain"}
        told += bool(gains) and not found.separated and not found.rivals and bool(found.largest_names)
    assert told
