"""Made-up step times of backends on the same ranks, and what is said of them."""

import pytest

from dlscale.analysis.findings import backends
from dlscale.analysis.findings.backends import RESOLVABLE, backend_notes
from dlscale.analysis.findings.contrast_table import CONTRASTS
from dlscale.analysis.findings.contrasts import study_contrasts
from dlscale.analysis.measured import measure
from tests.analysis.reading import data_of
from tests.made_records import make_record

DRIFT = (1.0, 0.82, 1.1, 0.95, 1.2, 0.9)
# Of 1: small, without a mean, and no two backends' alike.
WOBBLE = {
    "none": (0.001, -0.002, 0.001, 0.0, 0.001, -0.001),
    "ring": (0.002, 0.001, -0.003, 0.001, -0.002, 0.001),
    "mpi": (-0.001, 0.002, 0.002, -0.003, 0.001, -0.001),
    "gloo": (0.003, -0.001, -0.002, -0.001, 0.002, -0.001),
}


def records(noise=0.0, num_ranks=2, num_blocks=6, blocks=None, **costs):
    """Records of backends on 2 ranks whose steps take so many times as long as a drifting 0.1 s."""
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
        for block in (range(num_blocks) if blocks is None else blocks)
    ]


def contenders(records, **options):
    return {one.cell.backend: one for one in backends.FINDING.of(measure(records, **options))}


def test_communication_and_the_fastest_other_backend():
    found = contenders(records(none=1.0, ring=1.4, mpi=1.5, gloo=2.0))
    peers = {name: one.peer.backend for name, one in found.items()}
    assert peers == {"ring": "mpi", "mpi": "ring", "gloo": "ring"}
    exposed = {name: one.exposed.center for name, one in found.items()}
    assert exposed == pytest.approx({"gloo": 1.0, "mpi": 0.5, "ring": 0.4})
    differences = {name: one.difference.center for name, one in found.items()}
    assert differences == pytest.approx({"ring": -0.1, "mpi": 0.1, "gloo": 0.6})
    ring = found["ring"]
    assert ring.computation.center == pytest.approx(0.1 * (0.95 + 1.0) / 2)  # the median over blocks
    # The drift is common to a block and cancels.
    assert (ring.exposed.low, ring.exposed.high) == pytest.approx((0.4, 0.4))
    assert (ring.exposed.method, ring.exposed.n) == ("paired t", 6)
    exchanges = {name: one.exchange for name, one in found.items()}
    assert exchanges == {"gloo": "overlapped", "mpi": "in line", "ring": "in line"}


def test_the_verdict_is_that_of_the_declared_comparison():
    """One rule: the rows, the contrasts and their sentences say the same of the same backends."""
    study = records(none=1.0, ring=1.4, mpi=1.5, gloo=1.401, num_blocks=8, noise=1.0)
    for order in ((), ("ring",), ("mpi",)):
        table = measure(study, order=order)
        declared = table.once(study_contrasts).found
        claims = {row["contender"]: row for row in map(CONTRASTS.data, declared)}
        reference = order[0] if order else "gloo"
        rows = {row["backend"]: row for row in data_of(table)["backends"]}
        assert rows.pop(reference)["verdict"] == "reference"
        assert rows.keys() == claims.keys()
        for name, row in rows.items():
            assert (row["verdict"], row["reason"]) == (claims[name]["verdict"], claims[name]["reason"])
            assert row["reference"] == claims[name]["reference"] == reference
    verdicts = {name: one.verdict for name, one in contenders(study, order=("ring",)).items()}
    assert verdicts == {"ring": "reference", "mpi": "slower", "gloo": "alike"}


def test_without_its_reference_on_as_many_ranks_nothing_is_claimed():
    study = records(none=1.0, ring=1.4, mpi=1.5, gloo=1.6, num_blocks=8)
    study += records(none=1.0, mpi=1.5, gloo=1.6, num_blocks=8, num_ranks=4)
    found = backends.FINDING.of(measure(study, order=("ring",)))
    four = [one for one in found if one.cell.num_ranks == 4]
    assert {(one.verdict, one.reason) for one in four} == {
        ("cannot be shown", "not compared: its reference was not measured on as many ranks")
    }
    assert four[0].difference is not None


