"""An LSTM in Keras that tells collisions with gluinos from QCD jets by a sequence of particles, for dlscale.

    dlscale run time-to-solution --workloads examples/lstm_events_keras.py --target auc=0.97

The same as lstm_events.py, which is in torch: particles one after the other into an LSTM, a dense layer on its last
state. The particles are what a calorimeter sees of them: the towers with the most transverse energy in the PYTHIA
events that ship with HEP-CNN; the generated particles themselves are not stored. examples/data/hep_events.py makes more
events; give its file as EVENTS.
"""

from pathlib import Path

import h5py
import keras
import numpy as np

EVENTS = Path(__file__).parents[1] / "models" / "hep_cnn" / "sample_64.h5"
NUM_PARTICLES = 30
local_batch = 16


def model():
    """Logits (N, 2) of sequences (N, particles, 3): the last state of each, classified."""
    particles = keras.Input((NUM_PARTICLES, 3))
    return keras.Model(particles, keras.layers.Dense(2)(keras.layers.LSTM(32)(particles)))


loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def optimizer():
    """The rate of MPI-Learn's master."""
    return keras.optimizers.Adam(1e-3)


def data():
    """Sequences (N, particles, 3) of log pT, eta and phi, the softest first, and labels (N,), 1 for signal."""
    with h5py.File(EVENTS) as file:
        energies, labels = file["data"][:, 0], file["label"][:]
    rows, columns = energies.shape[1:]
    towers = energies.reshape(len(energies), -1)
    hardest = np.argsort(towers, axis=1, kind="stable")[:, -NUM_PARTICLES:]
    pt = np.log1p(1000 * np.take_along_axis(towers, hardest, axis=1))
    eta, phi = hardest // columns / rows * 2 - 1, hardest % columns / columns * 2 - 1
    return np.stack([pt, eta, phi], axis=2).astype(np.float32), labels


def auc(outputs, labels):
    """The area under the ROC curve, by the ranks of the signal's scores."""
    ranks = np.argsort(np.argsort(outputs[:, 1] - outputs[:, 0])) + 1
    num_signal = np.sum(labels == 1)
    over = np.sum(ranks[labels == 1]) - num_signal * (num_signal + 1) / 2
    return over / (num_signal * (len(labels) - num_signal))


metrics = {"auc": auc}
