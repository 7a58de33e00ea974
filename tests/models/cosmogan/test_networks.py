"""Both frameworks' networks are one: the same weights, numbers and costs."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf
import torch

from dlscale.models.cosmogan import WORKLOAD
from dlscale.models.frameworks import FRAMEWORKS
from dlscale.models.workload import Execution, Input, Shard


def replicas(preset="tiny", *, local_batch=4, seed=3, gate=False, **execution):
    """One of torch and one of TensorFlow, that see the same batches."""
    return [
        WORKLOAD.factory(
            framework=framework,
            preset=preset,
            local_batch=local_batch,
            source=Input(),
            execution=Execution(**execution),
        )(shard=Shard(), seed=seed, gate=gate)
        for framework in FRAMEWORKS
    ]


def test_first_weights_are_those_of_the_authors():
    made, _ = replicas("small")
    for name, values in zip(made.names(), made.weights(), strict=True):
        if name.endswith("bias"):
            assert not values.any(), name
        elif ".norms." in name:
            assert np.all(values == 1), name
        else:
            cut_off = name.startswith("discriminator.convolutions.")
            # A normal cut off at two standard deviations keeps 0.8796 of its own.
            std = 0.02 * (0.8796 if cut_off else 1)
            assert values.mean() == pytest.approx(0, abs=5 * std / np.sqrt(values.size)), name
            assert values.std() == pytest.approx(std, rel=5 / np.sqrt(2 * values.size)), name
            assert (np.abs(values).max() <= 0.04) == cut_off, name


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_losses_are_equal_with_either_labels(flip):
    one, other = replicas()
    maps, z, _ = one.next_batch()
    losses = [objective.loss(maps, z, torch.tensor([flip])).item() for objective in one.objectives]
    maps, z, _ = other.next_batch()
    np.testing.assert_allclose(other.differentiate(maps, z, tf.constant([flip]))[0], losses, rtol=1e-5)
