"""Curves are named by what tells them apart, and by nothing else."""

from dlscale.analysis.curves import SETTINGS, named_cells, options_order, with_curve_names
from dlscale.analysis.families import base_cell, family_of
from dlscale.analysis.text import backend_name
from tests.made_records import make_record


def names(records, **options):
    found, _ = with_curve_names(records, [], **options)
    return [backend_name(record.case.cell) for record in found]


def test_a_name_has_only_the_options_that_differ():
    common = {"num_ranks": 2}
    records = [
        make_record(backend="none", **common),
        make_record(
            backend="gloo", backend_options={"bucket_cap_mb": 25, "allow_open_ports": True}, **common
        ),
        make_record(backend="gloo", backend_options={"bucket_cap_mb": 1, "allow_open_ports": True}, **common),
        make_record(backend="gloo", backend_options={"allow_open_ports": True}, **common),
        make_record(backend="ring", backend_options={"chunk_bytes": 65536}, **common),
    ]
    gloo = ["gloo (bucket_cap_mb=25)", "gloo (bucket_cap_mb=1)", "gloo"]
    # Of one set of options nothing is left out.
    assert names(records) == ["none", *gloo, "ring (chunk_bytes=65536)"]
    # Names are no part of a cell: its identity and what is written of it stay.
    named, _ = with_curve_names(records, [])
    for before, after in zip(records, named, strict=True):
        assert after.case.id == before.case.id
        assert after.model_dump() == before.model_dump()


def test_an_algorithm_stands_behind_its_backend_with_the_options_that_differ():
    common = {"backend": "ring", "num_ranks": 2}
    elastic = {"algorithm": "easgd", **common}
    records = [
        make_record(**common),
        make_record(algorithm_options={"interval": 4, "moving_rate": 0.5}, **elastic),
        make_record(algorithm_options={"interval": 8, "moving_rate": 0.5}, **elastic),
    ]
    assert names(records) == [
        "ring",
        "ring easgd (interval=4)",
        "ring easgd (interval=8)",
    ]
    cells = [record.case.cell for record in records]
    assert len({cell.id for cell in cells}) == 3
    assert "algorithm" not in cells[0].model_dump(), "a cell without one keeps its id"
    assert backend_name(cells[1]) == "ring easgd (interval=4, moving_rate=0.5)"


def test_across_families_a_name_has_the_settings_that_differ():
    records = [
        make_record(
            backend="ring", num_ranks=ranks, local_batch=batch, variables={"MPICH_X": x, "MPICH_Y": "1"}
        )
        for ranks in (1, 2)
        for batch in (2, 4)
        for x in ("a", "b")
    ]
    assert names(records, settings=SETTINGS)[:4] == [
        "ring, batch 2, MPICH_X=a",
        "ring, batch 2, MPICH_X=b",
        "ring, batch 4, MPICH_X=a",
        "ring, batch 4, MPICH_X=b",
    ]
    assert names(records) == ["ring"] * 8


def test_the_batch_of_a_control_is_no_difference():
    strong = {"scaling_mode": "strong", "local_batch": 4}
    records = [
        make_record(backend="none", num_ranks=2, global_batch=8, **strong),
        make_record(backend="none", control="alone", global_batch=4, **strong),
    ]
    assert {
        cell.curve for cell in named_cells((r.case.cell for r in records), settings=SETTINGS).values()
    } == {"none"}


def test_options_are_ordered_as_numbers_are():
    records = [make_record(backend="gloo", backend_options={"size": size}) for size in (25, 5, 100)]
    cells = sorted((record.case.cell for record in records), key=options_order)
    assert [cell.backend_options["size"] for cell in cells] == [5, 25, 100]


def test_what_is_sharded_is_in_a_curves_name_and_is_no_family_of_its_own():
    shards = ("none", "optimizer", "parameters")
    records = [
        make_record(backend="ring", num_ranks=ranks, shard=shard) for shard in shards for ranks in (1, 2)
    ]
    base = make_record(backend="none")
    assert names(records)[::2] == ["ring", "ring, optimizer sharded", "ring, parameters sharded"]
    families = {family_of(record.case.cell, system="local") for record in [base, *records]}
    assert len(families) == 1
    sharded = records[3].case.cell
    cells = [record.case.cell for record in [base, *records]]
    assert base_cell(sharded, cells, same_backend=True) == records[2].case.cell
    assert base_cell(sharded, cells, same_backend=False) == base.case.cell
