"""Made-up step times of backends on the same ranks, and what is said of them."""

import math

import pytest

from dlscale.analysis.efficiency import scaling_json, scaling_table
from dlscale.analysis.findings.backends import BAND, RESOLVABLE, backend_sentences, judge
from dlscale.analysis.render.text import rate
from dlscale.analysis.statistics import Interval

DRIFT = (1.0, 0.82, 1.1, 0.95, 1.2, 0.9)
# Of 1: small, without a mean, and no two backends' alike.
WOBBLE = {
    "none": (0.001, -0.002, 0.001, 0.0, 0.001, -0.001),
    "ring": (0.002, 0.001, -0.003, 0.001, -0.002, 0.001),
    "mpi": (-0.001, 0.002, 0.002, -0.003, 0.001, -0.001),
    "gloo": (0.003, -0.001, -0.002, -0.001, 0.002, -0.001),
}


@pytest.fixture
def records(make_record):
    """Records of backends on 2 ranks whose steps take so many times as long as a drifting 0.1 s."""

    def make(noise=0.0, num_ranks=2, num_blocks=6, **costs):
        return [
            make_record(
                backend=backend,
                num_ranks=num_ranks,
                block=block,
                samples_per_second=80
                * num_ranks
                / (cost * DRIFT[block] * (1 + noise * WOBBLE[backend][block])),
                overlap=None if backend == "none" else backend == "gloo",
            )
            for backend, cost in costs.items()
            for block in range(num_blocks)
        ]

    return make


def only(records, **options):
    (comparison,) = scaling_table(records, **options).comparisons
    return comparison


def contenders(records):
    return {one.cell.backend: one for one in only(records).contenders}


def interval(low, high, n=6):
    return Interval(center=(low + high) / 2, low=low, high=high, level=0.95, method="paired t", n=n)


def test_communication_is_what_a_step_takes_longer_than_without_it(records):
    found = only(records(none=1.0, ring=1.4, mpi=1.6))
    assert (found.num_ranks, found.num_nodes, found.evidence) == (2, 1, "measured")
    assert found.computation.center == pytest.approx(0.1 * (0.95 + 1.0) / 2)  # the median over blocks
    exposed = {one.cell.backend: one.exposed for one in found.contenders}
    assert exposed["ring"].center == pytest.approx(0.4)
    assert exposed["mpi"].center == pytest.approx(0.6)
    # The drift is common to a block and cancels.
    assert (exposed["ring"].low, exposed["ring"].high) == pytest.approx((0.4, 0.4))
    assert (exposed["ring"].method, exposed["ring"].n) == ("paired t", 6)


def test_each_backend_is_set_beside_the_fastest_other(records):
    found = contenders(records(none=1.0, ring=1.4, mpi=1.5, gloo=2.0))
    assert {name: one.peer.backend for name, one in found.items()} == {
        "ring": "mpi",
        "mpi": "ring",
        "gloo": "ring",
    }
    differences = {name: one.difference.center for name, one in found.items()}
    assert differences == {
        "ring": pytest.approx(-0.1),
        "mpi": pytest.approx(0.1),
        "gloo": pytest.approx(0.6),
    }
    assert {name: one.verdict for name, one in found.items()} == {
        "ring": "faster",
        "mpi": "slower",
        "gloo": "slower",
    }


def test_two_sides_of_a_pair_never_contradict_each_other(records):
    opposite = {"faster": "slower", "alike": "alike", "not resolvable": "not resolvable"}
    for ring, mpi in ((1.4, 1.5), (1.5, 1.501), (1.1, 1.2), (1.05, 1.6)):
        found = contenders(records(none=1.0, ring=ring, mpi=mpi, noise=1.0))
        one, other = found["ring"], found["mpi"]
        assert other.verdict == opposite[one.verdict]
        assert one.difference.low == pytest.approx(-other.difference.high)
        assert one.communication == other.communication


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.10, -0.03, "faster"),
        (-0.10, -0.001, "faster"),
        (-0.10, 0.001, "not slower"),
        (-0.10, 0.0199, "not slower"),
        (-0.10, 0.0201, "open"),
        (-0.0201, 0.01, "not slower"),
        (-0.0199, 0.0199, "alike"),
        (-0.015, -0.005, "alike"),
        (0.005, 0.015, "alike"),
        (-0.001, 0.10, "open"),
        (0.001, 0.0201, "slower"),
        (0.03, 0.10, "slower"),
    ],
)
def test_where_the_verdict_turns(low, high, verdict):
    assert BAND == 0.02
    assert judge(interval(low, high), 0.5, apart=True) == verdict