@pytest.mark.parametrize(("ring", "mpi"), [(1.4, 1.5), (1.5, 1.501), (1.1, 1.2), (1.05, 1.6)])
def test_two_sides_of_a_pair_have_the_same_numbers(ring, mpi):
    found = contenders(records(none=1.0, ring=ring, mpi=mpi, noise=1.0))
    one, other = found["ring"], found["mpi"]
    assert one.difference.low == pytest.approx(-other.difference.high)
    assert (one.communication, one.note) == (other.communication, other.note)


@pytest.mark.parametrize(
    ("mpi", "noted"), [(1 + RESOLVABLE - 0.001, True), (1 + RESOLVABLE + 0.001, False), (1.5, False)]
)
def test_a_small_communication_of_the_slower_one_is_noted_and_changes_no_verdict(mpi, noted):
    found = contenders(records(none=1.0, ring=1.05, mpi=mpi), order=("ring",))
    assert found["ring"].communication == pytest.approx(mpi - 1)
    assert found["mpi"].verdict == "slower"
    assert bool(found["mpi"].note) == bool(found["ring"].note) == noted
    assert len(backend_notes(found.values())) == noted, "once per pair"


def test_why_there_is_no_difference():
    failed = [make_record(backend="mpi", num_ranks=2, block=block, failure="hung") for block in range(6)]
    ring = records(none=1.0, ring=1.4)
    cases = {
        "none on as many ranks was not measured": records(ring=1.4, mpi=1.6),
        "every launch failed": ring + failed,
        "no block in common with none on as many ranks": records(none=1.0, ring=1.4, blocks=range(3))
        + records(mpi=1.5, blocks=range(3, 6)),
        "no block in common with ring": records(none=1.0)
        + records(ring=1.4, blocks=range(3))
        + records(mpi=1.6, blocks=range(3, 6)),
    }
    for why, study in cases.items():
        found = contenders(study)
        assert (found["mpi"].note, found["mpi"].difference) == (why, None)
    assert contenders(cases["none on as many ranks was not measured"])["ring"].verdict == "faster"
    with_failed = contenders(ring + failed, order=("ring",))
    assert with_failed["mpi"].reason == "every launch of mpi failed"
    assert with_failed["ring"].note == "no other backend gave a number"


def test_only_blocks_of_all_three_count():
    some = records(ring=1.4) + records(mpi=1.6, blocks=range(3, 6)) + records(none=1.0, blocks=range(5))
    found = contenders(some)
    assert (found["ring"].difference.n, found["ring"].exposed.n, found["mpi"].exposed.n) == (2, 5, 2)


def test_one_backend_or_one_rank_is_no_comparison():
    assert not backends.FINDING.of(measure(records(none=1.0, ring=1.4)))
    assert not backends.FINDING.of(measure(records(none=1.0, ring=1.4, mpi=1.6, num_ranks=1)))


def test_options_make_a_backend_of_its_own():
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
    found = backends.FINDING.of(measure(records(none=1.0, ring=1.4) + tuned))
    assert [one.difference.center for one in found] == pytest.approx([0.1, -0.1])
    assert [one.verdict for one in found] == ["reference", "faster"]


def test_each_number_of_ranks_and_kind_of_evidence_is_compared_for_itself():
    two = records(none=1.0, ring=1.4, mpi=1.6, num_blocks=8)
    three = records(none=1.0, ring=1.9, mpi=1.6, num_ranks=3, num_blocks=8)
    emulated = [one.model_copy(update={"evidence": "emulated", "study": "other"}) for one in two]
    found = backends.FINDING.of(measure(two + three + emulated))
    verdicts = {
        (one.cell.num_ranks, one.evidence): one.verdict for one in found if one.cell.backend == "ring"
    }
    assert verdicts == {(2, "emulated"): "faster", (2, "measured"): "faster", (3, "measured"): "slower"}
