"""The examples for NumPy, torch, Keras and TensorFlow: each checks its own result, and says so on rank 0."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PREFIXES = ("keras_", "mpi4py_", "tensorflow_", "torch_")
TENSORFLOW = pytest.mark.requires("tensorflow")
EXAMPLES = [
    ("mpi4py_allreduce.py", ".*found the weights"),
    ("mpi4py_backend.py", "have the same average"),
    ("torch_ddp_hook.py", ".*of the points apart"),
    pytest.param("keras_fit.py", "hold equal weights; .*over all their points", marks=TENSORFLOW),
    pytest.param("tensorflow_loop.py", r"hold equal weights; .*, then 0\.0", marks=TENSORFLOW),
]


@pytest.mark.requires("mpiexec")
@pytest.mark.requires("ring")
@pytest.mark.timeout(150)
@pytest.mark.parametrize(("name", "said"), EXAMPLES)
def test_it_runs_on_two_ranks(run_example, name, said, tmp_path):
    (line,) = run_example(name, 2).splitlines()
    assert re.match(f"2 ranks {said}", line)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_every_example_is_run():
    examples = Path(__file__).parents[2] / "examples"
    found = {path.name for path in examples.glob("*.py") if path.name.startswith(PREFIXES)}
    assert found == {getattr(example, "values", example)[0] for example in EXAMPLES}