def test_a_chance_find_among_many_pairs_is_no_claim():
    assert judge(interval(-0.10, -0.03), 0.5, apart=False) == "not slower"
    assert judge(interval(0.03, 0.10), 0.5, apart=False) == "open"
    assert judge(interval(-0.01, 0.01), 0.5, apart=False) == "alike"


def test_differences_count_from_the_limit_of_communication_on():
    for difference in (interval(-0.2, -0.1), interval(-0.01, 0.01), interval(0.1, 0.2)):
        below = judge(difference, math.nextafter(RESOLVABLE, 0), apart=True)
        assert below == "not resolvable"
        assert judge(difference, RESOLVABLE, apart=True) != "not resolvable"


def test_without_an_interval_nothing_is_judged():
    unknown = Interval(center=-0.5, low=None, high=None, level=0.95, method="insufficient data", n=2)
    assert judge(unknown, 0.1, apart=False) == "insufficient data"


def test_communication_of_the_slower_one_decides(records):
    """A backend that hides its communication must not make a slow one look as good."""
    found = contenders(records(none=1.0, ring=1.05, mpi=1.5))
    assert (found["ring"].verdict, found["mpi"].verdict) == ("faster", "slower")
    assert found["ring"].communication == pytest.approx(0.5)
    found = contenders(records(none=1.0, ring=1.05, mpi=1.29))
    assert (found["ring"].verdict, found["mpi"].verdict) == ("not resolvable", "not resolvable")


def test_more_backends_ask_for_more_certainty(records):
    """Three backends are three pairs: what two alone would be told apart by is then not enough."""
    two = contenders(records(none=1.0, ring=1.48, mpi=1.513, noise=5.0))
    assert two["mpi"].difference.low > 0
    assert two["mpi"].verdict == "slower"
    three = contenders(records(none=1.0, ring=1.48, mpi=1.513, gloo=1.9, noise=5.0))
    assert three["mpi"].difference == two["mpi"].difference
    assert three["mpi"].verdict == "open"
    assert three["gloo"].verdict == "slower"


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_too_few_blocks_are_insufficient_data(records, num_blocks):
    found = only(records(none=1.0, ring=1.4, mpi=1.6, num_blocks=num_blocks))
    for one in found.contenders:
        assert one.verdict == "insufficient data"
        assert (one.difference.low, one.difference.high) == (None, None)
    assert backend_sentences(found.contenders) == [
        f"ring and mpi: insufficient data, {num_blocks} of the 3 blocks that an interval needs."
    ]


def test_only_blocks_of_all_three_count(records, make_record):
    some = [one for one in records(none=1.0, ring=1.4, mpi=1.6) if one.case.cell.backend != "mpi"]
    some += [one for one in records(mpi=1.6) if one.case.block >= 3]
    some = [one for one in some if (one.case.cell.backend, one.case.block) != ("none", 5)]
    found = contenders(some)
    assert (found["ring"].difference.n, found["ring"].exposed.n, found["mpi"].exposed.n) == (2, 5, 2)
    assert found["ring"].verdict == "insufficient data"


def test_without_the_control_communication_is_not_known(records, table_text):
    table = scaling_table(records(ring=1.4, mpi=1.6) + records(none=1.0, num_ranks=1))
    (found,) = table.comparisons
    assert found.computation is None
    assert {one.verdict for one in found.contenders} == {"insufficient data"}
    assert {one.reason for one in found.contenders} == {"none on as many ranks was not measured"}
    assert "Backends on 2 ranks: none on 2 ranks was not measured" in table_text(table)


