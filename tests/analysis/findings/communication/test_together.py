"""A study with records of all controls: the exchange alone is told of by itself, and nowhere else."""

import json

import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.launches import by_start
from dlscale.analysis.measured import measure
from tests.analysis.reading import data_of
from tests.made_records import make_record

from .conftest import Link, node, plant

EVENTS = "events.h5:0123456789ab"
ALL = {"train", "synthetic", "loader", "exchange", "alone", "whole_machine", "canary"}


@pytest.fixture
def everything():
    """Two backends with exchanges, all other controls, a failed exchange of a third backend."""
    shared = {"data": EVENTS, "scaling_mode": "strong", "global_batch": 8}

    def small(records):
        return [
            one.model_copy(update={"case": one.case.model_copy(update={"cell": of_ranks(one.case.cell)})})
            for one in records
        ]

    def of_ranks(cell):
        return cell.model_copy(update={"local_batch": 8 // cell.num_ranks})

    records = {}
    for backend, overlap in (("ring", True), ("mpi", False)):
        for one in small(plant(Link(), hidden=0.5 * overlap, backend=backend, overlap=overlap, **shared)):
            records[one.case.id] = one
    for block in range(6):
        more = {"block": block, **shared}
        for one in (
            make_record(control="loader", num_ranks=4, local_batch=2, samples_per_second=900.0, **more),
            make_record(control="synthetic", num_ranks=4, local_batch=2, samples_per_second=210.0, **more),
            make_record(control="synthetic", local_batch=8, samples_per_second=205.0, **more),
            make_record(
                control="alone", local_batch=2, samples_per_second=50.0, **more | {"global_batch": 2}
            ),
            make_record(control="canary", backend="ring", num_ranks=4, local_batch=2, **more),
        ):
            records[one.case.id] = one
    wide = make_record(control="whole_machine", cores_per_rank=4, local_batch=8, **shared)
    failed = make_record(
        control="exchange", backend="gloo", num_ranks=4, local_batch=2, failure="no partner", **shared
    )
    records |= {one.case.id: one for one in (wide, failed)}
    nodes = [node(cache_bytes=32 << 20)]
    return [one.model_copy(update={"nodes": nodes}) for one in records.values()]


@pytest.fixture
def without(everything):
    return [one for one in everything if one.case.cell.control != "exchange"]


def test_nothing_else_changes(everything, without):
    """But for what exchanges alone tell: themselves, the bound by memory, failures, and the hash of the data."""
    full, bare = measure(everything), measure(without)
    told, untold = data_of(full), data_of(bare)
    assert len(told.pop("exchanges")) == 2 * 3
    assert untold.pop("exchanges") == []
    assert [row["backend"] for row in told.pop("failures")] == ["gloo"]
    assert untold.pop("failures") == []
    assert told == untold
    json.dumps(told, allow_nan=False)
    assert full.provenance.data_hash != bare.provenance.data_hash
    assert {row.cell.control for row in scaling.FINDING.of(full)} == ALL - {"exchange", "canary"}


def test_planned_exchanges_make_no_rows(everything):
    planned = [one.case for one in everything if one.case.cell.control != "canary"]
    table = measure([], planned=planned)
    assert {row.cell.control for row in scaling.FINDING.of(table)} == ALL - {"exchange", "canary"}


def test_launches_of_exchanges_are_not_in_the_strip_of_the_page(everything, without):
    assert by_start(measure(everything).launches) == by_start(measure(without).launches)
