"""Made-up step times of backends on the same ranks, and what is said of them."""

import pytest

from dlscale.analysis.finding import collect
from dlscale.analysis.findings import backends, load_all
from dlscale.analysis.findings.backends import RESOLVABLE, backend_notes
from dlscale.analysis.findings.contrast_table import contrast_rows, contrast_sentences
from dlscale.analysis.findings.contrasts import study_contrasts
from dlscale.analysis.measured import measure
from dlscale.analysis.render.data import study_json
from dlscale.analysis.text import rate

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
                / (cost * DRIFT[block % 6] * (1 + noise * WOBBLE[backend][block % 6])),
                overlap=None if backend == "none" else backend == "gloo",
            )
            for backend, cost in costs.items()
            for block in range(num_blocks)
        ]

    return make


def only(records, **options):
    (comparison,) = backends.FINDING.of(measure(records, **options))
    return comparison


def contenders(records, **options):
    return {one.cell.backend: one for one in only(records, **options).contenders}


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


def test_the_verdict_is_that_of_the_declared_comparison(records):
    """One rule: the rows, the contrasts and their sentences say the same of the same backends."""
    study = records(none=1.0, ring=1.4, mpi=1.5, gloo=1.401, num_blocks=8, noise=1.0)
    for order in ((), ("ring",), ("mpi",)):
        table = measure(study, order=order)
        claims = {row["contender"]: row for row in contrast_rows(table.once(study_contrasts))}
        reference = order[0] if order else "gloo"
        rows = {row["backend"]: row for row in study_json(collect(load_all(), table))["backends"]}
        assert rows.pop(reference)["verdict"] == "reference"
        assert rows.keys() == claims.keys()
        for name, row in rows.items():
            assert (row["verdict"], row["reason"]) == (claims[name]["verdict"], claims[name]["reason"])
            assert row["reference"] == claims[name]["reference"] == reference
        (comparison,) = backends.FINDING.of(table)
        assert comparison.contrasts == table.once(study_contrasts).found
    found = contenders(study, order=("ring",))
    assert {name: one.verdict for name, one in found.items()} == {
        "ring": "reference",
        "mpi": "slower",
        "gloo": "alike",
    }


def test_without_its_reference_on_as_many_ranks_nothing_is_claimed(records):
    study = records(none=1.0, ring=1.4, mpi=1.5, gloo=1.6, num_blocks=8)
    study += records(none=1.0, mpi=1.5, gloo=1.6, num_blocks=8, num_ranks=4)
    four = backends.FINDING.of(measure(study, order=("ring",)))[1]
    assert {one.verdict for one in four.contenders} == {"cannot be shown"}
    assert {one.reason for one in four.contenders} == {
        "not compared: its reference was not measured on as many ranks"
    }
    assert four.contenders[0].difference is not None


def test_two_sides_of_a_pair_have_the_same_numbers(records):
    for ring, mpi in ((1.4, 1.5), (1.5, 1.501), (1.1, 1.2), (1.05, 1.6)):
        found = contenders(records(none=1.0, ring=ring, mpi=mpi, noise=1.0))
        one, other = found["ring"], found["mpi"]
        assert one.difference.low == pytest.approx(-other.difference.high)
        assert (one.communication, one.note) == (other.communication, other.note)


def test_a_small_communication_is_noted_and_changes_no_verdict(records):
    for mpi in (1 + RESOLVABLE - 0.001, 1 + RESOLVABLE + 0.001):
        found = contenders(records(none=1.0, ring=1.05, mpi=mpi), order=("ring",))
        assert found["mpi"].verdict == "slower"
        assert bool(found["mpi"].note) == bool(found["ring"].note) == (mpi < 1 + RESOLVABLE)


def test_communication_of_the_slower_one_decides(records):
    """A backend that hides its communication must not make a slow one's look small."""
    found = contenders(records(none=1.0, ring=1.05, mpi=1.5))
    assert found["ring"].communication == pytest.approx(0.5)
    assert (found["ring"].note, found["mpi"].note) == ("", "")
    found = contenders(records(none=1.0, ring=1.05, mpi=1.29))
    assert found["ring"].note == found["mpi"].note
    assert found["ring"].note.startswith("communication is only 29.0 % of the computation: below 30 %")


