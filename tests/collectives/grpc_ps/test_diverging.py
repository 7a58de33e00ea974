"""Training that diverges is not the servers' business."""

import numpy as np

from dlscale.collectives.grpc_ps._torch_session import OrderedMean


def test_infinities_and_what_is_no_number_go_into_the_mean_without_a_warning():
    mean = OrderedMean(count=3, num_workers=3)
    largest = np.finfo(np.float32).max
    mean.add(0, np.array([largest, np.inf, np.nan], np.float32))
    mean.add(1, np.array([largest, -np.inf, 0], np.float32))
    found = mean.add(2, np.array([0, 0, 0], np.float32))
    np.testing.assert_array_equal(found, np.array([np.inf, np.nan, np.nan], np.float32))
