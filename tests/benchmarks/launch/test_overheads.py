"""What launches take beside their windows is learnt from them; a damaged file of it counts as none."""

import pytest

from dlscale.benchmarks.launch import overheads
from dlscale.benchmarks.launch.overheads import FILE, learn_overhead, read_overheads


@pytest.fixture
def learn(make_record, tmp_path):
    """learn(*names, seconds): a launch of two cases that took so long beside its windows."""

    def one(*names, seconds, **options):
        records = [make_record(**options), make_record(backend="mpi")]
        windows = sum(max(window.seconds) for record in records for window in record.windows)
        learn_overhead(tmp_path, records, names=names, launch_seconds=windows + seconds)

    return one


def test_all_that_is_no_window_counts_and_the_median_of_the_latest_launches(learn, tmp_path, monkeypatch):
    monkeypatch.setattr(overheads, "MOST_LAUNCHES", 3)
    for seconds in (50.0, 4.5, 4.25, 9.0):  # audits and the end of a launch are in it as its start is
        learn("ring", "2 ranks", seconds=seconds)
    learn("mpi", "2 ranks", seconds=4.0)
    assert read_overheads(tmp_path) == pytest.approx({"ring": 4.5, "mpi": 4.0, "2 ranks": 4.25})


def test_a_launch_that_died_or_has_no_records_teaches_nothing(learn, tmp_path):
    learn("ring", seconds=1.0, failure="killed")
    learn_overhead(tmp_path, [], names=["ring"], launch_seconds=9.0)
    assert read_overheads(tmp_path) == {}


def test_only_the_latest_cells_are_kept(learn, tmp_path, monkeypatch):
    monkeypatch.setattr(overheads, "MOST_NAMES", 1)
    learn("ring", seconds=1.0)
    learn("mpi", seconds=1.0)
    assert list(read_overheads(tmp_path)) == ["mpi"]


@pytest.mark.parametrize(
    "text",
    ["", "[1]", '{"x": 1.5}', '{"x": []}', '{"x": [-1]}', '{"x": ["soon"]}', '{"x": ', '{"x": [1e999]}'],
)
def test_a_damaged_file_counts_as_none(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    assert read_overheads(tmp_path) == {}
