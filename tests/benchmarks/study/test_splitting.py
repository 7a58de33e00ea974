"""What ranks share samples: which points a study has, their batches and rows."""

from tests.benchmarks.study.plans import cells, tiny

RING = {"name": "strong-scaling", "backends": ["ring"], "batch": 2}


def points(planned):
    """(backend, ranks, split, samples per replica, over all) of all trainings."""
    found = [
        (c.backend, c.num_ranks, c.split, c.local_batch, c.global_batch) for c in cells(planned, "train")
    ]
    return sorted(set(found))


def test_strong_scaling_goes_on_beyond_the_batch_and_has_one_base_case():
    planned = tiny(**RING, ranks=[1, 2, 4, 8], split=[1, "auto"])
    assert points(planned) == [
        ("ring", 1, 1, 2, 2),
        ("ring", 2, 1, 1, 2),
        ("ring", 4, 2, 1, 2),
        ("ring", 8, 4, 1, 2),
    ]
    assert "ring in torch on 4 ranks is left out: strong scaling" in planned.warnings[0]


def test_weak_scaling_keeps_the_samples_of_a_rank():
    assert points(tiny(backends=["ring"], ranks=[1, 2, 4], split=[1, 2])) == [
        ("ring", 1, 1, 2, 2),
        ("ring", 2, 1, 2, 4),
        ("ring", 2, 2, 4, 4),
        ("ring", 4, 1, 2, 8),
        ("ring", 4, 2, 4, 8),
    ]


def test_a_rank_that_exchanges_nothing_computes_on_the_same_rows():
    planned = tiny(**{**RING, "backends": ["none", "ring"]}, ranks=[1, 2, 4], split=2)
    for backend in ("none", "ring"):
        own = [(1, 1)] if backend == "none" else []
        assert [point[1:3] for point in points(planned) if point[0] == backend] == [*own, (2, 2), (4, 2)]


def test_what_ranks_exchange_that_share_samples_is_a_control_in_place_of_gradients_alone():
    planned = tiny(**RING, ranks=[2, 4], split="auto", controls=["exchange"])
    assert {(c.num_ranks, c.split) for c in cells(planned, "exchange")} == {(2, 1)}
    assert {(c.num_ranks, c.split) for c in cells(planned, "halos")} == {(4, 2)}


def test_usual_sizes_are_those_of_any_split():
    planned = tiny(**RING, split=[1, 2], num_cores=4)
    assert [point[1:3] for point in points(planned)] == [(1, 1), (2, 1), (2, 2), (4, 2)]
