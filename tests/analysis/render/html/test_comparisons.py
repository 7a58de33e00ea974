"""Declared comparisons on the page: what may be claimed, what needs more blocks, and what filters leave."""

import pytest

from dlscale.analysis.declare import Sentence, Table
from dlscale.analysis.findings.contrasts import study_contrasts
from dlscale.analysis.measured import measure

ONE = (("hep_cnn", "torch"),)
FAST_RING = {"none": 1.0, "ring": 0.95, "mpi": 0.75}


def section(page):
    return next((one for one in page.sections if one.name == "contrasts"), None)


def said_of(page):
    """What is declared, and the sentences of the comparisons."""
    (first, *others) = [block for block in section(page).blocks if isinstance(block, Sentence)]
    return first.text, others


def table(page):
    (found,) = [block for block in section(page).blocks if isinstance(block, Table)]
    return found


def test_a_planted_difference_is_claimed_with_its_size(made):
    page = made.page(made.study(trainings=ONE, rank_counts=(1, 8), efficiency=FAST_RING))
    # On 8 ranks a backend keeps 1 - (1 - kept) * 0.65 of the speed: over two numbers of ranks, see `made_study`.
    planted = (1 - 0.25 * 0.65) / (1 - 0.05 * 0.65)
    (row,) = table(page).rows
    assert row.data["ratio"] == pytest.approx(planted, rel=0.01)
    assert row.data["ratio_low"] < planted < row.data["ratio_high"]
    assert (row.data["verdict"], row.data["num_blocks"], row.data["p_adjusted"]) == ("slower", 6, 2**-5)
    assert row.strong
    assert [value.text for value in row.values[-2:]] == ["6", "slower"]
    _, (said,) = said_of(page)
    assert said.text.startswith("mpi is 14.0 % [")
    assert any("mpi is slower than ring (-14" in sentence for sentence in page.summary)


def test_too_few_blocks_say_how_many_are_needed_and_claim_nothing(made):
    page = made.page(made.study(trainings=ONE))
    lead, others = said_of(page)
    assert lead.endswith(
        "a claim needs 8 launches of each or more; 6 launches cannot decide 6 comparisons: --launches 8 can."
    )
    assert not others
    assert {row.values[-1].text for row in table(page).rows} == {"needs 8 blocks"}
    assert not any(row.strong for row in table(page).rows)
    assert not any("ring" in sentence and "slower" in sentence for sentence in page.summary)


def test_the_reference_is_the_study_s_first_backend(made):
    records = made.study(trainings=ONE, rank_counts=(1, 2))
    for order, reference in ((["mpi", "ring"], "mpi"), ([], "gloo")):
        found = measure(records, order=order).once(study_contrasts)
        assert {one.reference.name for one in found.found} == {reference}


def test_one_backend_leaves_nothing_to_compare(made):
    page = made.page(made.study(trainings=ONE, efficiency={"none": 1.0, "ring": 0.9}))
    assert section(page) is None
    assert section(made.page([])) is None


def test_of_several_trainings_each_is_named_and_the_first_screen_claims_nothing(made):
    page = made.page(made.study(rank_counts=(1, 2), num_blocks=7, efficiency=FAST_RING))
    _, said = said_of(page)
    assert len(said) == 3
    assert said[0].text.startswith("CosmoGAN small, torch, weak scaling on local: mpi is ")
    assert said[0].tags.workload == "cosmogan"
    assert not any("corrected p" in sentence for sentence in page.summary)


def test_whoever_filters_for_one_side_sees_the_comparison(made):
    (row,) = table(made.page(made.study(trainings=ONE, rank_counts=(1, 8), efficiency=FAST_RING))).rows
    assert row.tags.backend == "mpi ring"


def test_frameworks_that_may_not_be_compared_are_not(made):
    both = (("hep_cnn", "torch"), ("hep_cnn", "tensorflow"))
    records = made.study(trainings=both, rank_counts=(1, 2), efficiency={"none": 1.0, "ring": 0.9})
    found = measure(records).once(study_contrasts)  # without a verdict of the parity gate
    assert found.factor == "framework"
    assert {one.reason for one in found.found} == {
        "torch and tensorflow: parity not checked, so do not compare them"
    }
    assert not any(contrast.too_few for contrast in found.found)


def test_a_launch_that_stands_out_is_told_of_beside(made):
    records = made.study(trainings=ONE, rank_counts=(1, 8), efficiency=FAST_RING, num_blocks=8)
    late = [
        made.record(backend="mpi", num_ranks=8, block=record.case.block, rate=150.0)
        if (record.case.cell.backend, record.case.cell.num_ranks, record.case.block) == ("mpi", 8, 4)
        else record
        for record in records
    ]
    (row,) = table(made.page(late)).rows
    assert row.data["ratio_without_outliers"] > row.data["ratio"]
    assert "without the block with an outlying launch" in row.data["text"]
