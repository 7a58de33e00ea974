"""The shipped collisions: layout, size, and nothing of the machine that made them."""

import re

import h5py
import numpy as np

from dlscale.models.hep_cnn import WORKLOAD
from dlscale.models.hep_cnn.data import default_input

PATH = default_input(WORKLOAD.preset("small")).path


def test_layout():
    with h5py.File(PATH) as file:
        assert file["data"].shape == (4000, 3, 64, 64)
        assert file["data"].dtype == np.float32
        assert file["label"].shape == file["weight"].shape == (4000,)
        assert file["label"][:].sum() == 2000
    assert PATH.stat().st_size < 8e6


def test_attributes_tell_nothing_of_where_it_was_made():
    with h5py.File(PATH) as file:
        text = " ".join(str(value) for value in file.attrs.values())
    assert not re.search(r"(^|\s)/\w", text)  # the beginning of a path
