"""Every workload in every framework, from the command to its records; and inputs with a bad sample in them."""

import json

import numpy as np
import pytest

from dlscale.models.frameworks import FRAMEWORKS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.requires("mpiexec", "ring", "tensorflow"),
    pytest.mark.timeout(600),
]


# Each workload once, each framework twice: both in all are in tests/models and tests/parity, both in one study in
# test_backends.
@pytest.mark.parametrize(
    ("framework", "workloads"), [("torch", "cosmogan,inception_v3"), ("tensorflow", "hep_cnn,resnet50")]
)
def test_all_workloads(bench, framework, workloads):
    done = bench.run(
        *("--workloads", workloads, "--frameworks", framework, "--backends", "ring", "--ranks", "2"),
        limit=540,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    records = bench.records()
    assert all(record.good for record in records), [record.failure for record in records]
    assert {record.case.cell.workload for record in records} == set(workloads.split(","))
    for record in records:
        assert {gate.name for gate in record.gates} >= {"broadcast", "gradient", "identity", "finite_loss"}
        assert record.skipped_samples == [0] * record.case.cell.num_ranks
    (study,) = (path.parent for path in bench.folder.glob("results/*/*/study.json"))
    for workload in workloads.split(","):
        assert list(study.glob(f"figures/{workload}-tiny-{framework}-weak-fp32-throughput.png"))


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
    done = bench.run(*ON_MAPS, "--frameworks", "tensorflow", "--data", str(maps), "--skip-bad")
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = bench.records()
    assert sum(record.skipped_samples) >= 1
    assert "unreadable sample" in " ".join(done.stdout.split())
    (study,) = bench.folder.glob("results/*/*/study.json")
    assert json.loads(study.read_text())["study"]["skip_bad"] is True


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_compiled_network_passes_the_gates(bench, framework):
    options = ("--frameworks", framework, "--backends", "ring", "--ranks", "2")
    done = bench.run(*options, "--compiled", "--precision", "bf16", limit=400)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = bench.records()
    assert record.good
    assert record.case.cell.compiled
    assert record.case.cell.precision == "bf16"
    assert {gate.name for gate in record.gates} >= {"broadcast", "gradient", "identity", "finite_loss"}
