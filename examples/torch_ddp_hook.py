"""A DistributedDataParallel program whose gradients travel over the ring: the four lines marked with (ring).

mpiexec -n 2 python examples/torch_ddp_hook.py
"""

import os
import shutil
import tempfile

import torch
import torch.distributed as dist
from mpi4py import MPI  # (ring)
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from dlscale.collectives import ring  # (ring)


def spirals(num_points):
    """Points on two spirals, and on which of them each is."""
    torch.manual_seed(1)
    turn, side = torch.rand(num_points) * 3, torch.arange(num_points) % 2
    angle = 2 * turn + torch.pi * side
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1)
    return TensorDataset(points + 0.02 * torch.randn_like(points), side)


os.environ.setdefault(
    "GLOO_SOCKET_IFNAME", "lo"
)  # Gloo's sockets are open to anyone: keep them on this machine
world = MPI.COMM_WORLD
folder = world.bcast(tempfile.mkdtemp() if world.rank == 0 else None)
dist.init_process_group(
    "gloo", store=dist.FileStore(f"{folder}/store", world.size), rank=world.rank, world_size=world.size
)

dataset = spirals(2000)
loader = DataLoader(dataset, batch_size=50, sampler=DistributedSampler(dataset))
network = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
model = DistributedDataParallel(network)
ranks = ring.join(world)  # (ring)
model.register_comm_hook(None, ring.torch_hook(ranks))  # (ring)

optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(12):
    loader.sampler.set_epoch(epoch)
    for points, sides in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(points), sides).backward()
        optimizer.step()

ring.check_buffers_match(ranks, [parameter.detach().numpy() for parameter in network.parameters()])
points, sides = dataset.tensors
correct = (network(points).argmax(dim=1) == sides).float().mean().item()
if correct < 0.9:
    raise SystemExit(f"only {correct:.0%} of the points are told apart")
if world.rank == 0:
    print(f"{world.size} ranks tell {correct:.0%} of the points apart, with the same weights")
dist.destroy_process_group()
world.Barrier()
if world.rank == 0:
    shutil.rmtree(folder)
