"""Train a Keras 3 model on several ranks by `model.fit`: mpiexec -n 2 python examples/keras_fit.py

Four lines make it distributed: join, keras_optimizer, keras_callbacks, and each rank's own part of the samples.
"""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from mpi4py import MPI

from dlscale.collectives import ring

ranks = ring.join(MPI.COMM_WORLD)

# Which of two interleaved spirals does a point lie on? Every rank draws the same points and takes its own part.
generator = np.random.default_rng(1)
turn = generator.uniform(0.5, 3.0, 4096)
label = generator.integers(0, 2, 4096)
angle = 2 * np.pi * turn / 2 + np.pi * label
points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1) + generator.normal(0, 0.05, (4096, 2))
mine = slice(ranks.rank, 4096 // ranks.size * ranks.size, ranks.size)  # equally many on all ranks
points, label = points[mine].astype(np.float32), label[mine]

model = keras.Sequential(
    [
        keras.Input((2,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(1),
    ]
)
model.compile(
    optimizer=ring.keras_optimizer(keras.optimizers.Adam(1e-2), ranks),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)],
)
history = model.fit(
    points, label, batch_size=64 // ranks.size, epochs=6, verbose=0, callbacks=ring.keras_callbacks(ranks)
)

weights = [np.asarray(weight) for weight in model.weights]
ring.check_buffers_match(ranks, weights, names=[weight.path for weight in model.weights])
accuracy = history.history["binary_accuracy"][-1]
if accuracy < 0.9:
    raise SystemExit(f"the model did not learn: accuracy {accuracy:.3f}")
if ranks.rank == 0:
    print(f"{ranks.size} ranks hold equal weights; accuracy {accuracy:.2f} over all their points")
ranks.close()
