"""`dlscale data`: what a workload reads, and what is said of what it does not."""

import numpy as np
import pytest
from click.testing import CliRunner

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import cli


def said(*words):
    done = CliRunner().invoke(cli, ["data", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_samples_are_counted_as_the_preset_reads_them(tmp_path):
    np.save(tmp_path / "maps.npy", np.zeros((3, 64, 64), np.float32))
    found = said("cosmogan", tmp_path / "maps.npy", "--preset", "tiny")
    assert found == f"{tmp_path}/maps.npy: 12 samples for cosmogan (tiny), of shape 1 x 32 x 32\n"
    assert ": 4,000 samples for hep_cnn (small), of shape 3 x 64 x 64" in said("hep_cnn")
    assert "random tensors for resnet50 (" in said("resnet50")


def test_what_is_not_read_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere: need class folders, .*; check the path$"):
        said("resnet50", tmp_path / "nowhere")
