"""Scikit-learn's digits as images that the classifiers read."""

import sys

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.models.images.digits import write_digits
from dlscale.models.images.opening import open_store

pytestmark = [pytest.mark.requires("sklearn", "PIL"), pytest.mark.nightly]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("digits") / "digits.bin"
    assert write_digits(path) == 1797
    return path


def test_they_are_ten_classes_of_bright_strokes_in_a_dark_frame(path):
    from sklearn.datasets import load_digits

    store = open_store(path)
    assert (len(store), store.num_classes) == (1797, 10)
    found = [store.encoded(index) for index in range(len(store))]
    assert [sample.label for sample in found] == load_digits().target.tolist()
    pixels = np.array([sample.data for sample in found])
    assert pixels[:, :2].max() == 0
    assert pixels[:, :, -2:].max() == 0
    coarse = pixels[:, 2:30, 2:30, 0].reshape(1797, 7, 4, 7, 4).mean(axis=(2, 4))
    middle = {label: coarse[[s.label == label for s in found]].mean(axis=0)[3, 3] for label in (0, 1)}
    assert middle[0] < 60 < 150 < middle[1], "a zero is empty in the middle, a one is not"


def test_refusals(path, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"exists; choose another --out, or replace it with --overwrite"):
        write_digits(path)
    with pytest.raises(UsageError, match=r"suffix \.bin; choose such a name"):
        write_digits(tmp_path / "digits.npy")
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(UsageError, match=r"pip install 'dlscale\[images,science\]'"):
        write_digits(tmp_path / "digits.bin")
    assert not list(tmp_path.iterdir())
