"""Workloads in both frameworks, from the command to its records; and inputs with a bad sample in them."""

import json

import numpy as np
import pytest

from dlscale.models import NAMES
from dlscale.models.frameworks import FRAMEWORKS

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.requires("mpiexec", "ring", "tensorflow"),
    pytest.mark.timeout(600),
]


# Each is to be better than what does not learn: one class or one shape for all, the maps of initial weights, or the
# shares of single bytes (4.4 bits).
STUDY = """
name = "tiny-target"
title = "All workloads to a tiny target"
scaling_mode = "weak"
workloads = ["hep_cnn", "cosmogan", "resnet50", "inception_v3", "gpt"]
frameworks = ["torch"]
backends = ["ring"]
preset = "tiny"
precision = "fp32"
batch = 8
ranks = [2]
base = "smallest"
launches = 1
[target]
held_out = 0.05
evaluate_samples = 240
max_seconds = "120s"
goals.hep_cnn.tiny = {metric = "auc", threshold = 0.75, learning_rate = 3e-3}
goals.cosmogan.tiny = {metric = "pixel_distance", threshold = 0.85}
goals.resnet50.tiny = {metric = "top1", threshold = 0.2, learning_rate = 0.03}
goals.inception_v3.tiny = {metric = "top1", threshold = 0.15, learning_rate = 0.03}
goals.gpt.tiny = {metric = "bits_per_byte", threshold = 4.0}
"""


def coloured(label):
    """An image in CIFAR-10's format whose brightness says its label."""
    noise = np.random.default_rng(label).integers(0, 20, 3072)
    return bytes([label]) + (23 * label + noise).astype(np.uint8).tobytes()


# In TensorFlow, where building the networks takes minutes, one of each kind of data and objective; the others learn
# alike there, as tests/models and tests/parity show. A study of both frameworks would compare the networks first.
@pytest.mark.parametrize(
    ("framework", "names"),
    [("torch", NAMES), ("tensorflow", ("cosmogan", "resnet50", "gpt"))],
    ids=["torch", "tensorflow"],
)
def test_workloads_reach_a_tiny_target(bench, framework, names):
    study, images = bench.folder / "study.toml", bench.folder / "images.bin"
    study.write_text(STUDY)
    images.write_bytes(b"".join(coloured(label) for label in range(10) for _ in range(100)))
    of_images = [name for name in names if name in ("resnet50", "inception_v3")]
    data = ",".join(f"{name}={images}" for name in of_images)
    options = ("--frameworks", framework, "--workloads", ",".join(names), "--data", data)
    done = bench.run(*options, study=study, limit=540)
    assert done.returncode == 0, done.stdout + done.stderr
    records = bench.records()
    assert all(record.good for record in records), [record.failure for record in records]
    assert {record.case.cell.workload for record in records} == set(names)
    for record in records:
        assert record.solution.end == "reached"
        assert {gate.name for gate in record.gates} >= {"broadcast", "gradient", "identity", "finite_loss"}
        assert record.skipped_samples == [0, 0]
    figures = {path.name for path in bench.folder.glob("results/*/*/figures/*-time-to-target.png")}
    assert len(figures) == len(names)


@pytest.fixture
def maps(tmp_path):
    """Maps of which one, somewhere in the first epoch of either rank, has a pixel that is not a number."""
    path = tmp_path / "maps.npy"
    content = np.random.default_rng(1).uniform(-1, 1, (40, 32, 32)).astype(np.float32)
    content[17, 3, 5] = np.nan
    np.save(path, content)
    return path


ON_MAPS = ("--workloads", "cosmogan", "--backends", "ring", "--ranks", "2")


def test_a_bad_sample_ends_the_launch_and_is_named(bench, maps):
    done = bench.run(*ON_MAPS, "--frameworks", "torch", "--data", str(maps))
    assert done.returncode == 2
    (record,) = bench.records()
    assert record.failure.kind == "error"
    assert "maps.npy" in record.failure.message
    assert "map 17" in record.failure.message
    assert "\n" not in record.failure.message


def test_a_bad_sample_is_skipped_and_counted(bench, maps):
    done = bench.run(*ON_MAPS, "--frameworks", "tensorflow", "--data", str(maps), "--set", "skip_bad=yes")
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = bench.records()
    assert sum(record.skipped_samples) >= 1
    assert "unreadable sample" in " ".join(done.stdout.split())
    (study,) = bench.folder.glob("results/*/*/study.json")
    assert json.loads(study.read_text())["study"]["skip_bad"] is True


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_compiled_network_passes_the_gates(bench, framework):
    options = ("--frameworks", framework, "--backends", "ring", "--ranks", "2")
    done = bench.run(*options, "--set", "compiled=yes", "--precision", "bf16", limit=400)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = bench.records()
    assert record.good
    assert record.case.cell.compiled
    assert record.case.cell.precision == "bf16"
    assert {gate.name for gate in record.gates} >= {"broadcast", "gradient", "identity", "finite_loss"}
