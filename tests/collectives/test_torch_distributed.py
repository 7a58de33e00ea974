"""DistributedDataParallel as its users have it."""

from types import SimpleNamespace

import pytest
import torch

from dlscale.collectives.backend import BUCKET_SIZES
from dlscale.collectives.torch_distributed._torch import DdpExchange

pytestmark = pytest.mark.requires("gloo-torch")


@pytest.fixture
def alone(tmp_path):
    """A process group of one rank."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def buckets(bucket_cap_mb):
    """The number of buckets of three layers of 1.4 MB each."""
    network = torch.nn.Sequential(*(torch.nn.Linear(600, 600) for _ in range(3)))
    objective = SimpleNamespace(loss=network, parameters=list(network.parameters()))
    exchange = DdpExchange(objective, bucket_cap_mb=bucket_cap_mb)
    for _ in range(3):  # buckets are cut anew after the first step, which the third one says
        exchange.loss(torch.zeros(1, 600)).sum().backward()
    count = len(exchange.settings()[BUCKET_SIZES].split(","))
    exchange.close()
    return count


def test_torchs_own_buckets_begin_with_a_small_one(alone):
    """A size that is given, were it torch's own, would hold for the first bucket too."""
    assert buckets(25) == 2
    assert buckets(24) == 1
