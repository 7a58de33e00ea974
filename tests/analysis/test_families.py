import pytest

from dlscale.analysis.families import family_of
from tests.made_records import make_record


def family(**fields):
    return family_of(make_record(**fields).case.cell, system="local")


@pytest.mark.parametrize(
    ("fields", "file_stem"),
    [
        ({}, "hep_cnn-tiny-torch-weak-fp32"),
        ({"compiled": True}, "hep_cnn-tiny-torch-weak-fp32-compiled"),
        ({"device": "gpu"}, "hep_cnn-tiny-torch-weak-fp32-gpu"),
    ],
)
def test_files_are_named_by_what_is_unusual(fields, file_stem):
    assert family(**fields).file_stem == file_stem


def test_a_reference_covers_only_what_ran_the_same_way():
    reference = family(control="whole_machine", cores_per_rank=4)
    assert family().covers(reference)
    assert not family(compiled=True).covers(reference)
    assert not family(device="gpu").covers(reference)
