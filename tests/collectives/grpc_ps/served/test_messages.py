"""Messages of chunks: what is packed is unpacked, and what is damaged is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.collectives.grpc_ps.messages import (
    BYE,
    GRADIENT,
    HEADER,
    WEIGHTS,
    Chunk,
    RefusedError,
    pack,
    unpack,
)

pytestmark = pytest.mark.requires("grpc_ps-torch")

CHUNKS = [Chunk(offset=0, count=4, optimizer=0), Chunk(offset=4, count=3, optimizer=0)]
VALUES = np.array([1.5, -2.0, 3.25], dtype=np.float32)


def packed(*, kind=GRADIENT, index=1, step=7, offset=4, count=3, values=VALUES):
    return HEADER.pack(kind, index, step, offset, count) + values.tobytes()


@given(
    kind=st.sampled_from([WEIGHTS, GRADIENT]),
    step=st.integers(0, (1 << 64) - 1),
    offset=st.integers(0, (1 << 64) - 1),
    parts=st.lists(st.lists(st.floats(width=32, allow_nan=False), max_size=5), max_size=4),
)
def test_parts_come_as_one_chunk(kind, step, offset, parts):
    arrays = [np.array(part, dtype=np.float32) for part in parts]
    flat = np.concatenate([np.empty(0, dtype=np.float32), *arrays])
    chunk = Chunk(offset=offset, count=flat.size, optimizer=0)
    message = unpack(pack(kind, 1, step, chunk, arrays), [CHUNKS[0], chunk])
    assert (message.kind, message.chunk, message.step) == (kind, 1, step)
    np.testing.assert_array_equal(message.values, flat, strict=True)


def test_values_are_a_view_of_the_message_at_an_aligned_place():
    raw = packed()
    message = unpack(raw, CHUNKS)
    memory = np.frombuffer(raw, dtype=np.uint8)
    assert np.shares_memory(message.values, memory)
    assert message.values.ctypes.data - memory.ctypes.data == HEADER.size == 32


def test_numbers_travel_in_little_endian_order():
    raw = pack(GRADIENT, 1, 7, CHUNKS[1], [VALUES])
    assert raw[:8] == bytes([GRADIENT, 0, 0, 0, 1, 0, 0, 0])
    assert raw[8:16] == (7).to_bytes(8, "little")
    assert raw[16:32] == (4).to_bytes(8, "little") + (3).to_bytes(8, "little")


def test_offsets_of_more_than_32_bits():
    far = Chunk(offset=(5 << 40) + 3, count=3, optimizer=0)
    assert unpack(pack(WEIGHTS, 0, 0, far, [VALUES]), [far]).values.tolist() == VALUES.tolist()
    near = Chunk(offset=3, count=3, optimizer=0)  # the same in 32 bits
    with pytest.raises(RefusedError, match=f"came as 3 elements at {far.offset}"):
        unpack(pack(WEIGHTS, 0, 0, far, [VALUES]), [near])


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        *(pytest.param(packed()[:n], f"a message has {n} bytes; a header alone has 32") for n in (0, 1, 31)),
        pytest.param(packed(kind=4), "kind 4 for chunk 1; there are 2", id="unknown kind"),
        pytest.param(
            packed(kind=3), "asks for chunk 1 in 44 bytes; a question has 32", id="question with values"
        ),
        pytest.param(packed(kind=(1 << 32) - 1), "kind 4294967295", id="largest kind"),
        pytest.param(packed(index=2), "for chunk 2; there are 2 chunks", id="one chunk too far"),
        pytest.param(packed(index=(1 << 32) - 1), "for chunk 4294967295", id="largest chunk"),
        pytest.param(packed(index=0), "chunk 0 came as 3 elements at 4", id="another chunk's place"),
        pytest.param(packed(offset=3), "came as 3 elements at 3", id="wrong offset"),
        pytest.param(packed(count=2), "came as 2 elements at 4 in 12 bytes", id="count too small"),
        pytest.param(packed(count=(1 << 64) - 1), "came as 18446744073709551615 elements", id="huge count"),
        pytest.param(packed(values=VALUES[:2]), "in 8 bytes", id="elements missing"),
        pytest.param(packed(values=np.append(VALUES, VALUES)), "in 24 bytes", id="elements too many"),
        pytest.param(packed() + b"\0", "in 13 bytes", id="a byte too many"),
        pytest.param(packed()[:-1], "in 11 bytes", id="a byte is missing"),
    ],
)
def test_what_is_not_a_chunk_is_refused_in_one_line(raw, text):
    with pytest.raises(RefusedError, match=text) as caught:
        unpack(raw, CHUNKS)
    assert "\n" not in str(caught.value)


@given(raw=st.binary(max_size=80))
def test_any_bytes_are_a_message_or_refused(raw):
    try:
        message = unpack(raw, CHUNKS)
    except RefusedError:
        return
    assert message.kind == BYE or message.values.size == CHUNKS[message.chunk].count
