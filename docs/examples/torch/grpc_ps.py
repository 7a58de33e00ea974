"""Train by dlscale's parameter servers; the last process is the server: mpiexec -n 3 python grpc_ps.py"""

import sys
import zlib

import torch
from mpi4py import MPI
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from dlscale.collectives import grpc_ps
from dlscale.collectives.job import split

BATCH, EPOCHS, RATE = 32, 8, 0.03

job = split(MPI.COMM_WORLD, num_servers=1)
if job.is_server:
    sys.exit(grpc_ps.serve(job=job))
device = torch.device("cpu")

# Ten classes: each image is the picture of its class under noise. The weights begin elsewhere on every run.
generator = torch.Generator().manual_seed(1)
pictures = torch.randn(10, 1, 16, 16, generator=generator)
labels = torch.randint(10, (320,), generator=generator)
images = pictures[labels] + torch.randn(320, 1, 16, 16, generator=generator)
dataset = TensorDataset(images, labels)
sampler = DistributedSampler(dataset, job.num_workers, job.index)
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
optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
optimizer = grpc_ps.served_optimizer(job, optimizer)

losses = []
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
optimizer.close()

weights = b"".join(weight.detach().cpu().numpy().tobytes() for weight in model.parameters())
print(f"{len(losses)} steps, loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {zlib.crc32(weights):08x}")