def test_more_backends_ask_for_more_blocks(records):
    """Two comparisons need seven blocks: what one alone may claim by six is then not enough."""
    two = contenders(records(none=1.0, ring=1.48, mpi=1.6), order=("ring",))
    assert two["mpi"].verdict == "slower"
    three = contenders(records(none=1.0, ring=1.48, mpi=1.6, gloo=1.9), order=("ring",))
    assert three["mpi"].difference == two["mpi"].difference
    assert (three["mpi"].verdict, three["gloo"].verdict) == ("cannot be shown", "cannot be shown")
    assert three["mpi"].reason == "6 launches cannot decide 2 comparisons: --launches 7 can"


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_too_few_blocks_have_a_difference_and_no_verdict(records, num_blocks):
    found = only(records(none=1.0, ring=1.4, mpi=1.6, num_blocks=num_blocks))
    assert [one.verdict for one in found.contenders] == ["reference", "cannot be shown"]
    for one in found.contenders:
        assert (one.difference.low, one.difference.high) == (None, None)
    (said,) = contrast_sentences(found.contrasts)
    assert (
        f"{num_blocks} launch{'es' * (num_blocks > 1)} cannot decide 1 comparison: --launches 6 can" in said
    )


def test_only_blocks_of_all_three_count(records, make_record):
    some = [one for one in records(none=1.0, ring=1.4, mpi=1.6) if one.case.cell.backend != "mpi"]
    some += [one for one in records(mpi=1.6) if one.case.block >= 3]
    some = [one for one in some if (one.case.cell.backend, one.case.block) != ("none", 5)]
    found = contenders(some)
    assert (found["ring"].difference.n, found["ring"].exposed.n, found["mpi"].exposed.n) == (2, 5, 2)


def test_without_the_control_communication_is_not_known(records, table_text):
    table = measure(records(ring=1.4, mpi=1.6) + records(none=1.0, num_ranks=1))
    (found,) = backends.FINDING.of(table)
    assert found.computation is None
    assert {one.difference for one in found.contenders} == {None}
    assert {one.note for one in found.contenders} == {"none on as many ranks was not measured"}
    assert [one.verdict for one in found.contenders] == ["reference", "faster"]  # which needs no control
    text = table_text(table)
    assert "none on as many ranks was not measured" in text
    assert "ring is 14.3 % [14.3, 14.3] faster than mpi on 2 ranks" in text


def test_without_common_blocks_nothing_is_compared(records):
    early = [one for one in records(none=1.0, ring=1.4, mpi=1.6) if one.case.block < 3]
    late = [one for one in records(gloo=1.5) if one.case.block >= 3]
    found = contenders(early + late)
    assert found["gloo"].exposed is None
    assert found["gloo"].note == "no block in common with none on as many ranks"
    assert found["ring"].peer.backend == "mpi"
    apart = [one for one in records(ring=1.4) if one.case.block < 3]
    apart += [one for one in records(mpi=1.6) if one.case.block >= 3]
    found = contenders(apart + records(none=1.0))
    assert (found["ring"].difference, found["ring"].note) == (None, "no block in common with mpi")


def test_a_backend_that_always_failed_stays_in_the_table(records, make_record, table_text):
    failed = [make_record(backend="mpi", num_ranks=2, block=block, failure="hung") for block in range(6)]
    table = measure(records(none=1.0, ring=1.4, gloo=1.6) + failed)
    found = {one.cell.backend: one for one in backends.FINDING.of(table)[0].contenders}
    assert (found["mpi"].seconds_per_step, found["mpi"].verdict) == (None, "cannot be shown")
    assert (found["mpi"].note, found["mpi"].reason) == ("every launch failed", "every launch of mpi failed")
    assert found["ring"].peer.backend == "gloo"
    text = table_text(table)
    assert "mpi: every launch failed." in text
    assert "mpi against gloo on 2 ranks cannot be shown: every launch of mpi failed." in text
    alone = contenders(records(none=1.0, ring=1.4) + failed)
    assert (alone["ring"].peer, alone["ring"].note) == (None, "no other backend gave a number")


