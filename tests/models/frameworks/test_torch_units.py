"""Units of a torch network: modules whose weights ranks gather one after the other, and what stands in the way."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from dlscale.models.frameworks._torch_units import obstacle_to_units, units_of

WIDTH = 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.dense = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, values):
        return values + self.dense(self.norm(values))


class Network(nn.Module):
    """An embedding, blocks in a list, a norm that is too small for a unit, and a head."""

    def __init__(self, *, head="own"):
        super().__init__()
        self.embedding = nn.Embedding(100, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 100, bias=False)
        self.kind = head
        if head == "tied":
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        values = self.embedding(tokens)
        for block in self.blocks:
            values = block(values)
        assert self.head.weight.shape == (100, WIDTH)  # a shape tells nothing that a part does not
        return F.linear(self.norm(values), self.head.weight) if self.kind == "borrowed" else self.head(values)


def obstacle(network, *, skips=False):
    given = torch.zeros(2, 3, dtype=torch.long)
    return obstacle_to_units(network, lambda: network(given), skips=skips)


def test_units_are_blocks_and_layers_with_a_good_share_of_the_weights():
    network = Network()
    assert units_of(network) == [network.embedding, *network.blocks, network.head]
    assert obstacle(network) == ""


def test_layers_that_share_a_weight_are_none():
    network = Network(head="tied")
    assert units_of(network) == list(network.blocks)
    assert obstacle(network) == ""


def test_a_weight_that_is_used_outside_of_its_layer_is_seen():
    assert "head.weight is used while" in obstacle(Network(head="borrowed"))


def number():
    network = Network()
    network.scale = nn.Parameter(torch.tensor(1.0))
    return network


@pytest.mark.parametrize(
    ("network", "skips", "reason"),
    [
        (nn.Embedding(4, 4), False, "no blocks or layers"),
        (Network(), True, "leaves weights out"),
        (number(), False, "scale is a single number"),
    ],
)
def test_what_else_stands_in_the_way(network, skips, reason):
    assert reason in obstacle(network, skips=skips)
