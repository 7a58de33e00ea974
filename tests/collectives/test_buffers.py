"""Checks of buffers and their cutting; the checks of each communicator are in tests/contract."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.collectives.buffers import DTYPES, MAX_MESSAGE_BYTES, aligned_zeros, check_buffer, messages


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 0, 3), (2, 3)])
def test_contiguous_arrays_of_the_four_dtypes_pass(dtype, shape):
    check_buffer(np.zeros(shape, dtype=dtype))


def test_a_message_has_a_count_that_fits_mpi():
    assert MAX_MESSAGE_BYTES < 2**31


@given(count=st.integers(0, 100), max_bytes=st.integers(1, 900))
def test_messages_are_views_that_cover_the_buffer_once(count, max_bytes):
    buffer = np.zeros(count)
    for message in messages(buffer, max_bytes=max_bytes):
        assert message.nbytes <= max(max_bytes, buffer.itemsize)
        message += 1
    np.testing.assert_array_equal(buffer, np.ones(count))


def test_a_buffer_that_fits_is_one_message_and_a_longer_one_is_cut_flat():
    buffer = np.zeros((3, 4))
    assert [m.shape for m in messages(buffer, max_bytes=96)] == [(3, 4)]
    assert [m.shape for m in messages(buffer, max_bytes=40)] == [(5,), (5,), (2,)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_aligned_zeros_begin_at_a_cache_line(dtype, count):
    buffer = aligned_zeros(count, str(dtype))
    assert (buffer.shape, buffer.dtype) == ((count,), dtype)
    assert count == 0 or buffer.ctypes.data % 64 == 0
    check_buffer(buffer)
    np.testing.assert_array_equal(buffer, 0)
