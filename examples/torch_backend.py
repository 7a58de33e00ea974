"""torch.distributed over the ring: backend "dlscale" in the place of gloo, with MPI in the place of a rendezvous.

mpiexec -n 2 python examples/torch_backend.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlscale.collectives import ring

ring.register_torch_backend()
dist.init_process_group("dlscale", init_method="mpi://")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(rank)  # other samples on every rank; DistributedDataParallel takes the weights of rank 0
points = torch.rand(4000, 1) * 6
targets = points.sin() + 0.05 * torch.randn_like(points)

model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(200):
    batch = slice(step % 40 * 100, step % 40 * 100 + 100)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(points[batch]), targets[batch]).backward()
    optimizer.step()

error = nn.functional.mse_loss(model(points), targets).detach()
dist.all_reduce(error, dist.ReduceOp.AVG)
weights = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
everyone = [torch.empty_like(weights) for _ in range(size)]
dist.all_gather(everyone, weights)
if not all(torch.equal(other, weights) for other in everyone):
    raise SystemExit("the ranks hold different weights")
if error > 0.05:
    raise SystemExit(f"the mean squared error is {error.item():.3f}")
if rank == 0:
    print(f"{size} ranks learned a sine to a mean squared error of {error.item():.4f}, with the same weights")
dist.destroy_process_group()
