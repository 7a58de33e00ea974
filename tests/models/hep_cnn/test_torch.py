"""The network against its published facts, and its dropout."""

import numpy as np
import pytest
import torch

from dlscale.models import load_workload
from dlscale.models.hep_cnn import NETWORKS, mask_shapes
from dlscale.models.hep_cnn._torch import HepCnn, _drop
from dlscale.models.samples import draw_masks

WORKLOAD = load_workload("hep_cnn")


def test_the_published_numbers_themselves():
    # hep_cnn_benchmark's networks: 594,178 (224x224x3) and 4,494,594 (64x64x3)
    assert WORKLOAD.preset("paper").num_parameters == 594_178
    assert WORKLOAD.preset("small").num_parameters == 4_494_594


@pytest.mark.parametrize("name", WORKLOAD.presets)
def test_masks_fit_the_layers(name):
    channels, height, width = WORKLOAD.preset(name).input_shape
    shapes = mask_shapes(NETWORKS[name], height=height, width=width)
    masks = draw_masks(np.random.default_rng(1), shapes, 2)
    assert [mask.shape for mask in masks] == [(2, *shape) for shape in shapes]
    kept = np.concatenate([mask.reshape(-1) for mask in masks])
    assert set(np.unique(kept)) == {0, 1}
    assert kept.mean() == pytest.approx(0.5, abs=4 / np.sqrt(kept.size))
    network = HepCnn(NETWORKS[name], input_shape=(channels, height, width))
    tensors = [torch.from_numpy(mask) for mask in masks]
    tensors = [mask.permute(0, 3, 1, 2) if mask.dim() == 4 else mask for mask in tensors]
    with torch.no_grad():
        images = torch.rand(2, channels, height, width)
        assert not torch.equal(network(images, tensors), network(images, []))


def test_dropout_keeps_the_mean():
    values = torch.ones(1, 8)
    kept = _drop(values, iter([torch.tensor([[0, 1, 0, 1, 1, 1, 0, 0]], dtype=torch.uint8)]))
    assert kept.mean() == 1.0
    assert sorted(kept.unique().tolist()) == [0.0, 2.0]
