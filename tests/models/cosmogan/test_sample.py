"""The shipped maps serve every preset."""

import numpy as np
import pytest

from dlscale.models.cosmogan import WORKLOAD
from dlscale.models.cosmogan.data import check_input, default_input


@pytest.mark.parametrize("name", list(WORKLOAD.presets))
def test_it_serves_every_preset(name):
    preset = WORKLOAD.preset(name)
    source = default_input(preset)
    tiles = (256 // preset.input_shape[1]) ** 2
    check_input(source, preset, num_samples=tiles * len(np.load(source.path, mmap_mode="r")))
