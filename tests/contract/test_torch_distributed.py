"""Torch's process groups between machines, which ranks of one machine only seem to be on."""

import numpy as np
import pytest
import torch

from dlscale.collectives import addresses
from dlscale.collectives.registry import connect
from dlscale.collectives.torch_distributed import _torch
from dlscale.models import load_workload
from dlscale.models.workload import Input, Shard


@pytest.fixture
def apart(world, monkeypatch):
    """Every rank has a machine of its own."""
    monkeypatch.setattr(addresses, "machine", lambda: str(world.Get_rank()))


@pytest.mark.requires("gloo-torch")
def test_where_open_ports_are_allowed_rank_0_listens(world, apart, monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    # This machine's name may have no address but loopback's, which is no place for other machines to look for.
    monkeypatch.setattr(_torch, "own_address", lambda **_: addresses.LOOPBACK)
    backend = connect("gloo", control=world, options={"allow_open_ports": True})
    collective = backend.collective()
    buffer = np.full(7, world.Get_rank() + 1.0, dtype=np.float32)
    collective.allreduce(buffer)
    np.testing.assert_array_equal(buffer, np.full(7, sum(range(1, world.Get_size() + 1)), np.float32))
    collective.close()
    shard = Shard(index=world.Get_rank(), count=world.Get_size())
    factory = load_workload("hep_cnn").factory(
        framework="torch", preset="tiny", local_batch=2, source=Input()
    )
    trainer = backend.distribute(factory, shard=shard, seed=shard.index)
    trainer.step()
    assert trainer.settings()["bucket_cap_mb"] == 25
    trainer.close()
    backend.close()
    assert not torch.distributed.is_initialized()
