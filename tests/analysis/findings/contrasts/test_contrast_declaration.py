"""Which comparisons are declared, before any number is looked at."""

import pytest

from dlscale.analysis.findings.contrast_declaration import declare, declare_between
from dlscale.analysis.launches import launches_of
from dlscale.base.errors import UsageError
from tests.made_records import make_record, make_study


def named(declaration):
    return [
        (one.contender.name, one.reference.name, one.contender.cell.num_ranks) for one in declaration.pairs
    ]


def measured(**options):
    """Launches of every backend on 1 and 2 ranks, or as asked."""
    return launches_of(make_study(**options))


def cells(*cells):
    """Launches of these cells on 2 ranks, in six blocks."""
    every = [make_record(**{"num_ranks": 2, "block": block, **cell}) for cell in cells for block in range(6)]
    return launches_of(every)


FOUR = dict.fromkeys(("none", "ring", "mpi", "gloo"), (1.0, 0.9, 0.8))


@pytest.mark.parametrize(
    ("options", "pairs"),
    [
        # `none` exchanges nothing, and on 1 rank nobody does.
        (
            {"order": ["none", "mpi", "gloo", "ring"]},
            [("gloo", "mpi", 2), ("ring", "mpi", 2), ("gloo", "mpi", 4), ("ring", "mpi", 4)],
        ),
        ({"reference": "ring", "ranks": [2]}, [("gloo", "ring", 2), ("mpi", "ring", 2)]),
        ({"reference": "gl", "ranks": [2]}, [("mpi", "gloo", 2), ("ring", "gloo", 2)]),
        ({"ranks": [2]}, [("mpi", "gloo", 2), ("ring", "gloo", 2)]),  # by name, where no order is known
        ({"reference": "mpi", "ranks": [4], "backends": ["ring"]}, [("ring", "mpi", 4)]),
    ],
)
def test_each_backend_against_one_on_every_number_of_ranks(options, pairs):
    found = declare(measured(efficiency=FOUR, rank_counts=(1, 2, 4)), **options)
    assert (found.factor, named(found)) == ("backend", pairs)
    for one in found.pairs:
        assert one.contender.cell.num_ranks == one.reference.cell.num_ranks
        assert set(one.contender.rates) == {("weak-scaling", block) for block in range(6)}


def test_backends_differ_in_what_follows_from_them():
    launches = cells(
        {"backend": "ring"},
        {"backend": "ring", "backend_options": {"teams": 2}},
        *({"backend": "grpc_ps", "num_servers": count} for count in (1, 2)),
        {"backend": "horovod", "failure": "hung"},
    )
    assert named(declare(launches, reference="ring")) == [
        ("grpc_ps, 1 server", "ring", 2),
        ("grpc_ps, 2 servers", "ring", 2),
        ("horovod", "ring", 2),  # although it always failed
        ("ring (teams=2)", "ring", 2),
    ]


def test_algorithms_are_compared_with_synchronous_sgd_over_their_own_backend():
    launches = cells(
        *({"backend": "ring", "algorithm": "easgd", "algorithm_options": {"interval": n}} for n in (4, 8)),
        *({"backend": backend} for backend in ("none", "mpi", "ring")),
        {"backend": "mpi", "algorithm": "easgd"},
    )
    found = declare(launches, factor="algorithm", order=["none", "ring", "mpi"])
    assert [(one.contender.cell.method, one.contender.name, one.reference.name) for one in found.pairs] == [
        ("mpi easgd", "easgd", "sync"),
        ("ring easgd", "easgd (interval=4)", "sync"),
        ("ring easgd", "easgd (interval=8)", "sync"),
    ]
    assert all(one.contender.cell.backend == one.reference.cell.backend for one in found.pairs)


@pytest.mark.parametrize(
    "other",
    [
        {"local_batch": 16},
        {"precision": "bf16"},
        {"workload": "cosmogan"},
        {"system": "cori"},
        {"evidence": "emulated"},
    ],
)
def test_what_differs_in_more_than_the_factor_is_not_compared(other):
    with pytest.raises(UsageError, match="nothing to compare"):
        declare(cells({"backend": "ring"}, {"backend": "mpi", **other}))


def test_frameworks_are_compared_backend_by_backend():
    kept = {"none": (1.0, 0.98), "ring": (0.99, 0.92)}
    tensorflow = measured(efficiency=kept, framework="tensorflow")
    launches = measured(efficiency={**kept, "gloo": (0.98, 0.8)}) + tensorflow
    found = declare(launches, factor="framework", order=["torch", "tensorflow"])
    cells = [
        (one.contender.name, one.contender.cell.backend, one.contender.cell.num_ranks) for one in found.pairs
    ]
    assert cells == [
        *(("tensorflow", "none", 1), ("tensorflow", "none", 2)),
        *(("tensorflow", "ring", 1), ("tensorflow", "ring", 2)),
    ]
    asked = declare(launches, factor="framework", reference="tensorflow")
    assert {one.reference.name for one in asked.pairs} == {"tensorflow"}
    assert asked.left_out == ("hep_cnn gloo has no tensorflow",)
    # Without a choice of backends that is the default.
    assert declare(measured(efficiency=kept) + tensorflow).factor == "framework"


def test_each_training_has_its_own_reference_where_none_is_asked_for():
    both = measured() + measured(efficiency={"ring": (1.0, 0.9), "mpi": (1.0, 0.8)}, framework="tensorflow")
    found = declare(both, order=["gloo", "mpi", "ring"])
    assert {(one.contender.cell.framework, one.reference.name) for one in found.pairs} == {
        ("torch", "gloo"),
        ("tensorflow", "mpi"),
    }
    assert declare(both, reference="gloo").left_out == ("hep_cnn tensorflow has no gloo",)


@pytest.mark.parametrize(
    ("factor", "other", "names"),
    [
        ("precision", {"precision": "bf16"}, ("bf16", "fp32")),
        ("compiled", {"compiled": True}, ("compiled", "not compiled")),
        ("batch", {"local_batch": 16}, ("16 per rank", "8 per rank")),
    ],
)
def test_other_factors(factor, other, names):
    launches = cells(*({"backend": backend, **cell} for backend in ("none", "ring") for cell in ({}, other)))
    found = declare(launches, factor=factor)
    assert [(pair.reference.name, pair.contender.name) for pair in found.pairs] == [names] * 2


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
def test_mistakes(options, complaint):
    with pytest.raises(UsageError, match=complaint):
        declare(measured(), **options)


def test_no_training_is_nothing_to_compare():
    with pytest.raises(UsageError, match="of backend there is no training"):
        declare(cells({"control": "loader", "num_ranks": 1}))


KEYS = ("backend", "num_ranks")


def test_two_studies_are_compared_cell_by_cell_and_never_paired():
    found = declare_between(measured(), measured(), keys=KEYS)  # both call themselves the same
    assert len(found.pairs) == 8
    for one in found.pairs:
        assert one.contender.cell == one.reference.cell
        assert not one.contender.rates.keys() & one.reference.rates.keys()
        assert (one.contender.name, one.reference.name) == ("B", "A")
    assert declare_between(measured(), measured(evidence="emulated"), keys=KEYS).pairs == ()
    several = declare_between(measured(), measured(), keys=("backend",))
    assert (several.pairs, several.left_out[0]) == ((), "gloo: several of them in one study")
