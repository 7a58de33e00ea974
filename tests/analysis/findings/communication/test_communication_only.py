"""What an exchange takes alone, at a planted latency and bandwidth."""

import numpy as np
import pytest

from dlscale.analysis.findings.communication_only import bucket_seconds, communication_only
from dlscale.analysis.launches import launches_of
from tests.made_records import make_record, rows_of, windows_of

from .conftest import DRIFT, SIZES, Link, exchange_record


def of(link, num_blocks=6, **fields):
    return [exchange_record(link, drift=DRIFT[block], block=block, **fields) for block in range(num_blocks)]


def with_buckets(record, change):
    """The record with other times of single buckets, [W, P, buckets] to anything."""
    changed = {"bucket_seconds": change(record.windows.bucket_seconds)}
    return record.model_copy(update={"windows": record.windows.model_copy(update=changed)})


def test_latency_and_bandwidth_are_found_again():
    link = Link(latency=50e-6, bandwidth=3e9)
    (found,) = communication_only(launches_of(of(link)))
    drift = np.median(DRIFT[:6])
    assert found.num_bytes == sum(SIZES)
    assert found.seconds.center == pytest.approx(drift * link.step)
    assert found.busbw.center == pytest.approx(1.5 * sum(SIZES) / (drift * link.step))
    assert [(size.num_bytes, size.count) for size in found.sizes] == [
        (64 << 10, 1),
        (1 << 20, 1),
        (4 << 20, 2),
    ]
    for size in found.sizes:
        seconds = drift * link.seconds(size.num_bytes)  # the slowest rank's
        assert size.seconds.center == pytest.approx(seconds)
        assert size.algbw.center == pytest.approx(size.num_bytes / seconds)
        assert size.busbw.center == pytest.approx(1.5 * size.num_bytes / seconds)
        assert size.busbw.low < size.busbw.center < size.busbw.high
    large = communication_only(launches_of(of(Link(latency=0.0, bandwidth=3e9), 1)))[0].sizes[-1]
    assert large.busbw.center == pytest.approx(3e9)  # the link's, whatever the number of ranks


def test_what_ranks_do_between_buckets_does_not_count():
    record = exchange_record(Link())
    longer = [one._replace(seconds=[10 * each for each in one.seconds]) for one in rows_of(record.windows)]
    (found,), (slow,) = (
        communication_only(launches_of([record])),
        communication_only(launches_of([record.model_copy(update={"windows": windows_of(longer)})])),
    )
    assert slow.by_block == found.by_block


def test_one_rank_exchanges_nothing_and_other_controls_are_none():
    others = [make_record(backend="ring", num_ranks=4), make_record(num_ranks=4, control="loader")]
    assert communication_only(launches_of([exchange_record(Link(num_ranks=1)), *others])) == []


def test_failed_launches_and_warm_ups_do_not_count():
    records = of(Link(), 3)
    records.append(exchange_record(Link(), block=3, failure="hang"))
    (found,) = communication_only(launches_of(records))
    assert len(found.by_block) == 3
    assert found.sizes[0].seconds.n == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        lambda times: times[:, :, :-1],
        lambda times: np.where(times == times.min(), 0.0, times),
    ],
)
def test_impossible_times_of_buckets_are_left_out_and_told_of(change):
    records = of(Link(), 2)
    records[0] = with_buckets(records[0], change)
    (found,) = communication_only(launches_of(records))
    assert bucket_seconds(records[0]) is None
    assert (len(found.by_block), found.sizes[0].seconds.n) == (1, 1)
    assert found.notes == ("left out: 1 of 2 launches without sound times of buckets",)
    assert communication_only(launches_of(records[:1])) == []


def test_impossible_times_of_windows_make_no_number():
    record = exchange_record(Link())
    windows = [one._replace(seconds=[0.0] * 4) for one in rows_of(record.windows)]
    assert communication_only(launches_of([record.model_copy(update={"windows": windows_of(windows)})])) == []
    assert communication_only(launches_of([record.model_copy(update={"bucket_bytes": []})])) == []


def test_launches_that_cut_other_buckets_measured_something_else():
    records = of(Link(), 3)
    records.append(exchange_record(Link(sizes=(9 << 20,)), block=3))
    (found,) = communication_only(launches_of(records))
    assert found.num_bytes == sum(SIZES)
    assert len(found.by_block) == 3
    assert found.notes == ("left out: 1 of 4 launches, whose training cut other buckets",)


def test_kinds_of_evidence_and_options_stay_apart():
    records = [
        exchange_record(Link()),
        exchange_record(Link(), block=1, evidence="emulated"),
        exchange_record(Link(), backend_options={"threads": 2}),
    ]
    assert len(communication_only(launches_of(records))) == 3
