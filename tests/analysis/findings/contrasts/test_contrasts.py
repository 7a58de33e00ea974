"""Planted differences, and what is said of them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.findings.contrast_declaration import Declaration, Declared
from dlscale.analysis.findings.contrast_table import contrasts_json
from dlscale.analysis.findings.contrasts import CONTRAST_BAND, contrasts, within_band
from dlscale.analysis.statistics import Interval

WOBBLE = (0.002, -0.001, 0.003, -0.002, 0.001, -0.003, 0.002, -0.002, 0.001, -0.001)


def steadily(log, num_blocks, noise=1.0):
    """Log ratios around one, with a little noise that is never the same."""
    return [log + noise * WOBBLE[block % 10] for block in range(num_blocks)]


def verdicts(found):
    return {one.contender.name: one.verdict for one in found.found}


def test_a_difference_is_found_with_its_size(declaration):
    (found,) = contrasts(declaration(ring=steadily(math.log(1.08), 6))).found
    assert found.verdict == "faster"
    assert found.ratio.center == pytest.approx(1.08, rel=0.002)
    assert found.ratio.low < 1.08 < found.ratio.high
    assert (found.ratio.method, found.num_blocks) == ("paired t", 6)
    assert (found.p_value, found.p_adjusted) == (1 / 32, 1 / 32)
    assert found.standardised.low > 1
    assert found.without is None


def test_six_blocks_carry_one_comparison_and_not_two(declaration):
    one = contrasts(declaration(ring=steadily(0.1, 6)))
    assert (verdicts(one), one.blocks_needed) == ({"ring": "faster"}, 6)
    two = contrasts(declaration(ring=steadily(0.1, 6), gloo=steadily(-0.1, 6)))
    assert verdicts(two) == {"ring": "cannot be shown", "gloo": "cannot be shown"}
    assert two.blocks_needed == 7
    assert not two.shown
    assert {one.reason for one in two.found} == {"6 launches cannot decide 2 comparisons: --launches 7 can"}
    # Nothing is hidden: what was seen is there.
    assert two.found[0].ratio.center == pytest.approx(math.exp(0.1), rel=0.002)
    enough = contrasts(declaration(ring=steadily(0.1, 7), gloo=steadily(-0.1, 7)))
    assert verdicts(enough) == {"ring": "faster", "gloo": "slower"}


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 4, 5])
def test_five_blocks_carry_none(declaration, num_blocks):
    (found,) = contrasts(declaration(ring=steadily(0.5, num_blocks))).found
    assert found.verdict == "cannot be shown"
    assert (
        found.reason
        == f"{num_blocks} launch{'es' * (num_blocks > 1)} cannot decide 1 comparison: --launches 6 can"
    )


def test_what_is_within_the_band_is_alike_however_certain_the_difference(declaration):
    found = contrasts(declaration(ring=steadily(0.01, 10, noise=0.1)))
    assert found.found[0].p_adjusted < 0.01
    assert verdicts(found) == {"ring": "alike"}
    # For that no test is needed, and so fewer blocks.
    assert verdicts(contrasts(declaration(ring=steadily(0.001, 3)))) == {"ring": "alike"}


def test_noise_that_hides_a_difference_hides_it(declaration):
    found = contrasts(declaration(ring=steadily(0.03, 10, noise=40)))
    assert verdicts(found) == {"ring": "not shown"}
    assert found.shown


def test_all_blocks_agree_but_the_interval_does_not(declaration):
    """One wild block: the signs are certain, the size is not, and a claim needs both."""
    (found,) = contrasts(declaration(ring=[0.03, 0.031, 0.032, 0.033, 0.034, 1.0])).found
    assert found.p_adjusted == 1 / 32
    assert found.ratio.low < 1
    assert found.verdict == "not shown"


def test_a_contrast_that_is_certain_makes_room_for_the_next(declaration):
    """Holm: with 10 blocks for the one, 6 are enough for the other; the same 6 alone were not enough for two."""
    found = contrasts(declaration(ring=steadily(0.1, 10), gloo=steadily(0.1, 6)))
    assert verdicts(found) == {"ring": "faster", "gloo": "faster"}
    beside_nothing = contrasts(declaration(ring=steadily(0.03, 10, noise=40), gloo=steadily(0.1, 6)))
    assert verdicts(beside_nothing) == {"ring": "not shown", "gloo": "not shown"}
    assert beside_nothing.found[1].p_adjusted == 1 / 16


def test_who_fails_still_counts_as_declared(declaration, make_side):
    pairs = declaration(ring=steadily(0.1, 6)).pairs
    failed = Declared(contender=make_side("gloo", {}), reference=pairs[0].reference)
    found = contrasts(Declaration(factor="backend", pairs=(*pairs, failed)))
    assert verdicts(found) == {"ring": "cannot be shown", "gloo": "cannot be shown"}
    assert found.found[1].reason == "every launch of gloo failed"
    assert (found.found[1].ratio, found.found[1].p_value) == (None, None)
    turned = Declared(contender=pairs[0].reference, reference=make_side("gloo", {}))
    (other,) = contrasts(Declaration(factor="backend", pairs=(turned,))).found
    assert other.reason == "every launch of gloo failed"


def test_unpaired_is_seen_labelled_and_never_claimed(make_side):
    pair = Declared(
        contender=make_side("ring", {block: 200.0 + block for block in range(10)}),
        reference=make_side("mpi", {block + 10: 100.0 + block for block in range(10)}),
    )
    (found,) = contrasts(Declaration(factor="backend", pairs=(pair,))).found
    assert found.ratio.method == "unpaired t"
    assert found.ratio.low > 1.8
    assert (found.verdict, found.num_blocks, found.p_value) == ("cannot be shown", 0, None)
    assert found.reason.startswith("no block in common")


def test_only_common_blocks_count(make_side):
    pair = Declared(
        contender=make_side("ring", dict.fromkeys(range(8), 110.0)),
        reference=make_side("mpi", dict.fromkeys(range(4, 12), 100.0)),
    )
    (found,) = contrasts(Declaration(factor="backend", pairs=(pair,))).found
    assert (found.num_blocks, found.ratio.n) == (4, 4)


def test_what_may_not_be_compared_is_not(declaration):
    def never(pair):
        return f"the networks of {pair.contender.name} and {pair.reference.name} differ"

    (one,) = contrasts(declaration(ring=steadily(0.1, 8)), forbidden=never).found
    assert (one.verdict, one.reason) == ("cannot be shown", "the networks of ring and mpi differ")
    assert (one.ratio, one.standardised, one.p_value) == (None, None, None)


def test_outlying_launches_count_and_the_ratio_without_them_is_beside(declaration):
    logs = steadily(0.1, 8)
    logs[3] -= 0.5
    declared = declaration(ring=logs)
    cell = declared.pairs[0].contender.cell.id
    (found,) = contrasts(declared, flagged={(cell, "measured"): {("s", 3)}}).found
    assert found.num_blocks == 8
    assert found.ratio.center == pytest.approx(math.exp(np.mean(logs)))
    assert found.without.n == 7
    assert found.without.center == pytest.approx(math.exp(0.1), rel=0.002)
    (elsewhere,) = contrasts(declared, flagged={(cell, "measured"): {("s", 11)}}).found
    assert elsewhere.without is None
    (few,) = contrasts(declared, flagged={(cell, "measured"): {("s", block) for block in range(6)}}).found
    assert few.without is None


@given(st.lists(st.floats(-0.2, 0.2), min_size=3, max_size=12))
def test_the_other_way_round_says_the_same(make_side_, logs):
    over, under = [100 * math.exp(log) for log in logs], [100.0] * len(logs)
    there, back = (
        contrasts(Declaration(factor="backend", pairs=(pair,))).found[0]
        for pair in (
            Declared(contender=make_side_("ring", over), reference=make_side_("mpi", under)),
            Declared(contender=make_side_("mpi", under), reference=make_side_("ring", over)),
        )
    )
    assert back.verdict == {"faster": "slower", "slower": "faster"}.get(there.verdict, there.verdict)
    assert back.ratio.center == pytest.approx(1 / there.ratio.center)
    assert back.p_adjusted == there.p_adjusted


@pytest.fixture(scope="module")
def make_side_():
    """As `make_side`, once for all of hypothesis's examples."""
    from dlscale.analysis.families import family_of
    from dlscale.analysis.findings.contrast_declaration import Side
    from dlscale.benchmarks.records.record import Cell

    def make(name, rates):
        cell = Cell(
            workload="hep_cnn",
            preset="tiny",
            framework="torch",
            backend=name,
            environment="default",
            scaling_mode="weak",
            num_ranks=2,
            cores_per_rank=1,
            threads_per_rank=1,
            local_batch=8,
            global_batch=16,
            precision="fp32",
            data="synthetic",
        )
        return Side(
            name=name,
            cell=cell,
            family=family_of(cell, system="local"),
            evidence="measured",
            rates=dict(enumerate(rates)),
        )

    return make


