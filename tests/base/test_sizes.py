"""Sizes as people type and read them."""

import pytest

from dlscale.base.quantities import format_size, parse_sizes

KIB, MIB = 2**10, 2**20


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("4KiB", [4 * KIB]),
        ("25MiB,4KiB", [4 * KIB, 25 * MIB]),
        ("4KiB:1MiB:x4", [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB]),
        ("1MiB:8MiB", [MIB, 2 * MIB, 4 * MIB, 8 * MIB]),
        ("4KiB:10KiB 8KiB", [4 * KIB, 8 * KIB]),
        ("512B,0.5KiB,1024", [512, 1024]),
    ],
)
def test_sizes(text: str, sizes: list[int]):
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(
    "text", ["big", "4kb", "3", "0", "8KiB:4KiB", "4KiB:8KiB:x1", "4KiB:8KiB:2", "1:2:x2:3"]
)
def test_what_is_no_size(text: str):
    with pytest.raises(ValueError, match="4KiB"):
        parse_sizes(text)


@pytest.mark.parametrize(
    ("size", "text"), [(4 * KIB, "4 KiB"), (25 * MIB, "25 MiB"), (100, "100 B"), (1536, "1.5 KiB")]
)
def test_format(size: int, text: str):
    assert format_size(size) == text
