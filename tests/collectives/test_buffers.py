"""Checks of buffers and their cutting; the checks of each communicator are in tests/contract."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlscale.collectives.buffers import messages


@given(count=st.integers(0, 100), max_bytes=st.integers(1, 900))
def test_messages_are_views_that_cover_the_buffer_once(count, max_bytes):
    buffer = np.zeros(count)
    for message in messages(buffer, max_bytes=max_bytes):
        assert message.nbytes <= max(max_bytes, buffer.itemsize)
        message += 1
    np.testing.assert_array_equal(buffer, np.ones(count))
