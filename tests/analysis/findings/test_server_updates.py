"""What servers counted of pushes and gradients, from the records to the screen and `--json`."""

from dlscale.analysis.declare import Table
from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all
from dlscale.analysis.findings.server_updates import late_gradients, stalenesses
from dlscale.analysis.measured import measure
from dlscale.analysis.records import num_samples
from dlscale.analysis.render.data import study_json
from dlscale.benchmarks.records.record import LateGradients, Record
from tests.analysis.reading import screen_text
from tests.made_records import make_record, rows_of, windows_of


def stale(histogram, **options):
    """A launch over servers with that histogram."""
    record = make_record(backend="mpi_ps", num_servers=1, **options)
    return record.model_copy(update={"staleness": histogram})


def late(computed, dropped, **options):
    """A launch over servers with those counts of each rank."""
    record = make_record(backend="mpi_ps", num_servers=1, **options)
    counts = LateGradients(computed=computed, dropped=dropped)
    return record.model_copy(update={"late_gradients": counts})


def test_pushes_of_all_launches_are_counted_together():
    (found,) = stalenesses([stale({0: 6, 2: 1}, block=0), stale({0: 2, 1: 90, 7: 1}, block=1)])
    assert found.histogram == {0: 8, 1: 90, 2: 1, 7: 1}
    assert (found.num_pushes, found.num_launches, found.mean) == (100, 2, 0.99)
    assert [found.quantile(share) for share in (0.08, 0.5, 0.99, 1)] == [0, 1, 2, 7]
    assert stalenesses([stale({3: 1}, failure="hangs")]) == []


def test_gradients_of_all_launches_are_counted_together():
    (found,) = late_gradients([late([50, 40], [0, 10], block=0), late([50, 60], [1, 9], block=1)])
    assert (found.computed, found.dropped, found.share, found.latest_rank) == ((100, 100), (1, 19), 0.1, 1)
    (none,) = late_gradients([late([50, 40], [0, 0])])
    assert none.share == 0
    assert late_gradients([late([50, 40], [0, 10], failure="hangs")]) == []


def test_screen_table_and_json_have_both():
    records = [stale({0: 6, 2: 1}, num_ranks=2), late([50, 40], [0, 9], num_ranks=2, block=1)]
    for record in records:
        assert Record.model_validate_json(record.model_dump_json()) == record
    study = measure(records)
    found = collect(load_all(), study)
    screen = screen_text(study)
    assert "a push had missed 0.286 updates" in screen
    assert "10.0 % of the gradients" in screen
    tables = {block.name: block for one in found for block in one.blocks if isinstance(block, Table)}
    assert len(tables["staleness"].rows) == len(tables["late_gradients"].rows) == 1
    data = study_json(found)
    (row,) = data["staleness"]
    assert (row["num_pushes"], row["largest_staleness"], row["histogram"]) == (7, 2, "0: 6, 2: 1")
    (row,) = data["late_gradients"]
    assert (row["num_computed"], row["num_dropped"], row["latest_rank"]) == (90, 9, 1)
    assert not {"staleness", "late_gradients"} & set(make_record().model_dump()), "written only where counted"


def test_samples_that_were_thrown_away_do_not_count():
    record = make_record()
    *windows, last = rows_of(record.windows)
    windows += [last._replace(num_samples=7)]
    every, short = (
        num_samples(each, record.case.cell).sum() for each in (record.windows, windows_of(windows))
    )
    assert every - short == last.num_steps * record.case.cell.global_batch - 7
