"""Windows that were read are kept as text and arrays, say the same as objects, and are checked as strictly."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from pydantic_core import to_json

from dlscale.benchmarks.records.files import BadFile, parse_record
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.windows import Windows, arrays_of, windows_json
from tests.made_records import make_record

NO_SHARE = b',"foreign_cpu":null'


@pytest.fixture
def text():
    factors = [1 + random.Random(seed).random() for seed in range(10)]  # noqa: S311
    made = make_record(backend="ring", num_ranks=2, window_factors=factors, rank_delays=[0.01])
    return made.model_dump_json().encode()


def test_they_are_equal_to_what_pydantic_reads(text):
    read, whole = parse_record(Path("x"), text), Record.model_validate_json(text)
    assert isinstance(read.windows, Windows)
    assert read == whole
    assert list(read.windows) == list(whole.windows)
    assert (read.windows[-1], len(read.windows)) == (whole.windows[-1], len(whole.windows))
    assert read.model_dump_json().encode() == whole.model_dump_json().encode() == text
    for name in ("steady", "num_steps", "start_seconds", "seconds"):
        np.testing.assert_array_equal(getattr(read.columns, name), getattr(arrays_of(whole.windows), name))
    assert len(read.counted) == len(read.columns) - 1  # a window of warm-up
    assert windows_json(read.windows) == windows_json(whole.windows)


def test_shares_of_other_programs_are_written_where_one_is_known(text):
    shares = text.replace(NO_SHARE, b',"foreign_cpu":0.25', 1)
    for content in (text, shares, text.replace(NO_SHARE, b"")):
        read, whole = parse_record(Path("x"), content), Record.model_validate_json(content)
        assert isinstance(read.windows, Windows)
        assert windows_json(read.windows) == windows_json(whole.windows)
        assert (b"foreign_cpu" in windows_json(read.windows)) == (content == shares)
    assert np.isnan(parse_record(Path("x"), shares).columns.foreign_cpu).sum() == len(read.windows) - 1


CHANGES = {
    "phase": ["cold", None, 1],
    "num_steps": [0, -1, "20", 20.0, True, None, 2**60, 10**25],
    "num_applied": [3, -1, 0, "x"],
    "num_samples": [7, 0],
    "rank_steps": [[5, 6], [-1]],
    "start_seconds": [[0.1], [], ["0.1", "0.2"], [0, 1], 5, [[0.1, 0.2]], [1e300, 1.0]],
    "seconds": [[0.1], [None, 0.1], [True, 0.1], {"a": 1}, [-1.0, 0.1], [1e25, 1.0]],
    "step_seconds": [[[0.1] * 20] * 2],
    "foreign_cpu": [0.5, -0.1, "0.5", True, {}],
    "unknown": [1],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, own in CHANGES.items() for value in own])
@pytest.mark.parametrize("everywhere", [False, True])
def test_they_are_read_as_pydantic_reads_them(text, name, value, everywhere):
    record = json.loads(text)
    for window in record["windows"] if everywhere else record["windows"][3:4]:
        window[name] = value
    content = to_json(record)
    read = parse_record(Path("x"), content)
    try:
        whole = Record.model_validate_json(content)
    except ValueError:
        assert isinstance(read, BadFile)
        window = f"windows.{0 if everywhere else 3}"
        assert (window in read.reason and name in read.reason) or "18 digits" in read.reason
        return
    assert list(read.windows) == list(whole.windows)
    assert json.loads(windows_json(read.windows)) == json.loads(windows_json(whole.windows))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b'"windows":[', b'"windows": [', 1),
        lambda text: text.replace(b'"seconds":[', b'"seconds":[ ', 1),
        lambda text: text.replace(b'"attempt":1', b'"attempt":0'),
        lambda text: text[: text.index(b"}]", text.index(b"windows"))],
        lambda text: text[:-1] + b',"windows":[]}',
        lambda text: text[: text.index(b',"windows"')] + b"}",
    ],
)
def test_other_layouts_are_read_as_pydantic_reads_them(text, change):
    content = change(text)
    assert content != text
    read = parse_record(Path("x"), content)
    try:
        assert read == Record.model_validate_json(content)
    except ValueError:
        assert isinstance(read, BadFile)


def test_windows_without_the_times_of_all_ranks(text):
    record = Record.model_validate_json(text)
    short = record.windows[2].model_copy(update={"seconds": [0.1]})
    record = record.model_copy(update={"windows": [*record.windows[:2], short]})
    assert np.isnan(record.columns.seconds).tolist() == [[False, False], [False, False], [True, True]]


def test_a_copy_with_other_fields_has_other_values(text):
    record = parse_record(Path("x"), text)
    cell, known = record.case.cell, record.case.cell.id
    assert cell.model_copy(update={"num_ranks": 7}).id != known
    assert cell.model_copy().id == known
    assert len(record.counted) != len(record.model_copy(update={"windows": []}).counted)
