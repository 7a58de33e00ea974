"""Which comparisons are declared, before any number is looked at."""

import pytest

from dlscale.analysis.findings.contrast_declaration import declare, declare_between
from dlscale.analysis.launches import launches_of
from dlscale.base.errors import UsageError


def named(declaration):
    return [
        (one.contender.name, one.reference.name, one.contender.cell.num_ranks) for one in declaration.pairs
    ]


@pytest.fixture
def measured(make_study):
    """Launches of every backend on 1 and 2 ranks, or as asked."""

    def make(**options):
        return launches_of(make_study(**options))

    return make


def test_each_backend_against_one_on_every_number_of_ranks(measured):
    kept = dict.fromkeys(("none", "ring", "mpi", "gloo"), (1.0, 0.9, 0.8))
    found = declare(measured(efficiency=kept, rank_counts=(1, 2, 4)), order=["none", "mpi", "gloo", "ring"])
    assert found.factor == "backend"
    # `none` exchanges nothing, and on 1 rank nobody does.
    assert named(found) == [("gloo", "mpi", 2), ("ring", "mpi", 2), ("gloo", "mpi", 4), ("ring", "mpi", 4)]
    for one in found.pairs:
        assert one.contender.cell.num_ranks == one.reference.cell.num_ranks
        assert set(one.contender.rates) == {("weak-scaling", block) for block in range(6)}


def test_the_reference_is_the_one_that_is_asked_for(measured):
    assert {one for _, one, _ in named(declare(measured(), reference="ring"))} == {"ring"}
    assert {one for _, one, _ in named(declare(measured(), reference="gl"))} == {"gloo"}
    assert {one for _, one, _ in named(declare(measured()))} == {"gloo"}  # by name, where no order is known


def test_fewer_may_be_declared(measured):
    kept = dict.fromkeys(("none", "ring", "mpi", "gloo"), (0.9, 0.8))
    launches = measured(efficiency=kept, rank_counts=(2, 4))
    assert named(declare(launches, reference="mpi", ranks=[4], backends=["ring"])) == [("ring", "mpi", 4)]


def test_backends_differ_in_what_follows_from_them(make_record):
    def records(backend, **cell):
        return [make_record(backend=backend, num_ranks=2, block=block, **cell) for block in range(6)]

    launches = launches_of(
        records("ring")
        + records("ring", backend_options={"teams": 2})
        + records("grpc_ps", num_servers=1)
        + records("grpc_ps", num_servers=2)
    )
    found = declare(launches, reference="ring")
    assert named(found) == [
        ("grpc_ps, 1 server", "ring", 2),
        ("grpc_ps, 2 servers", "ring", 2),
        ("ring (teams=2)", "ring", 2),
    ]


def test_algorithms_are_compared_with_synchronous_sgd_over_their_own_backend(make_record):
    def records(backend, **cell):
        return [make_record(backend=backend, num_ranks=2, block=block, **cell) for block in range(6)]

    every = [
        *(records("ring", algorithm="local_sgd", algorithm_options={"interval": n}) for n in (4, 8)),
        *(records(backend) for backend in ("none", "mpi", "ring")),
        records("mpi", algorithm="easgd"),
    ]
    launches = launches_of([record for several in every for record in several])
    found = declare(launches, factor="algorithm", order=["none", "ring", "mpi"])
    assert [(one.contender.cell.method, one.contender.name, one.reference.name) for one in found.pairs] == [
        ("mpi easgd", "easgd", "sync"),
        ("ring local_sgd", "local_sgd (interval=4)", "sync"),
        ("ring local_sgd", "local_sgd (interval=8)", "sync"),
    ]
    assert all(one.contender.cell.backend == one.reference.cell.backend for one in found.pairs)


def test_what_differs_in_more_than_the_factor_is_not_compared(make_record):
    ring = [make_record(backend="ring", num_ranks=2, block=block) for block in range(6)]
    for other in ({"local_batch": 16}, {"precision": "bf16"}, {"workload": "cosmogan"}, {"system": "cori"}):
        mpi = [make_record(backend="mpi", num_ranks=2, block=block, **other) for block in range(6)]
        with pytest.raises(UsageError, match="nothing to compare"):
            declare(launches_of(ring + mpi))
    emulated = [
        make_record(backend="mpi", num_ranks=2, block=block, evidence="emulated") for block in range(6)
    ]
    with pytest.raises(UsageError, match="nothing to compare"):
        declare(launches_of(ring + emulated))


