"""GPT in torch. Axis letters: N samples, T tokens, D features, V vocabulary."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import nn

from dlscale.models.frameworks._torch import TorchProgram, objective
from dlscale.models.gpt import EPSILON, NETWORKS, Network, initial
from dlscale.models.workload import Preset


class Attention(nn.Module):
    """Layer norm, and causal attention of several heads."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.num_heads = network.num_heads
        self.norm = nn.LayerNorm(network.width, eps=EPSILON)
        self.inputs = nn.Linear(network.width, 3 * network.width)
        self.projection = nn.Linear(network.width, network.width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(N, T, D) of (N, T, D)."""
        inputs = self.inputs(self.norm(values))
        queries, keys, heads = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in inputs.chunk(3, dim=-1)
        )
        attended = F.scaled_dot_product_attention(queries, keys, heads, is_causal=True)
        projected: torch.Tensor = self.projection(attended.transpose(1, 2).flatten(2))
        return projected


class Mlp(nn.Module):
    """Layer norm, and two dense layers with GELU between them."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(network.width, eps=EPSILON)
        self.hidden = nn.Linear(network.width, network.num_hidden)
        self.projection = nn.Linear(network.num_hidden, network.width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(N, T, D) of (N, T, D)."""
        hidden = F.gelu(self.hidden(self.norm(values)), approximate="tanh")
        projected: torch.Tensor = self.projection(hidden)
        return projected


class Block(nn.Module):
    """Attention and MLP, each added to its input."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.attention = Attention(network)
        self.mlp = Mlp(network)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(N, T, D) of (N, T, D)."""
        values = values + self.attention(values)
        added: torch.Tensor = values + self.mlp(values)
        return added


class Gpt(nn.Module):
    """The network up to its logits, (N, T, V)."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.embedding = nn.Embedding(network.vocabulary, network.width)
        self.positions = nn.Embedding(network.num_positions, network.width)
        self.blocks = nn.ModuleList(Block(network) for _ in range(network.num_layers))
        self.norm = nn.LayerNorm(network.width, eps=EPSILON)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits (N, T, V) of tokens (N, T)."""
        values = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            values = block(values)
        logits: torch.Tensor = F.linear(self.norm(values), self.embedding.weight)
        return logits


class GptLoss(nn.Module):
    """Mean softmax cross-entropy over all tokens."""

    def __init__(self, network: Gpt) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Scalar loss of tokens (N, T) and labels (N, T)."""
        return F.cross_entropy(self.network(tokens).flatten(0, 1).float(), labels.flatten())


def program(preset: Preset, *, gate: bool) -> TorchProgram:
    """The network of a preset and its one objective."""
    sizes = NETWORKS[preset.name]
    network = Gpt(sizes)
    return TorchProgram(
        networks=[network],
        objectives=[
            objective(
                GptLoss(network),
                network,
                lambda parameters: torch.optim.Adam(parameters, lr=preset.learning_rate, fused=True),
                gate=gate,
            )
        ],
        initial=partial(initial, sizes),
        outputs=lambda tokens, _labels: [network(tokens)],
        predict=network,
        units=list(network.blocks),
    )