def test_one_backend_or_one_rank_is_no_comparison(records):
    assert not backends.FINDING.of(measure(records(none=1.0, ring=1.4)))
    assert not backends.FINDING.of(measure(records(none=1.0, ring=1.4, mpi=1.6, num_ranks=1)))


def test_the_ring_is_nothing_special(records):
    found = contenders(records(none=1.0, gloo=1.4, mpi=1.6))
    assert (found["gloo"].verdict, found["mpi"].verdict) == ("reference", "slower")


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
    found = only(records(none=1.0, ring=1.4) + tuned)
    assert [one.difference.center for one in found.contenders] == pytest.approx([0.1, -0.1])
    (said,) = contrast_sentences(found.contrasts)
    assert said.startswith(
        "ring (teams=2) is 7.7 % [7.7, 7.7] faster than ring on 2 ranks (corrected p 0.031"
    )


def test_each_number_of_ranks_and_kind_of_evidence_is_compared_for_itself(records, make_record):
    two = records(none=1.0, ring=1.4, mpi=1.6, num_blocks=8)
    three = records(none=1.0, ring=1.9, mpi=1.6, num_ranks=3, num_blocks=8)
    emulated = [one.model_copy(update={"evidence": "emulated", "study": "other"}) for one in two]
    found = backends.FINDING.of(measure(two + three + emulated))
    assert [(one.num_ranks, one.evidence) for one in found] == [
        (2, "emulated"),
        (2, "measured"),
        (3, "measured"),
    ]
    verdicts = [{one.cell.backend: one.verdict for one in comparison.contenders} for comparison in found]
    assert [one["ring"] for one in verdicts] == ["faster", "faster", "slower"]


def test_how_gradients_are_exchanged_is_shown(records, table_text):
    table = measure(records(none=1.0, ring=1.4, gloo=1.6))
    assert {one.cell.backend: one.exchange for one in backends.FINDING.of(table)[0].contenders} == {
        "ring": "in line",
        "gloo": "overlapped",
    }
    text = table_text(table)
    assert "gloo overlapped" in text
    assert "ring not overlapped" in text
    either = [
        one.model_copy(update={"backend_settings": {"overlap": one.case.block > 2}})
        for one in records(ring=1.4)
    ]
    assert contenders(records(none=1.0, gloo=1.6) + either)["ring"].exchange == "mixed"


def test_verdicts_are_told_once_per_contender_and_notes_once_per_pair(records):
    found = only(records(none=1.0, ring=1.1, mpi=1.2, gloo=2.25, num_blocks=8), order=("ring",))
    said = contrast_sentences(found.contrasts)
    assert [sentence.split(" (corrected")[0] for sentence in said] == [
        "gloo is 51.1 % [51.1, 51.1] slower than ring on 2 ranks",
        "mpi is 8.3 % [8.3, 8.3] slower than ring on 2 ranks",
    ]
    (note,) = backend_notes(found.contenders)
    assert note.startswith(
        "mpi and ring: communication is only 20.0 % of the computation: below 30 % a difference"
    )


@pytest.mark.parametrize("width", [120, 80, 64])
def test_the_section_fits_every_terminal(records, table_text, width):
    table = measure(records(none=1.0, ring=1.4, mpi=1.5, gloo=2.25))
    text = table_text(table, width=width)
    assert "…" not in text
    computation = rate(backends.FINDING.of(table)[0].computation.times(1000))
    assert f"On 2 ranks: without communication a step takes {computation} ms" in text
    for word in ("overlapped", "compared", "125.0", "-10.0", "+10.0"):
        assert word in text


def test_programs_read_the_same_numbers(records):
    rows = study_json(collect(load_all(), measure(records(none=1.0, ring=1.4, mpi=1.6))))["backends"]
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