def test_without_common_blocks_nothing_is_compared(records):
    early = [one for one in records(none=1.0, ring=1.4, mpi=1.6) if one.case.block < 3]
    late = [one for one in records(gloo=1.5) if one.case.block >= 3]
    found = contenders(early + late)
    assert found["gloo"].exposed is None
    assert found["gloo"].reason == "no block in common with none on as many ranks"
    assert found["ring"].peer.backend == "mpi"
    apart = [one for one in records(ring=1.4) if one.case.block < 3]
    apart += [one for one in records(mpi=1.6) if one.case.block >= 3]
    found = contenders(apart + records(none=1.0))
    assert (found["ring"].difference, found["ring"].reason) == (None, "no block in common with mpi")


def test_a_backend_that_always_failed_stays_in_the_table(records, make_record, table_text):
    failed = [make_record(backend="mpi", num_ranks=2, block=block, failure="hung") for block in range(6)]
    table = scaling_table(records(none=1.0, ring=1.4, gloo=1.6) + failed)
    found = {one.cell.backend: one for one in table.comparisons[0].contenders}
    assert (found["mpi"].seconds_per_step, found["mpi"].verdict) == (None, "insufficient data")
    assert (found["ring"].peer.backend, found["ring"].verdict) == ("gloo", "faster")
    assert "mpi: insufficient data, every launch failed." in table_text(table)
    alone = contenders(records(none=1.0, ring=1.4) + failed)
    assert (alone["ring"].peer, alone["ring"].reason) == (None, "no other backend gave a number")


def test_one_backend_or_one_rank_is_no_comparison(records):
    assert scaling_table(records(none=1.0, ring=1.4)).comparisons == ()
    assert scaling_table(records(none=1.0, ring=1.4, mpi=1.6, num_ranks=1)).comparisons == ()


def test_the_ring_is_nothing_special(records):
    found = contenders(records(none=1.0, gloo=1.4, mpi=1.6))
    assert (found["gloo"].verdict, found["mpi"].verdict) == ("faster", "slower")


def test_options_make_a_backend_of_its_own(records, make_record):
    tuned = [
        make_record(
            backend="ring",
            backend_options={"teams": 2},
            num_ranks=2,
            block=block,
            samples_per_second=160 / (1.3 * DRIFT[block]),
        )
        for block in range(6)
    ]
    found = only(records(none=1.0, ring=1.4) + tuned).contenders
    assert [one.difference.center for one in found] == pytest.approx([0.1, -0.1])
    assert backend_sentences(found) == [
        "ring (teams=2) is faster than ring by 10.0 % of the computation [10.0, 10.0]."
    ]


def test_each_number_of_ranks_and_kind_of_evidence_is_compared_for_itself(records, make_record):
    two, three = records(none=1.0, ring=1.4, mpi=1.6), records(none=1.0, ring=1.9, mpi=1.6, num_ranks=3)
    emulated = [one.model_copy(update={"evidence": "emulated", "study": "other"}) for one in two]
    found = scaling_table(two + three + emulated).comparisons
    assert [(one.num_ranks, one.evidence) for one in found] == [
        (2, "emulated"),
        (2, "measured"),
        (3, "measured"),
    ]
    verdicts = [{one.cell.backend: one.verdict for one in comparison.contenders} for comparison in found]
    assert [one["ring"] for one in verdicts] == ["faster", "faster", "slower"]


def test_how_gradients_are_exchanged_is_shown(records, table_text):
    table = scaling_table(records(none=1.0, ring=1.4, gloo=1.6))
    assert {one.cell.backend: one.exchange for one in table.comparisons[0].contenders} == {
        "ring": "in line",
        "gloo": "overlapped",
    }
    text = table_text(table)
    assert "gloo overlapped" in text
    assert "ring in line" in text
    either = [
        one.model_copy(update={"backend_settings": {"overlap": one.case.block > 2}})
        for one in records(ring=1.4)
    ]
    assert contenders(records(none=1.0, gloo=1.6) + either)["ring"].exchange == "mixed"


