"""TensorFlow's replica in a graph of version 1."""

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.models import load_workload
from dlscale.models.workload import Shard

pytestmark = pytest.mark.requires("tensorflow")


@pytest.fixture
def factory():
    workload = load_workload("hep_cnn")
    return workload.factory(
        framework="tensorflow", preset="tiny", local_batch=2, source=workload.input("tiny")
    )


def test_the_batch_that_gives_the_shapes_is_trained_on_first(factory):
    import tensorflow as tf

    with tf.Graph().as_default():
        one = factory(shard=Shard(), seed=3)
        one.placeholders()
    with tf.Graph().as_default():
        other = factory(shard=Shard(), seed=3)
    for _ in range(2):
        for found, expected in zip(one.next_batch(), other.next_batch(), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_its_learning_rate_is_constant(factory):
    import tensorflow as tf

    with tf.Graph().as_default():
        replica = factory(shard=Shard(), seed=3)
    with pytest.raises(UsageError, match="a graph of TensorFlow 1 has one rate for good"):
        replica.set_learning_rate(0.1)
