"""The networks in TensorFlow: one definition for a function, a strategy's scope and a graph of version 1."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf

from dlscale.models.cosmogan import WORKLOAD
from dlscale.models.cosmogan._tensorflow import program
from dlscale.models.workload import Execution, Input, Shard

TINY = WORKLOAD.preset("tiny")


def replica(*, local_batch=4, seed=1, gate=False, **execution):
    factory = WORKLOAD.factory(
        framework="tensorflow",
        preset="tiny",
        local_batch=local_batch,
        source=Input(),
        execution=Execution(**execution),
    )
    return factory(shard=Shard(), seed=seed, gate=gate)


@pytest.fixture(scope="module")
def trained():
    """A replica that nobody trains, a batch of it, and (losses, gradients, updates) of that, by a tf.function."""
    made = replica(gate=True)
    batch = made.next_batch()
    losses, gradients, updates = tf.function(made.differentiate)(*batch)
    return made, batch, [np.stack(losses), *flat(gradients), *(value.numpy() for _, value in updates)]


def flat(gradients):
    return [np.array(gradient) for group in gradients for gradient in group]


def parameters_of(made):
    return [parameter for objective in made.objectives for parameter in objective.parameters]


def assert_all_close(ones, others, *, rtol=1e-4, atol=1e-5):
    for one, other in zip(ones, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def test_a_function_and_plain_calls_agree(trained):
    made, batch, expected = trained
    losses, gradients, updates = made.differentiate(*batch)
    assert_all_close([np.stack(losses), *flat(gradients), *(value.numpy() for _, value in updates)], expected)


def test_in_a_strategys_scope(trained):
    made, batch, expected = trained
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        inside = replica(gate=True)

    @tf.function
    def step(*batch):
        losses, gradients, updates = inside.differentiate(*batch)
        values = [tf.identity(value) for _, value in updates]
        for variable, value in updates:
            variable.assign(value)
        return tf.stack(losses), gradients, values

    losses, gradients, values = strategy.run(step, args=batch)
    assert_all_close([losses, *flat(gradients), *values], expected)
    losses, _, after = strategy.run(step, args=batch)
    assert_all_close([losses], expected[:1])
    assert not np.allclose(np.concatenate(after), np.concatenate(values))
    assert_all_close(inside.weights(), made.weights(), rtol=0, atol=0)


def test_in_a_graph_of_version_1(trained):
    made, batch, expected = trained
    arrays, weights = [tensor.numpy() for tensor in batch], made.weights()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        network = program(TINY, gate=True)
        places = [tf.compat.v1.placeholder(tf.float32, array.shape) for array in arrays]
        forward = network.forward(*places)
        pairs = list(zip(forward.losses, network.objectives, strict=True))
        gradients = [tf.gradients(loss, list(objective.parameters)) for loss, objective in pairs]
        steps = [
            objective.optimizer.apply_gradients(zip(found, objective.parameters, strict=True))
            for found, (_, objective) in zip(gradients, pairs, strict=True)
        ]
        assigned = [tf.compat.v1.assign(variable, value) for variable, value in forward.updates]
        loads = [
            tf.compat.v1.placeholder(tf.float32, parameter.shape) for parameter in parameters_of(network)
        ]
        load = [
            tf.compat.v1.assign(parameter, place)
            for parameter, place in zip(parameters_of(network), loads, strict=True)
        ]
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(load, dict(zip(loads, weights, strict=True)))
        fed = dict(zip(places, arrays, strict=True))
        values = [value for _, value in forward.updates]
        losses, found, values = session.run([forward.losses, gradients, values], fed)
        assert_all_close([losses, *flat(found), *values], expected)
        session.run([steps, assigned], fed)
        stepped, remembered = session.run(
            [parameters_of(network), [variable for variable, _ in forward.updates]]
        )
        assert_all_close(remembered, values)
        moved = [old - gradient for old, gradient in zip(weights, flat(found), strict=True)]
        assert_all_close(stepped, moved)
