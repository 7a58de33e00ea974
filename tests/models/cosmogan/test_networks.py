"""Both frameworks' networks are one: the same weights, numbers and costs."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf
import torch

from dlscale.models.cosmogan import LATENT_SIZE, WORKLOAD
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


def make_steps(one, other):
    """A training step of each, on the same batch; each returns its losses."""

    def step_torch(batch):
        losses = []
        for objective in one.objectives:
            objective.optimizer.zero_grad()
            loss = objective.loss(*batch)
            loss.backward(inputs=list(objective.parameters), retain_graph=objective.keeps_graph)
            losses.append(loss.item())
        for objective in one.objectives:
            objective.optimizer.step()
        return losses

    @tf.function
    def step_tensorflow(batch):
        losses, gradients, updates = other.differentiate(*batch)
        for objective, found in zip(other.objectives, gradients, strict=True):
            objective.optimizer.apply_gradients(zip(found, objective.parameters, strict=True))
        for variable, value in updates:
            variable.assign(value)
        return losses

    return step_torch, step_tensorflow


def statistics(one, other):
    """Running means and variances of both, the discriminator's first."""
    networks = one.objectives[0].loss.networks
    ours = [
        buffer.numpy().copy()
        for network in (networks.discriminator, networks.generator)
        for name, buffer in network.named_buffers()
        if not name.endswith("num_batches_tracked")
    ]
    updates = other.differentiate(*other.next_batch())[2]
    return ours, [variable.numpy() for variable, _ in updates]


def norm(array):
    return float(np.linalg.norm(array))


def is_cancelled(name):
    """Biases in front of batch norm, which subtracts them again: their gradients are rounding errors around 0."""
    layers = {"discriminator": (1, 2, 3), "generator": (0, 1, 2)}
    return any(name == f"{net}.convolutions.{i}.bias" for net, indices in layers.items() for i in indices)


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_names_shapes_and_first_weights_are_equal(name):
    one, other = replicas(name)
    assert one.names() == other.names()
    assert sum(weight.size for weight in one.weights()) == WORKLOAD.preset(name).num_parameters
    for ours, theirs in zip(one.weights(), other.weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


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


@pytest.mark.parametrize("name", WORKLOAD.presets)
def test_flops_are_equal(name):
    counted = {replica.forward_flops() for replica in replicas(name, local_batch=1)}
    assert counted == {WORKLOAD.preset(name).forward_flops_per_sample}


def test_outputs_and_gradients_are_equal():
    one, other = replicas(gate=True)
    for ours, theirs in zip(one.outputs(), other.outputs(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    for name, ours, theirs in zip(one.names(), one.gradients(), other.gradients(), strict=True):
        if is_cancelled(name):
            assert max(norm(ours), norm(theirs)) < 1e-4, name
        else:
            assert norm(ours - theirs) < 1e-4 * norm(ours), name


def test_outputs_and_gradients_in_bf16_are_as_close_as_rounding_lets_them_be():
    """8 bits of mantissa, and activations near 0 that change sides: single gradients differ by up to a half."""
    one, other = replicas(gate=True, precision="bf16")
    exact, _ = replicas(gate=True)
    for ours, theirs in zip(one.outputs(), other.outputs(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.02)
    found = one.gradients(), other.gradients()
    for name, wanted, *both in zip(one.names(), exact.gradients(), *found, strict=True):
        for gradient in both:
            assert gradient.dtype == np.float32
            if not is_cancelled(name):
                assert np.vdot(gradient, wanted) > 0.85 * norm(gradient) * norm(wanted), name
                assert norm(gradient) == pytest.approx(norm(wanted), rel=0.4), name


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_losses_are_equal_with_either_labels(flip):
    one, other = replicas()
    maps, z, _ = one.next_batch()
    losses = [objective.loss(maps, z, torch.tensor([flip])).item() for objective in one.objectives]
    maps, z, _ = other.next_batch()
    np.testing.assert_allclose(other.differentiate(maps, z, tf.constant([flip]))[0], losses, rtol=1e-5)


def test_a_step_leaves_equal_weights_statistics_and_predictions():
    one, other = replicas()
    gradients = dict(zip(one.names(), replicas()[0].gradients(), strict=True))  # of the same first batch
    step_torch, step_tensorflow = make_steps(one, other)
    step_torch(one.next_batch())
    step_tensorflow(other.next_batch())
    for name, ours, theirs in zip(one.names(), one.weights(), other.weights(), strict=True):
        # Adam's first step is the gradient's sign, so that rounding errors around 0 become whole steps.
        certain = np.abs(gradients[name]) > 1e-4
        assert certain.any() != is_cancelled(name)
        np.testing.assert_allclose(ours[certain], theirs[certain], rtol=0, atol=1e-6, err_msg=name)
    for ours, theirs in zip(*statistics(one, other), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    other.load(one.weights())
    z = np.random.default_rng(1).standard_normal((2, LATENT_SIZE), dtype=np.float32)
    np.testing.assert_allclose(one.predict(z), other.predict(z), atol=1e-5)


@pytest.mark.slow
def test_training_goes_the_same_way():
    one, other = replicas()
    step_torch, step_tensorflow = make_steps(one, other)
    for _ in range(5):
        losses = step_torch(one.next_batch())
        np.testing.assert_allclose(
            [float(loss) for loss in step_tensorflow(other.next_batch())], losses, rtol=1e-3
        )
