import pytest

from dlscale.analysis.families import family_of


def family(make_record, **fields):
    return family_of(make_record(**fields).case.cell, system="local")


@pytest.mark.parametrize(
    ("fields", "file_stem"),
    [
        ({}, "hep_cnn-tiny-torch-weak-fp32"),
        (
            {"compiled": True, "memory_format": "channels_first"},
            "hep_cnn-tiny-torch-weak-fp32-compiled-channels_first",
        ),
        ({"device": "gpu"}, "hep_cnn-tiny-torch-weak-fp32-gpu"),
    ],
)
def test_files_are_named_by_what_is_unusual(make_record, fields, file_stem):
    assert family(make_record, **fields).file_stem == file_stem


def test_a_reference_covers_only_what_ran_the_same_way(make_record):
    reference = family(make_record, control="whole_machine", cores_per_rank=4)
    assert family(make_record).covers(reference)
    assert not family(make_record, compiled=True).covers(reference)
    assert not family(make_record, memory_format="channels_first").covers(reference)
    assert not family(make_record, device="gpu").covers(reference)
