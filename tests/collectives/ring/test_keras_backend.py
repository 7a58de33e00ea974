"""Where Keras runs on another framework, the ring's Keras front says what to do, and loads no TensorFlow."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import keras
from dlscale.collectives import ring
from dlscale.base.errors import UsageError
try:
    ring.keras_optimizer(keras.optimizers.SGD(), object())
except UsageError as error:
    print(error)
assert "tensorflow" not in sys.modules
"""


@pytest.mark.requires("keras")
def test_keras_on_torch_is_refused_in_one_line():
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "KERAS_BACKEND": "torch"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("\n") == 1
    assert "Keras runs on torch" in run.stdout
    assert "ring.torch_hook" in run.stdout
