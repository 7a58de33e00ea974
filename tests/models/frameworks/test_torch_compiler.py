"""Torch's compiler is loaded where something compiles, and only there."""

import subprocess
import sys

import pytest

PROGRAM = """
import os
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from dlscale.models.frameworks import framework_module
framework_module("torch").prepare(1, compiles=sys.argv[1] == "compiles")
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.Adam([weight], lr=0.1)
def step():
    optimizer.zero_grad()
    (weight ** 2).sum().backward()
    optimizer.step()
step()
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
DistributedDataParallel(torch.nn.Linear(1, 1))(torch.ones(1, 1)).sum().backward()
dist.destroy_process_group()
print("torch._dynamo.utils" in sys.modules)
print(torch.compile(lambda x: 2 * x, backend="eager")(torch.ones(2)).tolist())
step()
print("torch._dynamo.utils" in sys.modules, [round(x, 4) for x in weight.tolist()])
"""


@pytest.mark.parametrize("word", ["compiles", "trains"])
def test_training_needs_no_compiler_which_is_there_when_it_is_used(word):
    done = subprocess.run([sys.executable, "-c", PROGRAM, word], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert lines == [str(word == "compiles"), "[2.0, 2.0]", "True [0.8004, 0.8004, 0.8004]"], done.stderr
