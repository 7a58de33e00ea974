"""Curves are named by what tells them apart, and by nothing else; families share what a base case must share."""

import pytest

from dlscale.analysis.load import Study
from dlscale.benchmarks.records.cell import SETTINGS, curve_names, options_place
from tests.made_records import make_record


def names(records, **options):
    found = curve_names({record.case.cell.id: record.case.cell for record in records}, **options)
    return [found[record.case.cell.id] for record in records]


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


def test_an_algorithm_stands_behind_its_backend_with_the_options_that_differ():
    common = {"backend": "ring", "num_ranks": 2}
    elastic = {"algorithm": "easgd", **common}
    records = [
        make_record(**common),
        make_record(algorithm_options={"interval": 4, "moving_rate": 0.5}, **elastic),
        make_record(algorithm_options={"interval": 8, "moving_rate": 0.5}, **elastic),
    ]
    assert names(records) == ["ring", "ring easgd (interval=4)", "ring easgd (interval=8)"]


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


def test_options_are_ordered_as_numbers_are():
    records = [make_record(backend="gloo", backend_options={"size": size}) for size in (25, 5, 100)]
    cells = sorted((record.case.cell for record in records), key=options_place)
    assert [cell.backend_options["size"] for cell in cells] == [5, 25, 100]


def test_what_is_sharded_is_in_a_curves_name_and_is_no_family_of_its_own():
    shards = ("none", "optimizer", "parameters")
    records = [
        make_record(backend="ring", num_ranks=ranks, shard=shard) for shard in shards for ranks in (1, 2)
    ]
    assert names(records)[::2] == ["ring", "ring, optimizer sharded", "ring, parameters sharded"]
    cells = Study([make_record(), *records]).cells
    assert cells["family"].nunique() == 1
    (sharded,) = cells[(cells["shard"] == "optimizer") & (cells["num_ranks"] == 2)].to_dict("records")
    assert cells.loc[sharded["base_own"], ["shard", "num_ranks"]].tolist() == ["optimizer", 1]
    assert cells.loc[sharded["base_none"], "backend"] == "none"


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        ({}, "HEP-CNN tiny, torch, weak scaling on local"),
        ({"compiled": True}, "HEP-CNN tiny, torch compiled, weak scaling on local"),
        ({"device": "gpu"}, "HEP-CNN tiny, torch gpu, weak scaling on local"),
        ({"scaling_mode": "strong", "system": "cori"}, "HEP-CNN tiny, torch, strong scaling on cori"),
    ],
)
def test_a_training_is_named_by_what_is_unusual(fields, title):
    assert Study([make_record(**fields)]).cells["training"].tolist() == [title]


def test_trainings_of_one_name_say_what_is_constant():
    cells = Study([make_record(local_batch=batch) for batch in (8, 16)]).cells
    assert [text.split("local ")[1] for text in cells["training"]] == [
        "(8 samples per rank and step, fp32, 1 core per rank)",
        "(16 samples per rank and step, fp32, 1 core per rank)",
    ]


def test_a_reference_belongs_to_the_family_that_ran_the_same_way():
    reference = make_record(control="whole_machine", cores_per_rank=4)
    other = make_record(control="whole_machine", cores_per_rank=4, precision="bf16")
    cells = Study([make_record(), reference, other]).cells
    family = cells.groupby(["control", "precision"])["family"].first()
    assert family["whole_machine", "fp32"] == family["train", "fp32"] != family["whole_machine", "bf16"]


def test_several_systems_and_kinds_of_evidence_are_cells_of_their_own():
    records = [make_record(), make_record(evidence="emulated", study="other"), make_record(system="cori")]
    study = Study(records)
    assert len(study.cells) == 3
    assert sorted(study.cells["evidence"]) == ["emulated", "measured", "measured"]
    assert len(study.launches) == 3
