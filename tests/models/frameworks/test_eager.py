"""A process that compiles nothing is spared torch's compiler, and gets it once it asks for it."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, torch
from dlscale.models import load_workload
from dlscale.models.workload import Execution, Input, Shard
factory = load_workload("hep_cnn").factory(
    framework="torch", preset="tiny", local_batch=2, source=Input(), execution=Execution()
)
replica = factory(shard=Shard(), seed=1)
replica.apply(replica.gradients())
replica.restore(replica.state())
assert "torch._dynamo.eval_frame" not in sys.modules

@torch.compiler.disable(recursive=False)
def excluded(values):
    assert not torch.compiler.is_compiling()
    return values

def doubling(values):
    return 2 * excluded(values)

doubled = torch.compile(doubling, backend="eager")(torch.ones(3))
assert doubled.tolist() == [2, 2, 2]
import torch._dynamo.config
assert torch._dynamo is sys.modules["torch._dynamo"] and torch._dynamo.explain
replica.apply(replica.gradients())
"""


@pytest.mark.requires("torch")
def test_the_compiler_is_loaded_when_it_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
