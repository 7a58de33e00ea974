"""docs/examples: each script trains, and leaves the same weights on all ranks, each with its own part of the data."""

import getpass
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FOLDER = "docs/examples"
TOP = Path(__file__).parents[2]
LINE = re.compile(r"(\d+) steps, loss ([\d.]+) -> ([\d.]+), weights ([0-9a-f]{8})")
NUM_STEPS = 80  # of one process; ranks share them
NUM_SERVERS = {"torch/grpc_ps.py": 1, "tensorflow/grpc_ps.py": 1}
OF_DLSCALE = (
    "torch/grpc_ps.py",
    "torch/ring.py",
)  # the others use nothing that changes here: they run at night
COMMON_LOSS = ("tensorflow/tf_collective.py", "tensorflow/nccl.py")  # their loss is that of all ranks

NEEDS = {
    "torch/gloo.py": (),
    "torch/grpc_ps.py": ("grpc_ps-torch",),
    "torch/horovod_.py": ("horovod",),
    "torch/mpi.py": (),
    "torch/nccl.py": ("two_gpus",),
    "torch/ring.py": ("ring",),
    "tensorflow/grpc_ps.py": ("tensorflow",),
    "tensorflow/horovod_.py": ("tensorflow", "horovod"),
    "tensorflow/mpi.py": ("tensorflow",),
    "tensorflow/nccl.py": ("tensorflow", "two_gpus"),
    "tensorflow/ring.py": ("tensorflow", "ring"),
    "tensorflow/tf_collective.py": ("tensorflow",),
}


def skip_without_gpus(framework):
    """Skips where two ranks would not have a GPU each that the framework can use."""
    if len(list(Path("/dev").glob("nvidia[0-9]*"))) < 2:
        pytest.skip("two ranks need two GPUs, this machine has fewer")
    if framework == "torch":
        import torch

        found = torch.cuda.device_count()
    else:
        import tensorflow

        found = len(tensorflow.config.list_physical_devices("GPU"))
    if found < 2:
        pytest.skip(f"two ranks need two GPUs, {framework} can use {found}")


@pytest.mark.requires("mpiexec")
@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[
                *(pytest.mark.requires(need) for need in needs if need != "two_gpus"),
                *([] if name in OF_DLSCALE else [pytest.mark.nightly]),
            ],
        )
        for name, needs in NEEDS.items()
    ],
)
def test_it_trains_on_two_ranks(run_example, name, tmp_path, monkeypatch):
    if "two_gpus" in NEEDS[name]:
        skip_without_gpus(name.split("/")[0])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ranks = LINE.findall(run_example(name, 2 + NUM_SERVERS.get(name, 0), folder=FOLDER))
    assert len(ranks) == 2
    for num_steps, first, last, _ in ranks:
        assert int(num_steps) == NUM_STEPS / 2
        assert float(last) < float(first)
    assert len({weights for *_, weights in ranks}) == 1
    # Their weights are equal at every step, so on equal samples they would have equal losses.
    assert len({(first, last) for _, first, last, _ in ranks}) == (1 if name in COMMON_LOSS else 2)
    # torch's own cache, and bytecode of what TensorFlow's AutoGraph generates.
    known = {f"torchinductor_{getpass.getuser()}", "__pycache__"}
    left = {path.name for path in tmp_path.iterdir()} - known
    assert not left


@pytest.mark.nightly
@pytest.mark.requires("mpiexec")
@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "framework", ["torch", pytest.param("tensorflow", marks=pytest.mark.requires("tensorflow"))]
)
def test_the_single_process_trains(run_example, framework):
    ((num_steps, first, last, _),) = LINE.findall(run_example(f"{framework}/single.py", 1, folder=FOLDER))
    assert int(num_steps) == NUM_STEPS
    assert float(last) < float(first)


def test_every_script_is_run():
    scripts = {str(path.relative_to(TOP / FOLDER)) for path in (TOP / FOLDER).glob("*/*.py")}
    assert scripts == {"torch/single.py", "tensorflow/single.py", *NEEDS}