def test_frameworks_are_compared_backend_by_backend(measured):
    kept = {"none": (1.0, 0.98), "ring": (0.99, 0.92)}
    torch = {**kept, "gloo": (0.98, 0.8)}
    launches = measured(efficiency=torch) + measured(efficiency=kept, framework="tensorflow")
    found = declare(launches, factor="framework", order=["torch", "tensorflow"])
    assert [
        (one.contender.name, one.contender.cell.backend, one.contender.cell.num_ranks) for one in found.pairs
    ] == [
        ("tensorflow", "none", 1),
        ("tensorflow", "none", 2),
        ("tensorflow", "ring", 1),
        ("tensorflow", "ring", 2),
    ]
    asked = declare(launches, factor="framework", reference="tensorflow")
    assert {one.reference.name for one in asked.pairs} == {"tensorflow"}
    assert asked.left_out == ("hep_cnn gloo has no tensorflow",)


def test_without_a_choice_of_backends_frameworks_are_compared(measured):
    kept = {"none": (1.0, 0.98), "ring": (0.99, 0.92)}
    launches = measured(efficiency=kept) + measured(efficiency=kept, framework="tensorflow")
    assert declare(launches).factor == "framework"


def test_each_training_has_its_own_reference_where_none_is_asked_for(measured):
    both = measured() + measured(efficiency={"ring": (1.0, 0.9), "mpi": (1.0, 0.8)}, framework="tensorflow")
    found = declare(both, order=["gloo", "mpi", "ring"])
    assert {(one.contender.cell.framework, one.reference.name) for one in found.pairs} == {
        ("torch", "gloo"),
        ("tensorflow", "mpi"),
    }
    asked = declare(both, reference="gloo")
    assert asked.left_out == ("hep_cnn tensorflow has no gloo",)


@pytest.mark.parametrize(
    ("factor", "one", "other", "names"),
    [
        ("precision", {}, {"precision": "bf16"}, ("bf16", "fp32")),
        ("compiled", {}, {"compiled": True}, ("compiled", "not compiled")),
        ("batch", {}, {"local_batch": 16}, ("16 per rank", "8 per rank")),
    ],
)
def test_other_factors(make_record, factor, one, other, names):
    records = [
        make_record(backend=backend, num_ranks=2, block=block, **cell)
        for backend in ("none", "ring")
        for cell in (one, other)
        for block in range(6)
    ]
    found = declare(launches_of(records), factor=factor)
    assert [(pair.reference.name, pair.contender.name) for pair in found.pairs] == [names] * 2


def test_a_backend_that_always_failed_is_declared(make_record, make_study):
    failed = [make_record(backend="horovod", num_ranks=2, block=block, failure="hung") for block in range(6)]
    found = declare(launches_of(make_study() + failed), reference="mpi")
    assert ("horovod", "mpi", 2) in named(found)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"factor": "num_ranks"}, "no factor 'num_ranks' to compare inside a study; choose one of: backend"),
        ({"reference": "nccl"}, "no 'nccl' of backend in these records; choose one of: gloo, mpi, ring"),
        ({"reference": "none"}, "choose one of: gloo, mpi, ring"),
        ({"factor": "precision"}, "of precision there is only fp32"),
        ({"ranks": [3]}, "no ranks 3 in these records; choose from: 1, 2"),
        ({"backends": ["nccl"]}, "no backend nccl"),
        ({"backends": ["mpi"], "reference": "mpi"}, "nothing to compare"),
    ],
)
def test_mistakes(measured, options, complaint):
    with pytest.raises(UsageError, match=complaint):
        declare(measured(), **options)


def test_no_training_is_nothing_to_compare(make_record):
    with pytest.raises(UsageError, match="of backend there is no training"):
        declare(launches_of([make_record(control="loader")]))


def test_two_studies_are_compared_cell_by_cell_and_never_paired(make_study):
    a, b = launches_of(make_study()), launches_of(make_study())  # both call themselves the same
    found = declare_between(a, b, keys=("backend", "num_ranks"))
    assert len(found.pairs) == 8
    for one in found.pairs:
        assert one.contender.cell == one.reference.cell
        assert not one.contender.rates.keys() & one.reference.rates.keys()
        assert (one.contender.name, one.reference.name) == ("B", "A")


def test_between_studies_kinds_of_evidence_are_not_mixed(make_study):
    a = launches_of(make_study())
    assert (
        declare_between(a, launches_of(make_study(evidence="emulated")), keys=("backend", "num_ranks")).pairs
        == ()
    )


def test_a_point_with_several_cells_is_left_out(make_study):
    both = make_study(rank_counts=(2, 4))
    found = declare_between(launches_of(both), launches_of(make_study(rank_counts=(2, 4))), keys=("backend",))
    assert found.pairs == ()
    assert found.left_out[0] == "gloo: several of them in one study"
