"""Which cells of ours join a published figure, and with which values."""

import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.measured import measure
from dlscale.analysis.published.catalogue import Own
from dlscale.analysis.published.ours import own_points
from dlscale.benchmarks.records.cell import Cell
from tests.made_records import make_record

from .conftest import cori, made_figure


def figure(**fields):
    return made_figure(panels=(), x_label="nodes", x_unit="nodes", **fields)


def points(figure, quantity, table, **options):
    return list(own_points(figure, figure.own, quantity, [table], **options))


CELL = make_record(
    backend="ring", preset="paper", num_ranks=8, num_nodes=4, local_batch=8
).case.cell.model_dump()
SHARED = set(Own.model_fields) & set(CELL)
OWN = {name: CELL[name] for name in SHARED} | {"system": "cori", "ranks_per_node": 2}


def test_a_cell_must_be_all_that_is_asked_for():
    cell = Cell(**CELL)
    assert Own().accepts(cell, system="anything")
    assert Own(**OWN).accepts(cell, system="cori")
    assert not Own(**OWN).accepts(cell, system="piz-daint")


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("workload", "cosmogan"),
        ("preset", "tiny"),
        ("framework", "tensorflow"),
        ("backend", "mpi"),
        ("scaling_mode", "strong"),
        ("precision", "bf16"),
        ("local_batch", 4),
        ("global_batch", 32),
        ("device", "gpu"),
        ("data", "events:0123456789ab"),
        ("num_nodes", 8),
    ],
)
def test_one_difference_is_enough_to_stay_away(name, other):
    assert not Own(**OWN).accepts(Cell(**CELL | {name: other}), system="cori")


@pytest.mark.parametrize(
    ("data", "found", "accepted"),
    [
        ("real", "events:0123456789ab", True),
        ("real", "synthetic", False),
        ("cifar-10-*", "cifar-10-batches-bin:0123456789ab", True),
        ("cifar-10-*", "cifar-100-binary:0123456789ab", False),
        ("cifar-10-*", "synthetic", False),
        ("*imagenet*", "ImageNet-train:0123456789ab", True),
        ("*flowers*", "102flowers:0123456789ab", True),
        ("*flowers*", "cifar-10-batches-bin:0123456789ab", False),
    ],
)
def test_data_may_be_asked_for_by_name(data, found, accepted):
    cell = Cell(**CELL | {"data": found})
    assert Own(data=data).accepts(cell, system="cori") == accepted


def test_the_later_one_of_two_conditions_holds():
    own = Own(workload="hep_cnn", backend="ring").narrowed(None, Own(backend="mpi", device="gpu"))
    assert (own.workload, own.backend, own.device) == ("hep_cnn", "mpi", "gpu")
    assert own.missing == ("scaling_mode", "framework", "system")


def test_points_are_the_table_s_numbers():
    table = cori({"none": (1.0, 0.98, 0.97), "ring": (0.99, 0.95, 0.9)})
    own = Own(workload="hep_cnn", system="cori", ranks_per_node=1)
    rates = points(figure(own=own), "throughput", table)
    by_place = {(row.cell.backend, row.cell.num_nodes): row for row in scaling.FINDING.of(table)}
    # Without communication on several ranks is no distributed training.
    assert [(point.row.cell.backend, point.x) for point in rates] == [
        ("none", 1),
        ("ring", 1),
        ("ring", 2),
        ("ring", 4),
    ]
    for point in rates:
        assert point.value == by_place[point.row.cell.backend, point.x].throughput
    kept = points(figure(own=own), "efficiency", table)
    assert [point.value for point in kept] == [
        by_place[p.row.cell.backend, p.x].efficiency_none for p in kept
    ]
    faster = points(figure(own=own), "speed_up", table)
    for point in faster:
        assert point.value.center == pytest.approx(point.x * point.row.efficiency_none.center)


def test_times_are_those_of_the_slowest_rank_s_rate():
    table = cori({"ring": (1.0, 1.0)}, nodes=(1, 2), local_batch=8)
    own = Own(workload="hep_cnn", system="cori")
    (one, two) = points(figure(own=own), "seconds_per_step", table)
    assert one.value.center == pytest.approx(8 / 100, rel=0.01)
    assert two.value.center == pytest.approx(16 / 200, rel=0.01)
    assert one.value.low < one.value.center < one.value.high
    sample = points(figure(own=own), "seconds_per_sample", table)
    assert [point.value.center for point in sample] == pytest.approx([0.01, 0.01], rel=0.01)
    epoch = points(figure(own=own, images_per_epoch=5000), "seconds_per_epoch", table)
    assert [point.value.center for point in epoch] == pytest.approx([50, 25], rel=0.01)
    assert points(figure(own=own), "seconds_per_epoch", table) == []


def test_ratios_begin_where_the_publication_s_do():
    table = cori({"ring": (0.9, 0.9, 0.45)}, nodes=(1, 2, 4))
    own = Own(workload="hep_cnn", system="cori")
    found = points(figure(own=own, base_x=2), "speed_up", table)
    assert [(point.x, round(point.value.center, 1)) for point in found] == [(1, 0.5), (2, 1.0), (4, 1.0)]
    one, _, four = (point.value for point in found)
    assert (one.low < one.center < one.high, four.low < four.center < four.high) == (True, True)
    assert points(figure(own=own, base_x=3), "speed_up", table) == []


def test_relative_to_another_backend_of_ours():
    table = cori({"ring": (0.9, 0.9), "grpc_ps": (0.6, 0.45)}, nodes=(1, 2))
    own = Own(workload="hep_cnn", system="cori")
    found = points(figure(own=own, relative_to="grpc_ps"), "relative_throughput", table)
    assert [(point.row.cell.backend, round(point.value.center, 1)) for point in found] == [
        ("ring", 1.5),
        ("ring", 2.0),
    ]
    assert points(figure(own=own, relative_to="gloo"), "relative_throughput", table) == []


def test_a_failed_cell_has_no_point():
    table = measure([make_record(system="cori", failure="hung", backend="ring", num_ranks=2)])
    assert points(figure(own=Own(system="cori")), "throughput", table) == []
