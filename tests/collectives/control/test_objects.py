"""What travels between ranks without MPI arrives as it was."""

import math

import numpy as np
import pytest

from dlscale.collectives.control.by_torch import packed, unpacked


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**40),
        0.1,
        "\u00e9",
        b"\0\xff",
        (1, ("a", None), []),
        [(0.5, {"auc": 1}), {}],
        {"b", "a"},
        {3: [1, 2], "x": {}},
    ],
)
def test_values_arrive_as_they_were(value):
    arrived = unpacked(packed(value))
    assert arrived == value
    assert type(arrived) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6).reshape(2, 3).T,
        np.zeros((0, 4), np.float64),
        np.float64(0.1),
        np.array([math.nan, -0.0]),
        np.array([1, 2], np.uint16),
        np.array(["ab", "c"]),
    ],
)
def test_arrays_arrive_with_their_type_and_shape_and_can_be_written(array):
    ((arrived, _),) = unpacked(packed([(array, 1)]))
    assert (arrived.dtype, arrived.shape) == (array.dtype, array.shape)
    assert np.array_equal(arrived, array, equal_nan=array.dtype.kind == "f")
    assert arrived.ndim == 0 or arrived.flags.writeable


@pytest.mark.parametrize("value", [object(), [print], {"a": 1j}])
def test_nothing_else_travels(value):
    with pytest.raises(TypeError, match="does not travel between ranks"):
        packed(value)


def test_an_array_of_objects_is_not_made():
    with pytest.raises(ValueError, match="OBJECT"):
        unpacked(packed(np.array([object()])))
