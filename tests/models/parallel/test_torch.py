"""Ranks that share samples by rows have, on average, the gradients, outputs and statistics of one device.

In float64, where they are so to 14 digits: in float32 an activation within rounding of 0 may be on the other side of a
ReLU, which alone changes a gradient by as much as 4e-3.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from dlscale.base.errors import UsageError
from dlscale.models import load_workload
from dlscale.models.frameworks._torch_layers import has_weights
from dlscale.models.parallel import Part, deal_rows
from dlscale.models.parallel._torch import Layers
from dlscale.models.workload import Execution, Input, Shard
from tests.replica_threads import in_threads
from tests.taller import taller

TOLERANCE = 1e-12
CASES = {  # name: workload, preset, height, and the split
    "dense": ("hep_cnn", "tiny", None, 3),  # 3 + 3 + 2 blocks
    "global-mean": ("hep_cnn", "paper", 80, 4),  # 2 + 1 + 1 + 1
    "gan": ("cosmogan", "tiny", None, 2),
    "residual": ("resnet50", "tiny", 96, 2),  # 2 + 1
}


def factory(case, **execution):
    name, preset, height, _ = CASES[case]
    return taller(name, preset, height).factory(
        framework="torch",
        preset=preset,
        local_batch=2,
        source=Input(),
        execution=Execution(**execution),
    )


def doubled(replica):
    """A replica that computes in float64."""
    for network in replica.program.networks:
        network.double()
    batch = replica.next_batch
    replica.next_batch = lambda: tuple(
        tensor.double() if tensor.dtype == torch.float32 else tensor for tensor in batch()
    )
    return replica


def trained(make, *, double=True, **shard):
    """The gradients of two steps, what batch norm remembers of them, and outputs."""
    replica = make(shard=Shard(**shard), seed=5)
    if double:
        replica = doubled(replica)
    gradients = [replica.gradients() for _ in range(2)]
    statistics = [value for name, value in replica.state().items() if "running" in name]
    return gradients, statistics, replica.outputs()


def error(found, expected):
    """Of a list of arrays, relative to the whole of what is expected."""
    found, expected = (np.concatenate([np.ravel(array) for array in arrays]) for arrays in (found, expected))
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def mean(lists):
    return [np.mean(arrays, axis=0) for arrays in zip(*lists, strict=True)]


@pytest.mark.parametrize("case", CASES)
def test_the_mean_over_ranks_is_the_gradient_of_one_device(case):
    make = factory(case)
    gradients, statistics, outputs = trained(make)
    ranks = in_threads(CASES[case][-1], lambda neighbours: trained(make, neighbours=neighbours))
    for step, expected in enumerate(gradients):
        assert error(mean([rank[0][step] for rank in ranks]), expected) < TOLERANCE
    for _, own_statistics, own_outputs in ranks:
        if statistics:
            assert error(own_statistics, statistics) < TOLERANCE
        assert error(own_outputs, outputs) < 1e-6  # which are float32


def test_in_bfloat16_they_are_equal_to_its_precision():
    make = factory("gan", precision="bf16")
    gradients, _, _ = trained(make, double=False)
    ranks = in_threads(2, lambda neighbours: trained(make, double=False, neighbours=neighbours))
    assert error(mean([rank[0][0] for rank in ranks]), gradients[0]) < 0.05


@pytest.mark.parametrize("case", CASES)
def test_evaluation_is_of_whole_samples_and_asks_nobody(case):
    make = factory(case)
    whole = make(shard=Shard(), seed=5)
    batch = whole._batches.fixed + whole._batches.step_inputs()
    samples = batch[1] if case == "gan" else batch[0]

    def predicted(neighbours):
        replica = make(shard=Shard(neighbours=neighbours), seed=5)
        neighbours.exchange = neighbours.sum = neighbours.gather = None
        return replica.predict(samples)

    for found in in_threads(2, predicted):
        np.testing.assert_array_equal(found, whole.predict(samples))


LAYERS = {
    "conv 3": lambda layers: layers.conv(2, 3, 3, padding=1),
    "conv 5/2": lambda layers: layers.conv(2, 3, 5, stride=2, padding=2),
    "conv 7/2": lambda layers: layers.conv(2, 3, 7, stride=2, padding=3),
    "conv 1/2": lambda layers: layers.conv(2, 3, 1, stride=2),
    "conv 4/2": lambda layers: layers.conv(2, 3, 4, stride=2, padding=1),
    "conv 1x3": lambda layers: layers.conv(2, 3, (1, 3), padding=(0, 1)),
    "transposed 5/2": lambda layers: layers.conv_transposed(2, 3, 5, stride=2, padding=2, output_padding=1),
    "transposed 4/2": lambda layers: layers.conv_transposed(2, 3, 4, stride=2, padding=1, output_padding=0),
    "transposed 3/2": lambda layers: layers.conv_transposed(2, 3, 3, stride=2, padding=1, output_padding=1),
    "transposed 2/2": lambda layers: layers.conv_transposed(2, 3, 2, stride=2, padding=0, output_padding=0),
    "pool 2/2": lambda layers: layers.max_pool(2),
    "pool 3/2": lambda layers: layers.max_pool(3, stride=2, padding=1),
    "pool 3/1": lambda layers: layers.max_pool(3, stride=1, padding=1),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_makes_the_rows_of_the_whole_map(name):
    maps = torch.randn(2, 2, 28, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 3

    def passed(neighbours):
        """Gathered outputs, own input's gradient and the layer's, of a loss that gives every output its own weight."""
        part = Part(rows=deal_rows(28, block_rows=4, index=neighbours.index, split=3), neighbours=neighbours)
        return differentiated(Layers(part), maps[:, :, part.rows.own(28)].clone())

    def differentiated(layers, values):
        values.requires_grad_()
        layer = LAYERS[name](layers).double()
        generator = torch.Generator().manual_seed(2)  # of its own, for ranks are threads
        for parameter in layer.parameters():
            parameter.data.normal_(generator=generator)
        outputs = layers.gathered(layer(values))
        (outputs * torch.arange(outputs.numel()).view(outputs.shape)).sum().backward()
        return [outputs.detach(), values.grad, *(parameter.grad for parameter in layer.parameters())]

    outputs, gradient, *of_weights = differentiated(Layers(), maps.clone())
    ranks = in_threads(3, passed)
    for rank in ranks:
        torch.testing.assert_close(rank[0], outputs, rtol=1e-12, atol=1e-12)
    # Each rank has the gradient of the sum of all three losses.
    torch.testing.assert_close(torch.cat([rank[1] for rank in ranks], dim=2), 3 * gradient)
    for expected, *found in zip(of_weights, *(rank[2:] for rank in ranks), strict=True):
        torch.testing.assert_close(sum(found) / 3, expected)


@pytest.mark.parametrize("name", ["hep_cnn", "cosmogan", "resnet50"])
def test_whole_samples_go_through_layers_of_torch_alone(name):
    replica = load_workload(name).factory(framework="torch", preset="tiny", local_batch=2, source=Input())(
        shard=Shard(), seed=5
    )
    modules = [module for network in replica.program.networks for module in network.modules()]
    assert {type(module) for module in modules if has_weights(module) and not list(module.children())} <= {
        nn.Conv2d,
        nn.ConvTranspose2d,
        nn.BatchNorm2d,
        nn.Linear,
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda layers: layers.conv(1, 1, 3),
        lambda layers: layers.max_pool(3, stride=2),
        lambda layers: layers.conv_transposed(1, 1, 3, stride=2, padding=1, output_padding=0),
    ],
)
def test_a_layer_that_makes_other_rows_is_refused(make):
    def made(neighbours):
        make(Layers(Part(rows=deal_rows(4, block_rows=2, index=0, split=2), neighbours=neighbours)))

    with pytest.raises(UsageError, match=r"split 2 was asked for, but a .*kernel 3"):
        in_threads(2, made)


def test_a_halo_of_more_rows_than_a_neighbour_has_is_refused():
    def passed(neighbours):
        part = Part(rows=deal_rows(4, block_rows=1, index=neighbours.index, split=3), neighbours=neighbours)
        Layers(part).conv(1, 1, 5, padding=2)(torch.zeros(1, 1, len(range(4)[part.rows.own(4)]), 8))

    with pytest.raises(UsageError, match="leaves a rank 1 rows"):
        in_threads(3, passed)
