"""Planted differences, and what is said of them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.findings.contrast_declaration import Declaration, Declared
from dlscale.analysis.findings.contrast_table import contrast_sentences, probability_text
from dlscale.analysis.findings.contrasts import contrasts, within_band
from dlscale.analysis.statistics import Interval
from tests.analysis.findings.contrasts.conftest import declaration, make_side, steadily


def verdicts(found):
    return {one.contender.name: one.verdict for one in found.found}


FEW = "launches cannot decide"
# Log ratios to mpi by contender, verdicts, and what the sentences begin with.
CASES = {
    "faster": (
        {"ring": steadily(0.08, 6)},
        {"ring": "faster"},
        ["ring is 8.3 % [8.1, 8.6] faster than mpi on 2 ranks (corrected p 0.031, 6 blocks)."],
    ),
    "slower": (
        {"ring": steadily(-0.08, 6)},
        {"ring": "slower"},
        ["ring is 7.7 % [7.5, 7.9] slower than mpi on 2 ranks (corrected p 0.031, 6 blocks)."],
    ),
    "alike, which takes fewer blocks": (
        {"ring": steadily(0.004, 3)},
        {"ring": "alike"},
        ["ring and mpi are alike on 2 ranks, within 2 %: ring is between"],
    ),
    "alike, however certain the difference": (
        {"ring": steadily(0.01, 10, noise=0.1)},
        {"ring": "alike"},
        ["ring and mpi are alike"],
    ),
    "hidden by noise": (
        {"ring": steadily(0.03, 10, noise=40)},
        {"ring": "not shown"},
        ["ring is not shown to be faster or slower than mpi on 2 ranks: it is between"],
    ),
    "one wild block: the signs are certain, the size is not": (
        {"ring": [0.03, 0.031, 0.032, 0.033, 0.034, 1.0]},
        {"ring": "not shown"},
        ["ring is not shown"],
    ),
    "five blocks carry no comparison": (
        {"ring": steadily(0.5, 5)},
        {"ring": "cannot be shown"},
        [f"ring against mpi on 2 ranks cannot be shown: 5 {FEW} 1 comparison: --launches 6 can."],
    ),
    "six blocks carry one comparison and not two": (
        {"ring": steadily(0.1, 6), "gloo": steadily(-0.1, 6)},
        {"ring": "cannot be shown", "gloo": "cannot be shown"},
        [f"ring against mpi on 2 ranks, gloo against mpi on 2 ranks cannot be shown: 6 {FEW} 2 comparisons"],
    ),
    "seven carry two": (
        {"ring": steadily(0.1, 7), "gloo": steadily(-0.1, 7)},
        {"ring": "faster", "gloo": "slower"},
        ["ring is 10.", "gloo is 9."],
    ),
    "a certain one makes room for the next": (
        {"ring": steadily(0.1, 10), "gloo": steadily(0.1, 6)},
        {"ring": "faster", "gloo": "faster"},
        ["ring is", "gloo is"],
    ),
    "one that is not shown makes none": (
        {"ring": steadily(0.03, 10, noise=40), "gloo": steadily(0.1, 6)},
        {"ring": "not shown", "gloo": "not shown"},
        ["ring is not shown", "gloo is not shown"],
    ),
    "more than 16 blocks": ({"ring": steadily(0.05, 20)}, {"ring": "faster"}, ["ring is 5.1 %"]),
}


@pytest.mark.parametrize("case", CASES)
def test_verdict_and_sentences(case):
    logs, expected, said = CASES[case]
    found = contrasts(declaration(**logs))
    assert verdicts(found) == expected
    assert found.shown == (set(expected.values()) != {"cannot be shown"})
    sentences = contrast_sentences(found.found)
    assert len(sentences) == len(said)
    assert all(sentence.startswith(begin) for sentence, begin in zip(sentences, said, strict=True))
    for contrast, values in zip(found.found, logs.values(), strict=True):  # nothing is hidden
        assert contrast.ratio.center == pytest.approx(math.exp(np.mean(values)))
        assert contrast.num_blocks == len(values)


def test_the_numbers_of_a_contrast_and_their_row():
    found = contrasts(declaration(ring=steadily(math.log(1.08), 6)))
    (ring,) = found.found
    assert ring.ratio.low < 1.08 < ring.ratio.high
    assert (ring.ratio.method, ring.p_value, ring.p_adjusted) == ("paired t", 1 / 32, 1 / 32)
    assert ring.standardised.low > 1


def test_who_fails_still_counts_as_declared():
    pairs = declaration(ring=steadily(0.1, 6)).pairs
    failed = Declared(contender=make_side("gloo", {}), reference=pairs[0].reference)
    found = contrasts(Declaration(factor="backend", pairs=(*pairs, failed)))
    assert verdicts(found) == {"ring": "cannot be shown", "gloo": "cannot be shown"}
    assert found.found[1].reason == "every launch of gloo failed"
    assert found.found[0].p_adjusted == 2 * found.found[0].p_value


@pytest.mark.parametrize(
    ("blocks", "method", "num_blocks", "verdict"),
    [(range(10, 20), "unpaired t", 0, "cannot be shown"), (range(4, 12), "paired t", 6, "faster")],
)
def test_only_common_blocks_count(blocks, method, num_blocks, verdict):
    pair = Declared(
        contender=make_side("ring", {block: 200.0 + block for block in range(10)}),
        reference=make_side("mpi", {block: 100.0 + block for block in blocks}),
    )
    (found,) = contrasts(Declaration(factor="backend", pairs=(pair,))).found
    assert (found.ratio.method, found.num_blocks, found.verdict) == (method, num_blocks, verdict)
    if not num_blocks:
        assert found.ratio.low > 1.5
        assert found.reason.startswith("no block in common")


@given(st.lists(st.floats(-0.2, 0.2), min_size=3, max_size=12))
def test_the_other_way_round_says_the_same(logs):
    ring = make_side("ring", [100 * math.exp(log) for log in logs])
    mpi = make_side("mpi", [100.0] * len(logs))
    there, back = (
        contrasts(Declaration(factor="backend", pairs=(Declared(contender=one, reference=other),))).found[0]
        for one, other in ((ring, mpi), (mpi, ring))
    )
    assert back.verdict == {"faster": "slower", "slower": "faster"}.get(there.verdict, there.verdict)
    assert back.ratio.center == pytest.approx(1 / there.ratio.center)
    assert back.p_adjusted == there.p_adjusted


@pytest.mark.parametrize(
    ("low", "high", "within"),
    [(0.981, 1.019, True), (0.98, 1.0, False), (1.0, 1.0201, False), (None, None, False)],
)
def test_where_the_band_ends(low, high, within):
    ratio = Interval(center=1.0, low=low, high=high, level=0.95, method="paired t", n=6)
    assert within_band(ratio) == within  # 1 / 1.02 is 0.9804


def test_a_p_is_never_0():
    texts = [probability_text(p) for p in (1.0, 0.03125, 0.00195, 1e-4, 1e-5)]
    assert texts == ["1", "0.031", "0.0019", "0.0001", "< 0.0001"]
