"""ResNet-50 against its published facts, and its first weights."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import torch

from dlscale.models.frameworks import FRAMEWORKS
from dlscale.models.resnet50 import NETWORKS, WORKLOAD
from dlscale.models.resnet50._torch import ResNet50
from dlscale.models.workload import Execution, Input, Shard


def replica(framework="torch", *, gate=False, **execution):
    factory = WORKLOAD.factory(
        framework=framework, preset="tiny", local_batch=4, source=Input(), execution=Execution(**execution)
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
