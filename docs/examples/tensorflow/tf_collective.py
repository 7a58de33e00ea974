"""Train over several ranks by MultiWorkerMirroredStrategy over gRPC: mpiexec -n 2 python tf_collective.py"""

import json
import os
import socket
import zlib

import keras
import numpy as np
import tensorflow as tf
from mpi4py import MPI

BATCH, EPOCHS, RATE = 32, 8, 0.03

world = MPI.COMM_WORLD
with socket.create_server(("127.0.0.1", 0)) as free:  # TensorFlow wants to be told every rank's port
    addresses = world.allgather(f"127.0.0.1:{free.getsockname()[1]}")
task = {"type": "worker", "index": world.rank}
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
strategy = tf.distribute.MultiWorkerMirroredStrategy(
    communication_options=tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
)

# Ten classes: each image is the picture of its class under noise. The weights begin elsewhere on every run.
generator = np.random.default_rng(1)
pictures = generator.standard_normal((10, 16, 16, 1), dtype=np.float32)
labels = generator.integers(10, size=320)
images = pictures[labels] + generator.standard_normal((320, 16, 16, 1), dtype=np.float32)
dataset = tf.data.Dataset.from_tensor_slices((images, labels))
dataset = dataset.shuffle(len(labels), seed=2).batch(BATCH * world.size)
dataset = strategy.experimental_distribute_dataset(dataset)


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


with strategy.scope():
    model = build_model()
    optimizer = keras.optimizers.SGD(RATE, momentum=0.9)
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def train_replica(x, y):
    with tf.GradientTape() as tape:
        loss = loss_function(y, model(x))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


@tf.function
def train(x, y):
    losses = strategy.run(train_replica, args=(x, y))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


losses = []
for _ in range(EPOCHS):
    for x, y in dataset:
        losses.append(float(train(x, y)))

weights = b"".join(weight.numpy().tobytes() for weight in model.weights)
print(f"{len(losses)} steps, loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {zlib.crc32(weights):08x}")
