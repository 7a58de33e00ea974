"""What memory moves, from copies that all ranks made at once, and the bound that follows."""

import pytest

from dlscale.analysis.findings.bounds import efficiency_limits
from dlscale.analysis.findings.communication_only import copy_rates
from dlscale.analysis.measured import measure
from tests.made_records import make_record

from .conftest import Link, exchange_record, node

PARAMETERS = 9_634  # of hep_cnn's preset tiny


def on_nodes(record, names):
    """The record with its ranks on those nodes."""
    ranks = [one.model_copy(update={"node": name}) for one, name in zip(record.ranks, names, strict=True)]
    return record.model_copy(update={"ranks": ranks})


def study(*, copy_rate=1000000.0, cache=None, cores=1, exchange="mpi", **fields):
    """1 rank at 100 samples per second, a step of 80 ms; 4 ranks of a ring; copies beside another backend."""
    records = []
    fields = {"cores_per_rank": cores, **fields}
    for block in range(3):
        records.append(make_record(block=block, samples_per_second=100.0, **fields))
        records.append(
            make_record(backend="ring", num_ranks=4, samples_per_second=300.0, block=block, **fields)
        )
        if copy_rate:
            records.append(
                exchange_record(Link(), copy_rate=copy_rate, block=block, backend=exchange, **fields)
            )
    nodes = [node(cache_bytes=cache)]
    return [record.model_copy(update={"nodes": nodes}) for record in records]


def memory_of(records):
    (found,) = efficiency_limits(measure(records)).values()
    return next(one for one in found if one.kind == "memory")


def rates(records):
    return copy_rates(measure(records).exchanges)


def test_a_node_moves_what_its_ranks_copy_together():
    records = [
        exchange_record(Link(), copy_rate=rate, block=block) for block, rate in enumerate((1e9, 3e9, 2e9))
    ]
    assert list(rates(records).values()) == [8e9]  # 4 ranks, the median launch


def test_the_slowest_node_counts_and_each_by_its_own_launches():
    records = []
    for block, rate in enumerate((1e9, 2e9, 3e9)):
        one = exchange_record(Link(), block=block, num_nodes=2)
        one = one.model_copy(update={"copy_rates": [5e9, 5e9, rate, rate]})
        records.append(on_nodes(one, ("a", "a", "b", "b")))
    ((where, rate),) = rates(records).items()
    assert rate == 4e9
    assert where[1:] == (4, 2, "measured")


def test_missing_rates_and_failures_say_nothing():
    records = [
        exchange_record(Link()).model_copy(update={"copy_rates": [1e9]}),
        exchange_record(Link(), block=1).model_copy(update={"copy_rates": []}),
        exchange_record(Link(), block=2, failure="hang"),
        make_record(num_ranks=4),
    ]
    assert rates(records) == {}


def test_the_bound_by_measured_memory_by_hand():
    memory = memory_of(study())
    seconds = 2 * 4 * 4 * PARAMETERS / 4e6
    assert memory.seconds == pytest.approx(seconds)
    assert memory.efficiency == pytest.approx(min(1, 0.08 / seconds))
    assert memory.words.startswith(
        "2 x 4 ranks x 0.0385 MB of gradients, if no cache keeps them, at 0.004 GB/s"
    )
    assert "(all ranks copying at once)" in memory.words
    slow = memory_of(study(copy_rate=1e5))
    assert slow.efficiency == pytest.approx(0.08 / (10 * seconds))


def test_gradients_that_fit_into_the_cache_have_no_bound():
    together = 4 * 4 * PARAMETERS
    memory = memory_of(study(cache=32 << 20))
    assert (memory.efficiency, memory.words) == (None, "0.154 MB of gradients fit into 32 MiB of cache")
    assert memory_of(study(cache=together)).efficiency is None
    larger = memory_of(study(cache=together - 1000))
    assert larger.seconds == pytest.approx(2 * 1000 / 4e6), "what the cache keeps needs no memory"
    assert larger.words.startswith("2 x (4 ranks x 0.0385 MB of gradients - 150 KiB of cache) at")
    unknown = [
        one.model_copy(update={"nodes": [node("a", cache_bytes=32 << 20), node("b", cache_bytes=None)]})
        for one in study()
    ]
    assert memory_of(unknown).efficiency is not None, "the other node may be the one that moves them"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"copy_rate": None}, "what memory moves was not measured on 4 ranks"),
        ({"cores": 4}, "copies by one thread per rank, of 4 cores, do not say what memory moves"),
        ({"copy_rate": None, "cores": 4}, "what memory moves was not measured on 4 ranks"),
    ],
)
def test_what_is_not_known_has_a_reason(fields, reason):
    memory = memory_of(study(**fields))
    assert (memory.efficiency, memory.words) == (None, reason)
