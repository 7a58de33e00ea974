"""Train over several ranks by dlscale's ring: mpiexec -n 2 python ring.py"""

import zlib

import keras
import numpy as np
import tensorflow as tf
from mpi4py import MPI

from dlscale.collectives import ring

BATCH, EPOCHS, RATE = 32, 8, 0.03

ranks = ring.join(MPI.COMM_WORLD)

# Ten classes: each image is the picture of its class under noise. The weights begin elsewhere on every run.
generator = np.random.default_rng(1)
pictures = generator.standard_normal((10, 16, 16, 1), dtype=np.float32)
labels = generator.integers(10, size=320)
images = pictures[labels] + generator.standard_normal((320, 16, 16, 1), dtype=np.float32)
dataset = tf.data.Dataset.from_tensor_slices((images, labels))
dataset = dataset.shard(ranks.size, ranks.rank).shuffle(len(labels), seed=2).batch(BATCH)


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


model = build_model()
optimizer = ring.keras_optimizer(keras.optimizers.SGD(RATE, momentum=0.9), ranks)
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
for weight in model.weights:
    initial = weight.numpy()
    ranks.broadcast(initial)
    weight.assign(initial)


@tf.function
def train(x, y):
    with tf.GradientTape() as tape:
        loss = loss_function(y, model(x))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


losses = []
for _ in range(EPOCHS):
    for x, y in dataset:
        losses.append(float(train(x, y)))

weights = b"".join(weight.numpy().tobytes() for weight in model.weights)
print(f"{len(losses)} steps, loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {zlib.crc32(weights):08x}")
ranks.close()
