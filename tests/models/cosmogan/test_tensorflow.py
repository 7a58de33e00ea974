"""The networks in TensorFlow: one definition for a function, a strategy's scope and a graph of version 1."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf

from dlscale.models.cosmogan import LATENT_SIZE, NETWORKS, WORKLOAD
from dlscale.models.cosmogan._tensorflow import Discriminator, Generator, program
from dlscale.models.weights import draw_initial
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


def names_of(made):
    return [name for objective in made.objectives for name in objective.names]


def program_and_networks():
    """A program, and networks of its weights that can be called one by one."""
    made, network = program(TINY, gate=False), NETWORKS["tiny"]
    networks = Discriminator(network, size=32), Generator(network, size=32)
    trainable = [variable for network in networks for variable in network.ordered if variable.trainable]
    shapes = [(name, tuple(v.shape)) for name, v in zip(names_of(made), trainable, strict=True)]
    values = draw_initial(made.initial, shapes, seed=1)
    for parameter, variable, value in zip(parameters_of(made), trainable, values, strict=True):
        parameter.assign(value)
        variable.assign(value)
    return made, *networks


def remember(updates):
    for variable, value in updates:
        variable.assign(value)


def assert_all_close(ones, others, *, rtol=1e-4, atol=1e-5):
    for one, other in zip(ones, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def test_a_function_and_plain_calls_agree(trained):
    made, batch, expected = trained
    losses, gradients, updates = made.differentiate(*batch)
    assert_all_close([np.stack(losses), *flat(gradients), *(value.numpy() for _, value in updates)], expected)


def test_every_gradient_is_that_of_its_own_loss_alone(trained):
    made, batch, (_, *found) = trained
    network = program(TINY, gate=True)
    for parameter, value in zip(parameters_of(network), made.weights(), strict=True):
        parameter.assign(value)
    for index, objective in enumerate(network.objectives):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for parameter in objective.parameters:
                tape.watch(parameter)
            loss = network.forward(*batch).losses[index]
        own = tape.gradient(loss, objective.parameters)
        assert all(np.abs(gradient).max() > 0 for gradient in own)
        assert_all_close(own, found[: len(own)])
        del found[: len(own)]


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_a_flip_exchanges_the_discriminators_labels_only(flip):
    made, discriminator, generator = program_and_networks()
    maps, z, _ = replica().next_batch()
    real, generated = discriminator(maps, []), discriminator(generator(z, []), [])

    def mean_cross_entropy(logits, label):
        labels = tf.fill(logits.shape, label)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))

    expected = [
        mean_cross_entropy(real, 1 - flip) + mean_cross_entropy(generated, flip),
        mean_cross_entropy(generated, 1.0),
    ]
    np.testing.assert_allclose(made.forward(maps, z, tf.constant([flip])).losses, expected, rtol=1e-5)


def test_the_discriminator_remembers_real_maps_and_then_generated_ones():
    made, discriminator, generator = program_and_networks()
    maps, z, flip = replica().next_batch()
    for _ in range(2):  # the second from statistics that are no longer the first ones
        updates = made.forward(maps, z, flip).updates
        remember(updates)
        discriminator(maps, of_real := [])
        remember(of_real)
        generated = generator(z, of_generator := [])
        remember(of_generator)
        discriminator(generated, of_generated := [])
        remember(of_generated)
        remembered = [v.numpy() for net in (discriminator, generator) for v in net.ordered if not v.trainable]
        assert len(updates) == 2 * (3 + 4)
        assert_all_close([variable.numpy() for variable, _ in updates], remembered, atol=1e-7)


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


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1], ids=["discriminator", "generator"])
def test_each_loss_falls_where_only_its_network_is_trained(index):
    falling = replica(local_batch=8)
    batch = falling.next_batch()
    objective = falling.objectives[index]

    @tf.function
    def step():
        losses, gradients, _ = falling.differentiate(*batch)
        objective.optimizer.apply_gradients(zip(gradients[index], objective.parameters, strict=True))
        return losses[index]

    losses = [float(step()) for _ in range(60)]
    assert losses[-1] < 0.7 * losses[0]


def test_maps_are_predicted_with_running_statistics():
    made = replica()
    z = np.random.default_rng(1).standard_normal((3, LATENT_SIZE), dtype=np.float32)
    fresh = made.predict(z)
    assert fresh.shape == (3, 32, 32, 1)
    assert np.abs(fresh).max() < 1
    np.testing.assert_allclose(made.predict(z[:1]), fresh[:1], atol=1e-6)  # nothing is shared by a batch
    for variable, value in made.differentiate(*made.next_batch())[2]:
        variable.assign(value)
    assert not np.allclose(made.predict(z), fresh)
