"""Windows are read as columns of numbers, and say the same when written; what does not fit together is refused."""

import json

import numpy as np
import pytest

from dlscale.benchmarks.records.store import BadFile, read_record
from tests.made_records import Window, make_record, rows_of, windows_of

WARM_UP = Window("warmup", 1, [0.0, 0.25], [2.0, 2.5])
OWN = Window(
    "steady", 2, [3.0, 3.25], [0.5, 0.75], num_applied=3, rank_steps=[2, 1], foreign_cpu=-0.01, num_samples=24,
    step_seconds=[[0.25, 0.25], [0.5, 0.25]], bucket_seconds=[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]],
)  # fmt: skip


@pytest.fixture
def content():
    record = make_record(backend="ring", num_ranks=2).model_copy(
        update={"windows": windows_of([WARM_UP, OWN, OWN])}
    )
    return json.loads(record.model_dump_json())


@pytest.fixture
def read(tmp_path):
    def from_file(content):
        (tmp_path / "x.1.json").write_text(json.dumps(content))
        return read_record(tmp_path / "x.1.json")

    return from_file


def test_what_is_written_is_read_again(content, read):
    record = read(content)
    assert json.loads(record.model_dump_json()) == content
    assert record == read(json.loads(record.model_dump_json()))
    assert rows_of(record.windows)[2].step_seconds == OWN.step_seconds
    assert record.windows.bucket_seconds[1].tolist() == OWN.bucket_seconds
    for name in ("seconds", "start_seconds", "rank_steps"):
        assert getattr(record.windows, name)[2].tolist() == getattr(OWN, name)
    assert np.isnan(record.windows.num_applied[0])
    assert content["windows"]["num_applied"] == [None, 3, 3]
    content["windows"] = json.loads(windows_of([WARM_UP, WARM_UP]).model_dump_json())
    assert content["windows"].keys() == {"num_warm_up", "num_steps", "start_seconds", "seconds"}


def test_windows_after_the_warm_up_count(content, read):
    record = read(content)
    assert (len(record.windows), len(record.counted)) == (3, 2)
    assert record.windows.steady.tolist() == [False, True, True]
    assert record.counted.world.tolist() == [0.75, 0.75]
    assert record.counted.step_seconds is record.windows.step_seconds


def test_failures_have_none(read):
    record = make_record(num_ranks=2, failure="died")
    again = read(json.loads(record.model_dump_json()))
    assert again == record
    assert not again.windows
    assert again.counted.seconds.shape == (0, 2)


LISTS = "lists of numbers are expected, as many for every rank"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("num_warm_up", 4, "num_warm_up is 4, of 3 windows"),
        ("num_warm_up", 0, "step_seconds are 4 x 2, not 5 x 2"),
        ("num_steps", [1, 2], "start_seconds are 3 x 2, not 2 x 2"),
        ("num_steps", [1, 2, 0], "num_steps has a number that is missing, below 1 or too large"),
        ("num_steps", [1, 2, 2**55], "num_steps has a number"),
        ("num_steps", [1, 2, 10**400], LISTS),
        ("num_steps", [1, 2, float("inf")], "num_steps has a number"),
        ("seconds", [[1, 2, 3]], "start_seconds are 3 x 2, not 3 x 1"),
        ("seconds", [[1, 2, 3], [1, 2]], LISTS),
        ("seconds", [[1, 2, -3], [1, 2, 3]], "seconds has a number that is missing, below 0"),
        ("seconds", [[1, 2, float("nan")], [1, 2, 3]], "seconds has a number"),
        ("seconds", [[1, 2, None], [1, 2, 3]], "seconds has a number"),
        ("seconds", [1, 2, 3], "start_seconds are 3 x 2, not 3 x 3"),
        ("seconds", 3, LISTS),
        ("start_seconds", [[1, 2, 3], [1, 2, -1e300]], "start_seconds has a number"),
        ("start_seconds", [], "start_seconds are 0, not 3 x 2"),
        ("num_applied", [3, 3], "num_applied are 2, not 3"),
        ("foreign_cpu", [None, {}, 1], LISTS),
        ("rank_steps", [[1, 1, 1]], "rank_steps are 3 x 1, not 3 x 2"),
        ("bucket_seconds", [[[0.1, 0.1]] * 3], "bucket_seconds are 2 x 1 x 3, not 2 x 2 x 3"),
        ("bucket_seconds", [[0.1, 0.1]] * 2, "bucket_seconds are 2 x 2, not 2 x 2 x 2"),
        ("phase", [1], "phase"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_one_line(content, read, name, value, problem):
    content["windows"][name] = value
    found = read(content)
    assert isinstance(found, BadFile)
    assert problem in found.reason
    assert "\n" not in found.reason


def test_windows_are_those_of_all_ranks(content, read):
    content["windows"] = json.loads(windows_of([Window("steady", 2, [3.0], [0.5])]).model_dump_json())
    assert "windows.seconds is that of 1 ranks, of a case of 2" in read(content).reason


def test_a_copy_with_other_fields_has_other_values(content, read):
    record = read(content)
    cell, known = record.case.cell, record.case.cell.id
    assert cell.model_copy(update={"num_ranks": 7}).id != known
    assert cell.model_copy().id == known
    assert len(record.counted) != len(record.model_copy(update={"windows": windows_of([], 2)}).counted)
