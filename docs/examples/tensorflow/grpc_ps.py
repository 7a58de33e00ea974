"""Train by TensorFlow's parameter servers; the first process is the server: mpiexec -n 3 python grpc_ps.py"""

import socket
import sys
import time
import zlib

import keras
import numpy as np
import tensorflow as tf
from mpi4py import MPI

BATCH, EPOCHS, RATE = 32, 8, 0.03

world = MPI.COMM_WORLD
num_workers, chief = world.size - 1, world.rank == 1
with socket.create_server(("127.0.0.1", 0)) as free:  # TensorFlow wants to be told every process's port
    addresses = world.allgather(f"127.0.0.1:{free.getsockname()[1]}")
cluster = tf.train.ClusterSpec({"ps": addresses[:1], "worker": addresses[1:]})
job, index = ("worker", world.rank - 1) if world.rank else ("ps", 0)
server = tf.distribute.Server(cluster, job_name=job, task_index=index)
if job == "ps":
    finished = world.Ibarrier()
    while not finished.Test():  # server.join() would never return
        time.sleep(0.1)
    sys.exit()
tf.compat.v1.disable_eager_execution()

# Ten classes: each image is the picture of its class under noise. The weights begin elsewhere on every run.
generator = np.random.default_rng(1)
pictures = generator.standard_normal((10, 16, 16, 1), dtype=np.float32)
labels = generator.integers(10, size=320)
images = pictures[labels] + generator.standard_normal((320, 16, 16, 1), dtype=np.float32)
dataset = tf.data.Dataset.from_tensor_slices((images, labels))
dataset = dataset.shard(num_workers, index).shuffle(len(labels), seed=2).batch(BATCH).repeat(EPOCHS)


def build_model():
    return keras.Sequential(
        [
            keras.Input((16, 16, 1)),
            keras.layers.Conv2D(8, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )


placement = tf.compat.v1.train.replica_device_setter(
    worker_device=f"/job:worker/task:{index}", cluster=cluster
)
with tf.compat.v1.device(placement):
    global_step = tf.compat.v1.train.get_or_create_global_step()
    model = build_model()
    optimizer = tf.compat.v1.train.MomentumOptimizer(RATE, momentum=0.9)
    optimizer = tf.compat.v1.train.SyncReplicasOptimizer(optimizer, num_workers, num_workers)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    x, y = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
    loss = loss_function(y, model(x))
    variables = [v.value for v in model.trainable_variables]
    train = optimizer.minimize(loss, global_step, variables)

losses = []
hook = optimizer.make_session_run_hook(chief, num_tokens=0)
if not chief:
    world.recv(source=1)  # a worker that comes before the chief's weights looks again after 30 s
# In the end the chief's thread of updates waits for more gradients: it gets a second, and is cancelled.
with tf.compat.v1.train.MonitoredTrainingSession(
    server.target, chief, hooks=[hook], stop_grace_period_secs=1
) as session:
    if chief:
        for rank in range(2, world.size):
            world.send(None, rank)
    for _ in range(EPOCHS * len(labels) // BATCH // num_workers):
        losses.append(session.run([loss, train])[0])  # noqa: PERF401
    values = session.run(variables)

weights = b"".join(weight.tobytes() for weight in values)
print(f"{len(losses)} steps, loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {zlib.crc32(weights):08x}")
world.Ibarrier().Wait()
