"""Declared comparisons on the page: what is claimed, what needs more blocks, and what filters leave."""

from dlscale.analysis.declare import Sentence, Table

ONE = (("hep_cnn", "torch"),)
FAST_RING = {"none": 1.0, "ring": 0.95, "mpi": 0.75}


def section(page):
    return next((one for one in page.sections if one.name == "contrasts"), None)


def said_of(page):
    """What is declared, the sentences of the comparisons, and their table."""
    (first, *others) = [block for block in section(page).blocks if isinstance(block, Sentence)]
    (table,) = [block for block in section(page).blocks if isinstance(block, Table)]
    return first.text, others, table


def test_a_planted_difference_is_claimed_with_its_size(made):
    page = made.page(made.study(trainings=ONE, rank_counts=(1, 8), efficiency=FAST_RING))
    # On 8 ranks a backend keeps 1 - (1 - kept) * 0.65 of the speed: over two numbers of ranks, see `made_study`.
    planted = (1 - 0.25 * 0.65) / (1 - 0.05 * 0.65)
    _, (said,), table = said_of(page)
    (row,) = table.rows
    assert row.data["ratio_low"] < planted < row.data["ratio_high"]
    assert row.strong
    assert [value.text for value in row.values[-2:]] == ["6", "slower"]
    assert row.tags.backend == "mpi ring", "whoever filters for one side sees it"
    assert said.text.startswith("mpi is 13.0 % [")
    assert any("mpi is slower than ring (-13" in sentence for sentence in page.summary)


def test_too_few_blocks_say_how_many_are_needed_and_claim_nothing(made):
    page = made.page(made.study(trainings=ONE))
    lead, others, table = said_of(page)
    assert lead.endswith("6 launches cannot decide 6 comparisons: --launches 8 can.")
    assert not others
    assert {(row.values[-1].text, row.strong) for row in table.rows} == {("needs 8 blocks", False)}
    assert not any("ring" in sentence and "slower" in sentence for sentence in page.summary)


def test_one_backend_leaves_nothing_to_compare(made):
    page = made.page(made.study(trainings=ONE, efficiency={"none": 1.0, "ring": 0.9}))
    assert section(page) is section(made.page([])) is None


def test_of_several_trainings_each_is_named_and_the_first_screen_claims_nothing(made):
    page = made.page(made.study(rank_counts=(1, 2), num_blocks=7, efficiency=FAST_RING))
    _, said, _ = said_of(page)
    assert len(said) == 3
    assert said[0].text.startswith("CosmoGAN small, torch, weak scaling on local: mpi is ")
    assert said[0].tags.workload == "cosmogan"
    assert not any("corrected p" in sentence for sentence in page.summary)
