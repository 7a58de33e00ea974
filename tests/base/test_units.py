import pytest

from dlscale.base.quantities import format_seconds, parse_counts, parse_seconds, split_list


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("240s", 240), ("4min", 240), ("1.5 h", 5400), ("2m", 120)]
)
def test_durations(text: str, seconds: float):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "four", "-3s", "3 days", "4min2"])
def test_what_is_no_duration_is_refused(text: str):
    with pytest.raises(ValueError, match="duration"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("1,2,4", [1, 2, 4]),
        ("4 2 2", [2, 4]),
        ("1:4", [1, 2, 3, 4]),
        ("1:512:x2", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]),
        ("2:9:3", [2, 5, 8]),
    ],
)
def test_counts(text: str, counts: list[int]):
    assert parse_counts(text) == counts


@pytest.mark.parametrize(
    "text", ["0", "a", "4:1", "1:8:x1", "1:8:0", "1-4", "1:9999999999", "1:2000", "9" * 5000]
)
def test_what_is_no_count_is_refused(text: str):
    with pytest.raises(ValueError, match="count"):
        parse_counts(text)


def test_formats_for_people():
    assert [format_seconds(s) for s in (0.4, 59, 60, 3599, 3660)] == [
        "0 s",
        "59 s",
        "1 min 00 s",
        "59 min 59 s",
        "1 h 01 min",
    ]
    assert split_list("a, b c,,d") == ["a", "b", "c", "d"]
