"""Train over several ranks by DistributedDataParallel and dlscale's ring: mpiexec -n 2 python ring.py"""

import os
import tempfile
import zlib

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from dlscale.collectives import ring

BATCH, EPOCHS, RATE = 32, 8, 0.03

world = MPI.COMM_WORLD
os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # its sockets are open to anyone: keep them on this machine
folder = tempfile.TemporaryDirectory()
meeting = f"file://{world.bcast(folder.name)}/meeting"
dist.init_process_group("gloo", init_method=meeting, rank=world.rank, world_size=world.size)
device = torch.device("cpu")

# Ten classes: each image is the picture of its class under noise. The weights begin elsewhere on every run.
generator = torch.Generator().manual_seed(1)
pictures = torch.randn(10, 1, 16, 16, generator=generator)
labels = torch.randint(10, (320,), generator=generator)
images = pictures[labels] + torch.randn(320, 1, 16, 16, generator=generator)
dataset = TensorDataset(images, labels)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)

model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(256, 10),
)
model.to(device)
model = DistributedDataParallel(model)
model.register_comm_hook(None, ring.torch_hook(ring.join(world)))
optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)

losses = []
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

weights = b"".join(weight.detach().cpu().numpy().tobytes() for weight in model.parameters())
print(f"{len(losses)} steps, loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {zlib.crc32(weights):08x}")
dist.destroy_process_group()
world.Barrier()