@pytest.mark.parametrize(
    ("costs", "noise", "said"),
    [
        (
            {"ring": 1.4, "mpi": 1.5},
            0.0,
            ["ring is faster than mpi by 10.0 % of the computation [10.0, 10.0]."],
        ),
        (
            {"ring": 1.5, "mpi": 1.51},
            1.0,
            [
                "ring and mpi are within 2 % of the computation: ring is between 1.6 % faster and 0.4 % faster.",
            ],
        ),
        (
            {"ring": 1.1, "mpi": 1.2},
            0.0,
            [
                "ring and mpi are not resolvable: communication is only 20.0 % of the computation (30 % or more "
                "are needed)."
            ],
        ),
        (
            {"ring": 1.4, "mpi": 1.5, "gloo": 2.25},
            0.0,
            [
                "ring is faster than mpi by 10.0 % of the computation [10.0, 10.0].",
                "gloo is slower than ring by 85.0 % of the computation [85.0, 85.0].",
            ],
        ),
    ],
)
def test_the_verdict_is_told_in_plain_words_once_per_pair(records, costs, noise, said):
    assert backend_sentences(only(records(none=1.0, noise=noise, **costs)).contenders) == said


def test_a_limit_of_nothing_has_no_side(records):
    (said,) = backend_sentences(only(records(none=1.0, ring=1.5, mpi=1.5)).contenders)
    assert said.endswith("is between equally fast and equally fast.")


def test_an_open_question_gives_both_ends(records):
    (said,) = backend_sentences(only(records(none=1.0, ring=1.5, mpi=1.5, noise=20.0)).contenders)
    assert "No significant difference between" in said
    assert " % faster and " in said
    assert said.endswith(" % slower.")


@pytest.mark.parametrize("width", [120, 80, 64])
def test_the_section_fits_every_terminal(records, table_text, width):
    table = scaling_table(records(none=1.0, ring=1.4, mpi=1.5, gloo=2.25))
    text = table_text(table, width=width)
    assert "…" not in text
    computation = rate(table.comparisons[0].computation.times(1000))
    assert f"Backends on 2 ranks: without communication a step takes {computation} ms" in text
    for word in ("overlapped", "in line", "compared", "125.0", "-10.0", "+10.0"):
        assert word in text


def test_sections_belong_to_their_family(records, make_record, table_text):
    other = [
        one.model_copy(
            update={
                "case": one.case.model_copy(
                    update={"cell": one.case.cell.model_copy(update={"workload": "cosmogan"})}
                )
            }
        )
        for one in records(none=1.0, ring=1.9, mpi=1.6)
    ]
    text = table_text(scaling_table(records(none=1.0, ring=1.4, mpi=1.6) + other))
    places = [
        text.index(words)
        for words in (
            "cosmogan tiny",
            "mpi is faster than ring by 30.0 %",
            "hep_cnn tiny",
            "ring is faster than mpi by 20.0 %",
            "Backends: communication is",
        )
    ]
    assert places == sorted(places)


def test_programs_read_the_same_numbers(records):
    rows = scaling_json(scaling_table(records(none=1.0, ring=1.4, mpi=1.6)))["backends"]
    ring = next(row for row in rows if row["backend"] == "ring")
    assert (ring["workload"], ring["num_ranks"], ring["exchange"]) == ("hep_cnn", 2, "in line")
    assert ring["exposed_communication"] == pytest.approx(0.4)
    assert ring["communication"] == pytest.approx(0.6)
    assert (ring["peer"], ring["peer_options"], ring["verdict"], ring["reason"]) == (
        "mpi",
        "",
        "faster",
        None,
    )
    assert ring["difference_high"] == pytest.approx(-0.2)
    assert ring["difference_n"] == 6
