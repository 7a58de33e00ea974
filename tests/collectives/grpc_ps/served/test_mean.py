"""The mean of gradients does not depend on the order in which they come."""

from itertools import permutations

import numpy as np
import pytest

from dlscale.collectives.grpc_ps._torch_session import OrderedMean
from dlscale.collectives.grpc_ps.messages import RefusedError

pytestmark = pytest.mark.requires("grpc_ps-torch")


def gradients(num_workers, *, seed=0, count=7):
    generator = np.random.default_rng(seed)
    scales = 10.0 ** generator.integers(-6, 6, size=(num_workers, count))
    return (generator.standard_normal((num_workers, count)) * scales).astype(np.float32)


@pytest.mark.parametrize("num_workers", [2, 3, 4])
def test_the_mean_has_the_same_bits_in_every_order(num_workers):
    rows = gradients(num_workers)
    expected = rows[0].copy()
    for row in rows[1:]:
        expected += row
    expected /= np.float32(num_workers)
    for order in permutations(range(num_workers)):
        mean = OrderedMean(count=rows.shape[1], num_workers=num_workers)
        *early, last = (mean.add(worker, rows[worker].copy()) for worker in order)
        assert early == [None] * (num_workers - 1)
        np.testing.assert_array_equal(last, expected, strict=True)


def test_nothing_is_left_over_for_the_next_step():
    mean = OrderedMean(count=7, num_workers=3)
    for seed, order in enumerate([(0, 1, 2), (2, 1, 0), (1, 2, 0)]):
        rows = gradients(3, seed=seed)
        assert not mean.is_partial
        for worker in order[:2]:
            assert mean.add(worker, rows[worker]) is None
            assert mean.is_partial
        found = mean.add(order[2], rows[order[2]])
        np.testing.assert_array_equal(found, (rows[0] + rows[1] + rows[2]) / np.float32(3))


def test_what_workers_sent_is_not_written_to():
    """It may be a message, whose memory is read-only."""
    rows = gradients(3)
    rows.setflags(write=False)
    mean = OrderedMean(count=7, num_workers=3)
    assert [mean.add(worker, rows[worker]) is None for worker in (1, 0, 2)] == [True, True, False]


@pytest.mark.parametrize("worker", [0, 2])
def test_a_second_gradient_in_a_step_is_refused(worker):
    """Worker 0's is added at once, worker 2's waits for worker 1's."""
    mean = OrderedMean(count=7, num_workers=3)
    mean.add(worker, gradients(3)[worker])
    with pytest.raises(RefusedError, match=f"worker {worker} sent a gradient twice"):
        mean.add(worker, gradients(3)[worker])


def test_infinities_and_what_is_no_number_go_into_the_mean_without_a_warning():
    """Training that diverges is not the servers' business."""
    mean = OrderedMean(count=3, num_workers=3)
    largest = np.finfo(np.float32).max
    mean.add(0, np.array([largest, np.inf, np.nan], np.float32))
    mean.add(1, np.array([largest, -np.inf, 0], np.float32))
    found = mean.add(2, np.array([0, 0, 0], np.float32))
    np.testing.assert_array_equal(found, np.array([np.inf, np.nan, np.nan], np.float32))
