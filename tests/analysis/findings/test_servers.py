"""What servers counted of pushes."""

import pytest

from dlscale.analysis.findings.servers import FINDING
from dlscale.analysis.load import Study
from dlscale.analysis.render.text import as_data
from tests.made_records import make_record


def stale(histogram, **options):
    """A launch over servers with that histogram."""
    record = make_record(backend="mpi_ps", num_servers=1, **options)
    return record.model_copy(update={"staleness": histogram})


def rows(*records):
    return as_data(Study(records), [FINDING])["servers"]


def test_pushes_of_all_launches_are_counted_together():
    (row,) = rows(
        stale({0: 6, 2: 1}, block=0), stale({0: 2, 1: 90, 7: 1}, block=1), make_record(backend="mpi_ps")
    )
    assert row["histogram"] == "0: 8, 1: 90, 2: 1, 7: 1"
    assert (row["num_pushes"], row["num_launches"], row["mean_staleness"]) == (100, 2, 0.99)
    quantiles = [
        row[name] for name in ("median_staleness", "staleness_95", "staleness_99", "largest_staleness")
    ]
    assert quantiles == [1, 1, 2, 7]
    assert rows(stale({3: 1}, failure="hangs")) == []


def test_the_sentence_is_about_the_most_ranks():
    frame = FINDING.of(Study([stale({1: 1}, num_ranks=2), stale({0: 6, 2: 1}, num_ranks=4)]))
    assert FINDING.sentence(frame) == (
        "mpi_ps on 4 ranks: a push had missed 0.286 updates on average, 99 % of them at most 2."
    )
    assert frame["num_servers"].tolist() == [1, 1]


@pytest.mark.parametrize("records", [[], [make_record()], [make_record(failure="no")]])
def test_without_counts_there_is_no_row(records):
    frame = FINDING.of(Study(records))
    assert not len(frame)
    assert FINDING.sentence(frame) == ""
