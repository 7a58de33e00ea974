"""The examples for NumPy and torch: each checks its own result, and says so in one line on rank 0."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = {
    "mpi4py_allreduce.py": "found the weights",
    "torch_backend.py": "learned a sine",
    "torch_ddp_hook.py": "of the points apart",
}


@pytest.mark.requires("mpiexec")
@pytest.mark.requires("ring")
@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs_on_two_ranks(run_example, name, tmp_path):
    (line,) = run_example(name, 2).splitlines()
    assert line.startswith("2 ranks ")
    assert EXAMPLES[name] in line
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_every_example_is_run():
    examples = Path(__file__).parents[2] / "examples"
    found = {path.name for path in examples.glob("*.py") if path.name.startswith(("mpi4py_", "torch_"))}
    assert found == set(EXAMPLES)
