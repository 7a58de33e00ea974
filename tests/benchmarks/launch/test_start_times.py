"""Start-up times are learnt from launches; a damaged file of them counts as none."""

import pytest

from dlscale.benchmarks.launch import start_times
from dlscale.benchmarks.launch.start_times import FILE, learn_start_times, read_start_times


@pytest.fixture
def record(make_record):
    """A record whose ranks took so many seconds from the start of mpiexec to the first window."""

    def make(first, second, **options):
        made = make_record(**options)
        phases = made.phases.model_copy(
            update={"start_up": [first, second], "import_backend": [0.5, 0.5], "connect": [0.25, 0.25]}
            | {"gates": [1.0, 1.0]}
        )
        return made.model_copy(update={"phases": phases})

    return make


def test_the_slowest_rank_of_the_latest_launch_of_a_cell_counts(record, tmp_path):
    ring = record(1.0, 2.0)
    learn_start_times(tmp_path, [record(9.0, 9.0), ring])
    learn_start_times(tmp_path, [record(3.0, 3.0, backend="mpi")])
    assert sorted(read_start_times(tmp_path).values()) == [3.75, 4.75]
    assert read_start_times(tmp_path)[ring.case.cell.id] == 3.75


def test_a_launch_that_died_on_the_way_teaches_nothing(record, tmp_path):
    learn_start_times(tmp_path, [record(1.0, None)])
    assert read_start_times(tmp_path) == {}


def test_only_the_latest_cells_are_kept(record, tmp_path, monkeypatch):
    monkeypatch.setattr(start_times, "MOST_CELLS", 1)
    latest = record(1.0, 1.0, backend="mpi")
    learn_start_times(tmp_path, [record(1.0, 1.0), latest])
    assert list(read_start_times(tmp_path)) == [latest.case.cell.id]


@pytest.mark.parametrize("text", ["", "[1]", '{"x": -1}', '{"x": "soon"}', '{"x": ', '{"x": 1e999}'])
def test_a_damaged_file_counts_as_none(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    assert read_start_times(tmp_path) == {}
