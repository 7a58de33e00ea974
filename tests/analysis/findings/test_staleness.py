"""The staleness of asynchronous trainings, from their records to the screen and `--json`."""

import io

import pytest
from rich.console import Console

from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all, staleness
from dlscale.analysis.findings.staleness import STALENESS, stalenesses
from dlscale.analysis.measured import measure
from dlscale.analysis.render.data import study_json
from dlscale.analysis.render.screen import render_screen
from dlscale.benchmarks.records.record import Record


@pytest.fixture
def stale_record(make_record):
    """A launch over servers with that histogram."""

    def make(histogram, **options):
        record = make_record(backend="mpi_ps", num_servers=1, **options)
        return record.model_copy(update={"staleness": histogram})

    return make


def test_pushes_of_all_launches_are_counted_together(stale_record):
    (found,) = stalenesses([stale_record({0: 6, 2: 1}, block=0), stale_record({0: 2, 1: 90, 7: 1}, block=1)])
    assert found.histogram == {0: 8, 1: 90, 2: 1, 7: 1}
    assert (found.num_pushes, found.num_launches, found.mean) == (100, 2, 0.99)
    assert [found.quantile(share) for share in (0.08, 0.5, 0.99, 1)] == [0, 1, 2, 7]
    assert "missed 0.99 updates" in found.text
    assert "half of them at most 1, 99 % at most 2, none more than 7" in found.text


def test_a_failed_launch_does_not_count(stale_record):
    assert stalenesses([stale_record({3: 1}, failure="hangs")]) == []


def test_a_record_without_it_is_written_as_before(make_record, stale_record):
    assert "staleness" not in make_record().model_dump()
    record = stale_record({0: 6, 2: 1})
    assert Record.model_validate_json(record.model_dump_json()) == record


def test_screen_table_and_json_have_it(stale_record, make_record, table_text):
    records = [stale_record({0: 6, 2: 1}, num_ranks=2, block=block) for block in range(2)]
    table = measure(records)
    screen = Console(file=io.StringIO(), width=100)
    screen.print(render_screen(table, collect(load_all(), table)))
    assert "a push had missed 0.286 updates" in " ".join(screen.file.getvalue().split())
    assert "Staleness of what was pushed to servers" in table_text(table)
    (row,) = study_json(collect(load_all(), table))["staleness"]
    assert (row["num_pushes"], row["largest_staleness"], row["histogram"]) == (14, 2, "0: 12, 2: 2")
    assert len(STALENESS.of(staleness.FINDING.of(table)).rows) == 1
    assert not study_json(collect(load_all(), measure([make_record()])))["staleness"]
