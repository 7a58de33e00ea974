"""ResNet-50 against its published facts, and the rule by which its weights change."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf
import torch

from dlscale.models.frameworks import FRAMEWORKS
from dlscale.models.frameworks._tensorflow_optimizers import MomentumSgd
from dlscale.models.frameworks._torch_optimizers import momentum_sgd
from dlscale.models.resnet50 import NETWORKS, WORKLOAD
from dlscale.models.resnet50._torch import ResNet50
from dlscale.models.workload import Execution, Input, Shard


def replica(framework="torch", *, gate=False, **execution):
    factory = WORKLOAD.factory(
        framework=framework,
        preset="tiny",
        local_batch=4,
        source=Input(),
        execution=Execution(**execution),
    )
    return factory(shard=Shard(), seed=1, gate=gate)


def published():
    with torch.device("meta"):
        return ResNet50(NETWORKS["paper"], num_channels=3, num_classes=1000)


def test_the_published_numbers_themselves():
    # torchvision's documentation of resnet50: 25,557,032 parameters, 4.09 billion multiply-adds
    assert WORKLOAD.preset("paper").num_parameters == 25_557_032
    assert WORKLOAD.preset("paper").forward_flops_per_sample / 2e9 == pytest.approx(4.09, abs=5e-3)
    convolutions = [module for module in published().modules() if isinstance(module, torch.nn.Conv2d)]
    assert len(convolutions) == 49 + 4  # and a dense layer: 50 layers; 4 shortcuts do not count
    assert all(module.bias is None for module in convolutions)


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_blocks_begin_as_the_identity_but_not_in_the_gate(framework, gate):
    made = replica(framework, gate=gate)
    weights = dict(zip(made.names(), made.weights(), strict=True))
    ends = [weight for name, weight in weights.items() if name.endswith("expand.norm.weight")]
    assert len(ends) == 5
    assert all(np.all(weight == (1 if gate else 0)) for weight in ends)
    assert np.all(weights["stem.norm.weight"] == 1)
    assert weights["classifier.weight"].std() == pytest.approx(0.01, rel=0.2)
    # He-normal by fan out: variance 2 / (3 * 3 * 64)
    kernel = weights["stages.3.0.spatial.convolution.weight"]
    assert kernel.shape == (3, 3, 64, 64)
    assert kernel.var() == pytest.approx(2 / (9 * 64), rel=0.05)


def test_no_gradient_of_the_gate_vanishes():
    gradients = replica(gate=True).gradients()
    assert all(np.any(gradient != 0) for gradient in gradients)


def test_the_learning_rate_is_that_of_the_global_batch():
    assert WORKLOAD.preset("paper").learning_rate == 0.1
    assert WORKLOAD.preset("small").learning_rate == pytest.approx(0.1 * 16 / 256)


class Named(torch.nn.Module):
    """Two parameters, of which one belongs to batch norm."""

    def __init__(self, values):
        super().__init__()
        self.layer = torch.nn.Module()
        self.layer.norm = torch.nn.Module()
        self.layer.norm.weight = torch.nn.Parameter(torch.tensor(values))
        self.layer.weight = torch.nn.Parameter(torch.tensor(values))


def test_three_steps_of_both_optimizers_are_equal():
    options = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.05}
    rng = np.random.default_rng(1)
    values = rng.standard_normal(1000).astype(np.float32)
    network = Named(values)
    names, parameters = zip(*network.named_parameters(), strict=True)
    assert sorted(names) == ["layer.norm.weight", "layer.weight"]
    variables = [tf.Variable(values, name=name) for name in names]
    ours, theirs = momentum_sgd(network, **options), MomentumSgd(**options)
    by_hand = {name: (values.astype(float), np.zeros(1000)) for name in names}
    for _ in range(3):
        gradient = rng.standard_normal(1000).astype(np.float32)
        for parameter in parameters:
            parameter.grad = torch.from_numpy(gradient.copy())
        ours.step()
        theirs.apply_gradients([(tf.constant(gradient), variable) for variable in variables])
        for name, (weight, velocity) in by_hand.items():
            full = gradient + (0 if "norm" in name else 0.05) * weight
            velocity = 0.9 * velocity + full
            by_hand[name] = (weight - 0.1 * (full + 0.9 * velocity), velocity)
    for name, parameter, variable in zip(names, parameters, variables, strict=True):
        np.testing.assert_allclose(parameter.detach(), by_hand[name][0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(variable, by_hand[name][0], rtol=1e-5, atol=1e-6)
    assert not np.allclose(by_hand[names[0]][0], by_hand[names[1]][0], atol=1e-3)
