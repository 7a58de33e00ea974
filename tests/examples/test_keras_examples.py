"""The examples for Keras and TensorFlow: each checks its own result, and says so in one line on rank 0."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = {
    "keras_fit.py": "over all their points",
    "tensorflow_loop.py": ", then 0.0",
}


@pytest.mark.requires("mpiexec")
@pytest.mark.requires("ring")
@pytest.mark.requires("tensorflow")
@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs_on_two_ranks(run_example, name, tmp_path):
    (line,) = run_example(name, 2).splitlines()
    assert line.startswith("2 ranks hold equal weights; ")
    assert EXAMPLES[name] in line
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_every_example_is_run():
    examples = Path(__file__).parents[2] / "examples"
    found = {path.name for path in examples.glob("*.py") if path.name.startswith(("keras_", "tensorflow_"))}
    assert found == set(EXAMPLES)
