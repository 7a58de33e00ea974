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
from dlscale.models.frameworks._torch_layers import WholeMaps
from dlscale.models.parallel import Part, deal_rows
from dlscale.models.parallel._torch import split_rows
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


def factory(case, precision="fp64"):
    name, preset, height, _ = CASES[case]
    return taller(name, preset, height).factory(
        framework="torch",
        preset=preset,
        local_batch=2,
        source=Input(),
        execution=Execution(precision=precision),
    )


def trained(make, **shard):
    """The gradients of two steps, what batch norm remembers of them, and outputs."""
    replica = make(shard=Shard(**shard), seed=5)
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
    make = factory("gan", "bf16")
    gradients, _, _ = trained(make)
    ranks = in_threads(2, lambda neighbours: trained(make, neighbours=neighbours))
    assert error(mean([rank[0][0] for rank in ranks]), gradients[0]) < 0.05


@pytest.mark.parametrize("case", CASES)
def test_evaluation_is_of_whole_samples_and_asks_nobody(case):
    make = factory(case, "fp32")
    whole = make(shard=Shard(), seed=5)
    batch = whole._batches.fixed + whole._batches.step_inputs()
    samples = batch[1] if case == "gan" else batch[0]

    def predicted(neighbours):
        replica = make(shard=Shard(neighbours=neighbours), seed=5)
        neighbours.exchange = neighbours.sum = None
        return replica.predict(samples)

    for found in in_threads(2, predicted):
        np.testing.assert_array_equal(found, whole.predict(samples))


LAYERS = {
    "conv 3": lambda: nn.Conv2d(2, 3, 3, padding=1),
    "conv 5/2": lambda: nn.Conv2d(2, 3, 5, stride=2, padding=2),
    "conv 7/2": lambda: nn.Conv2d(2, 3, 7, stride=2, padding=3),
    "conv 1/2": lambda: nn.Conv2d(2, 3, 1, stride=2),
    "conv 4/2": lambda: nn.Conv2d(2, 3, 4, stride=2, padding=1),
    "conv 1x3": lambda: nn.Conv2d(2, 3, (1, 3), padding=(0, 1)),
    "transposed 5/2": lambda: nn.ConvTranspose2d(2, 3, 5, stride=2, padding=2, output_padding=1),
    "transposed 4/2": lambda: nn.ConvTranspose2d(2, 3, 4, stride=2, padding=1),
    "transposed 3/2": lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1),
    "transposed 2/2": lambda: nn.ConvTranspose2d(2, 3, 2, stride=2),
    "pool 2/2": lambda: nn.MaxPool2d(2),
    "pool 3/2": lambda: nn.MaxPool2d(3, stride=2, padding=1),
    "pool 3/1": lambda: nn.MaxPool2d(3, stride=1, padding=1),
}


def part_of(neighbours, height, block_rows):
    rows = deal_rows(height, block_rows=block_rows, index=neighbours.index, split=neighbours.split)
    return Part(rows=rows, neighbours=neighbours)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_makes_the_rows_of_the_whole_map(name):
    maps = torch.randn(2, 2, 28, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 3

    def differentiated(values, part=None):
        """Whole outputs, own input's gradient and the layer's, of a loss that gives every output its own weight."""
        values.requires_grad_()
        network = nn.Sequential(LAYERS[name](), WholeMaps()).double()
        if part:
            split_rows([network], part)
        generator = torch.Generator().manual_seed(2)  # of its own, for ranks are threads
        for parameter in network.parameters():
            parameter.data.normal_(generator=generator)
        outputs = network(values)
        (outputs * torch.arange(outputs.numel()).view(outputs.shape)).sum().backward()
        return [outputs.detach(), values.grad, *(parameter.grad for parameter in network.parameters())]

    def passed(neighbours):
        part = part_of(neighbours, 28, 4)
        return differentiated(maps[:, :, part.rows.own(28)].clone(), part)

    outputs, gradient, *of_weights = differentiated(maps.clone())
    ranks = in_threads(3, passed)
    for rank in ranks:
        torch.testing.assert_close(rank[0], outputs, rtol=1e-12, atol=1e-12)
    # Each rank has the gradient of the sum of all three losses.
    torch.testing.assert_close(torch.cat([rank[1] for rank in ranks], dim=2), 3 * gradient)
    for expected, *found in zip(of_weights, *(rank[2:] for rank in ranks), strict=True):
        torch.testing.assert_close(sum(found) / 3, expected)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (lambda: nn.Conv2d(1, 1, 3), "kernel 3"),
        (lambda: nn.MaxPool2d(3, stride=2), "kernel 3"),
        (lambda: nn.ConvTranspose2d(1, 1, 3, stride=2, padding=1), "kernel 3"),
        (lambda: nn.Conv2d(1, 1, 5, padding=2), "leaves a rank 1 rows"),  # of which a neighbour needs 2
    ],
)
def test_a_layer_that_cannot_be_split_is_refused(layer, words):
    def passed(neighbours):
        network, part = layer(), part_of(neighbours, 4, 1)
        split_rows([network], part)
        network(torch.zeros(1, 1, len(range(4)[part.rows.own(4)]), 8))

    with pytest.raises(UsageError, match=words):
        in_threads(3, passed)