def test_where_the_band_ends():
    def interval(low, high):
        return Interval(center=(low * high) ** 0.5, low=low, high=high, level=0.95, method="paired t", n=6)

    assert CONTRAST_BAND == 0.02
    assert within_band(interval(0.981, 1.019))
    assert not within_band(interval(0.98, 1.0))  # 1 / 1.02 is 0.9804
    assert not within_band(interval(1.0, 1.0201))
    assert not within_band(Interval(center=1.0, low=None, high=None, level=0.95, method="none", n=2))


def test_a_study_over_16_blocks(declaration):
    assert verdicts(contrasts(declaration(ring=steadily(0.05, 20)))) == {"ring": "faster"}


def test_rows_for_programs(declaration):
    found = contrasts_json(contrasts(declaration(ring=steadily(0.1, 6), gloo=steadily(0.001, 6))))
    assert (found["schema"], found["factor"], found["num_declared"], found["blocks_needed"]) == (
        1,
        "backend",
        2,
        7,
    )
    ring, gloo = found["rows"]
    assert (ring["contender"], ring["reference"], ring["num_ranks"], ring["workload"]) == (
        "ring",
        "mpi",
        2,
        "hep_cnn",
    )
    assert (ring["verdict"], gloo["verdict"], gloo["reason"]) == ("cannot be shown", "alike", None)
    assert ring["ratio_low"] < ring["ratio"] < ring["ratio_high"]
    assert (ring["p_value"], ring["p_adjusted"], ring["num_blocks"]) == (1 / 32, 1 / 16, 6)
    assert ring["ratio_without_outliers"] is None
    assert ring["effect_method"] == "noncentral t"
