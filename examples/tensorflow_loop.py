"""Train in a TensorFlow loop of one's own on several ranks: mpiexec -n 2 python examples/tensorflow_loop.py

The optimizer averages the tape's gradients before it applies them.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from mpi4py import MPI

from dlscale.collectives import ring

LOCAL_BATCH, NUM_STEPS, RATE = 32, 300, 0.05

ranks = ring.join(MPI.COMM_WORLD)
generator = np.random.default_rng([1, ranks.rank])  # every rank draws samples of its own

# A network of two layers learns the product of two numbers.
initial = np.random.default_rng(2)
variables = [
    tf.Variable(initial.normal(0, scale, shape).astype(np.float32))
    for shape, scale in (((2, 32), 0.7), ((32,), 0.1), ((32, 1), 0.2), ((1,), 0.0))
]
optimizer = ring.keras_optimizer(keras.optimizers.SGD(RATE), ranks)
optimizer.build(variables)


@tf.function
def train(x, y):
    """One step on this rank's samples; all ranks apply the same means."""
    with tf.GradientTape() as tape:
        hidden = tf.tanh(x @ variables[0] + variables[1])
        loss = tf.reduce_mean((hidden @ variables[2] + variables[3] - y) ** 2)
    optimizer.apply(tape.gradient(loss, variables), variables)
    return loss


losses = []
for _ in range(NUM_STEPS):
    x = generator.uniform(-1, 1, (LOCAL_BATCH, 2)).astype(np.float32)
    losses.append(float(train(x, x[:, :1] * x[:, 1:])))

ring.check_buffers_match(ranks, [variable.numpy() for variable in variables])
first, last = (np.array([np.mean(part)]) for part in (losses[:20], losses[-20:]))
ranks.allreduce(first, "average")
ranks.allreduce(last, "average")
if last > first / 2:
    raise SystemExit(f"the network did not learn: loss {first[0]:.4f}, then {last[0]:.4f}")
if ranks.rank == 0:
    print(f"{ranks.size} ranks hold equal weights; loss {first[0]:.4f}, then {last[0]:.4f}")
ranks.close()
