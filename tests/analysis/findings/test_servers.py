"""What servers counted of pushes and gradients."""

import numpy as np
import pytest

from dlscale.analysis.findings.servers import FINDING
from dlscale.analysis.load import Study
from dlscale.analysis.render.text import as_data
from dlscale.benchmarks.records.record import LateGradients
from tests.made_records import make_record


def stale(histogram, **options):
    """A launch over servers with that histogram."""
    record = make_record(backend="mpi_ps", num_servers=1, **options)
    return record.model_copy(update={"staleness": histogram})


def late(computed, dropped, **options):
    """A launch over servers with those counts of each rank."""
    record = make_record(**{"backend": "mpi_ps", "num_servers": 1} | options)
    return record.model_copy(update={"late_gradients": LateGradients(computed=computed, dropped=dropped)})


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
    assert row["num_computed"] is None
    assert rows(stale({3: 1}, failure="hangs")) == []


def test_gradients_of_all_launches_are_counted_together():
    both = {"num_ranks": 2}
    (row,) = rows(late([50, 40], [0, 10], block=0, **both), late([50, 60], [1, 9], block=1, **both))
    found = [
        row[name] for name in ("num_computed", "num_dropped", "dropped_share", "latest_rank", "num_pushes")
    ]
    assert found == [200, 20, 0.1, 1, None]
    (row,) = rows(late([50, 40], [0, 9], num_servers=3, **both))
    assert row["dropped_share"] == pytest.approx(0.9 / 27), "each server gets a part of every gradient"


def test_the_sentence_is_about_the_most_ranks():
    study = Study(
        [
            stale({1: 1}, num_ranks=2),
            stale({0: 6, 2: 1}, num_ranks=4),
            late([50] * 4, [0, 0, 9, 1], num_ranks=4, backend_options={"backup_workers": 1}),
            late([50] * 4, [0] * 4, num_ranks=4, backend_options={"backup_workers": 2}),
        ]
    )
    frame = FINDING.of(study)
    assert FINDING.sentence(frame) == (
        "mpi_ps on 4 ranks: a push had missed 0.286 updates on average, 99 % of them at most 2. "
        "mpi_ps (backup_workers=1) on 4 ranks: 5.0 % of the gradients came too late, most of rank 2. "
        "mpi_ps (backup_workers=2) on 4 ranks: 0.0 % of the gradients came too late."
    )
    assert frame["num_servers"].tolist() == [1, 1, 1, 1]
    assert np.isnan(frame["dropped_share"]).sum() == 2


@pytest.mark.parametrize("records", [[], [make_record()], [make_record(failure="no")]])
def test_without_counts_there_is_no_row(records):
    frame = FINDING.of(Study(records))
    assert not len(frame)
    assert FINDING.sentence(frame) == ""
