"""Gradients that backup workers computed in vain, from their records to the screen and `--json`."""

import io

import pytest
from rich.console import Console

from dlscale.analysis.finding import collect
from dlscale.analysis.findings import late_gradients as late
from dlscale.analysis.findings import load_all
from dlscale.analysis.findings.late_gradients import LATE_GRADIENTS, late_gradients
from dlscale.analysis.measured import measure
from dlscale.analysis.records import num_samples
from dlscale.analysis.render.data import study_json
from dlscale.analysis.render.screen import render_screen
from dlscale.benchmarks.records.record import LateGradients, Record
from dlscale.benchmarks.records.windows import arrays_of


@pytest.fixture
def late_record(make_record):
    """A launch on two ranks over servers with those counts."""

    def make(computed, dropped, **options):
        record = make_record(backend="mpi_ps", num_servers=1, **options)
        late = LateGradients(computed=computed, dropped=dropped)
        return record.model_copy(update={"late_gradients": late})

    return make


def test_gradients_of_all_launches_are_counted_together(late_record):
    (found,) = late_gradients(
        [late_record([50, 40], [0, 10], block=0), late_record([50, 60], [1, 9], block=1)]
    )
    assert (found.computed, found.dropped, found.share, found.latest_rank) == ((100, 100), (1, 19), 0.1, 1)
    assert (
        "10.0 % of the gradients came too late and were dropped, most of them rank 1's (19 of 100)"
        in found.text
    )
    (none,) = late_gradients([late_record([50, 40], [0, 0])])
    assert none.text.endswith("no gradient came too late.")
    assert late_gradients([late_record([50, 40], [0, 10], failure="hangs")]) == []


def test_screen_table_and_json_show_it(late_record):
    record = late_record([50, 40], [0, 9])
    assert Record.model_validate_json(record.model_dump_json()) == record
    table = measure([record])
    screen = io.StringIO()
    Console(file=screen, width=120).print(render_screen(table, collect(load_all(), table)))
    assert "10.0 % of the gradients" in " ".join(screen.getvalue().split())
    assert len(LATE_GRADIENTS.of(late.FINDING.of(table)).rows) == 1
    (row,) = study_json(collect(load_all(), table))["late_gradients"]
    assert (row["num_computed"], row["num_dropped"], row["latest_rank"]) == (90, 9, 1)


def test_a_record_without_it_is_written_as_before(make_record):
    assert "late_gradients" not in make_record().model_dump()


def test_samples_that_were_thrown_away_do_not_count(make_record):
    record = make_record()
    *windows, last = record.windows
    windows += [last.model_copy(update={"num_samples": 7})]
    every, short = (
        num_samples(arrays_of(each), record.case.cell).sum() for each in (record.windows, windows)
    )
    assert every - short == last.num_steps * record.case.cell.global_batch - 7
