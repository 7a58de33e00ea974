"""Linear regression by gradient descent in NumPy: every rank has its own part of the samples.

mpiexec -n 2 python examples/mpi4py_allreduce.py
"""

import numpy as np
from mpi4py import MPI

from dlscale.collectives import ring

ranks = ring.join(MPI.COMM_WORLD)

generator = np.random.default_rng(ranks.rank)  # other samples on every rank, of the same law
samples = generator.standard_normal((500, 20), dtype=np.float32)
truth = np.linspace(-1, 1, 20, dtype=np.float32)
targets = samples @ truth + 0.1 * generator.standard_normal(500, dtype=np.float32)

weights = np.zeros(20, dtype=np.float32)
gradient = ranks.empty(20)  # memory that the ranks of a node share: the fastest place for it
for _ in range(100):
    gradient[:] = samples.T @ (samples @ weights - targets) / len(samples)
    ranks.allreduce(gradient, "average")
    weights -= 0.5 * gradient

ring.check_buffers_match(ranks, [weights], names=["weights"])
error = float(np.abs(weights - truth).max())
if error > 0.05:
    raise SystemExit(f"the weights are {error} from the truth")
if ranks.rank == 0:
    print(f"{ranks.size} ranks found the weights to {error:.3f}, all the same")
ranks.close()
