"""Inception v3 against its published facts, its auxiliary head and its dropout."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf
import torch

from dlscale.base.errors import UsageError
from dlscale.models.inception_v3 import NUM_FEATURES, WORKLOAD
from dlscale.models.inception_v3._tensorflow import _module as tensorflow_module
from dlscale.models.inception_v3._torch import _module
from dlscale.models.inception_v3.data import step_inputs
from dlscale.models.inception_v3.layers import AveragePool, layers, num_outputs
from dlscale.models.workload import Input, Shard

TINY = WORKLOAD.preset("tiny")


def replica(*, gate=False, local_batch=2):
    factory = WORKLOAD.factory(framework="torch", preset="tiny", local_batch=local_batch, source=Input())
    return factory(shard=Shard(), seed=1, gate=gate)


def test_the_published_numbers_themselves():
    # torchvision's documentation of Inception_V3_Weights: 27,161,264 parameters, 5.713 billion multiply-adds in
    # evaluation; the auxiliary head, which it leaves out there, adds 0.1 percent.
    assert WORKLOAD.preset("paper").num_parameters == 27_161_264
    assert WORKLOAD.preset("paper").forward_flops_per_sample / 2e9 == pytest.approx(5.713, rel=2e-3)
    network = layers(1)
    assert num_outputs([*network.stem, *network.blocks, *network.last_blocks], 3) == NUM_FEATURES


def test_channels_can_be_divided_by_16_at_most():
    with pytest.raises(ValueError, match="cannot be divided by 32"):
        layers(32)


def test_padding_of_average_pools_is_not_counted():
    layer = AveragePool(size=3, stride=1, padded=True)
    ones = torch.ones(1, 2, 4, 4)
    torch.testing.assert_close(_module(layer, 2)(ones), ones)
    pool = tensorflow_module(None, "", layer, 2)
    np.testing.assert_allclose(pool(tf.ones((1, 4, 4, 2)), []), np.ones((1, 4, 4, 2)), rtol=1e-6)


def test_the_auxiliary_loss_weighs_two_fifths():
    made = replica(gate=True)
    batch = made.next_batch()
    logits, auxiliary = (torch.from_numpy(found) for found in made.outputs())
    expected = torch.nn.functional.cross_entropy(logits, batch[1])
    expected += 0.4 * torch.nn.functional.cross_entropy(auxiliary, batch[1])
    assert made.objectives[0].loss(*batch).item() == pytest.approx(expected.item(), rel=1e-4)


def test_dropout_is_an_input_and_keeps_the_mean():
    made = replica()
    (network,) = made.program.networks
    seen = []
    network.classifier.register_forward_hook(lambda _module, given, _found: seen.append(given[0].detach()))
    images, _, mask = made.next_batch()
    assert mask.shape == (2, NUM_FEATURES // 16)
    network(images, [])
    network(images, [mask])
    torch.testing.assert_close(seen[1], 2 * seen[0] * mask)
    assert 0 < mask.float().mean() < 1
    assert not torch.equal(mask, made.next_batch()[2])


def test_gates_draw_no_masks():
    assert len(replica(gate=True).next_batch()) == 2


def test_first_weights():
    made = replica()
    weights = dict(zip(made.names(), made.weights(), strict=True))
    assert weights["blocks.4.shallow.1.convolution.weight"].std() == pytest.approx(0.1, rel=0.1)
    assert weights["auxiliary.2.convolution.weight"].std() == pytest.approx(0.01, rel=0.1)
    assert weights["auxiliary_classifier.weight"].std() == pytest.approx(0.001, rel=0.1)
    assert np.all(weights["stem.0.norm.weight"] == 1)
    assert np.all(weights["classifier.bias"] == 0)


def test_one_image_is_too_few_for_the_auxiliary_head():
    with pytest.raises(UsageError, match=r"local batch of 1, .* take larger batches or fewer ranks"):
        step_inputs(TINY, 1, np.random.default_rng(1), gate=True)
