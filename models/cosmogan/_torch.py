"""CosmoGAN in torch. Axis letters: N samples, C channels, H height, W width.

Kernels of 5 with stride 2 are padded by 2 before and 1 after in both frameworks, which is what torch makes of
`padding=2` on maps of even size. TensorFlow's SAME, which the authors used, is 1 before and 2 after: the same
networks seen in a mirror, equal number by number if kernels and maps are turned round.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import nn

from dlscale.models.cosmogan import (
    EPSILON,
    KERNEL_SIZE,
    LATENT_SIZE,
    LEAKY_SLOPE,
    MOMENTUM,
    NETWORKS,
    NUM_CONVOLUTIONS,
    Network,
    initial,
)
from dlscale.models.frameworks._torch import TorchProgram, objective
from dlscale.models.frameworks._torch_layers import DenseOfMaps, OwnRows, WholeMaps
from dlscale.models.workload import Preset


class Generator(nn.Module):
    """From z to maps in (-1, 1)."""

    def __init__(self, network: Network, *, size: int) -> None:
        super().__init__()
        widths = network.widths[::-1]
        self.grid = size >> NUM_CONVOLUTIONS
        self.dense = nn.Linear(LATENT_SIZE, self.grid**2 * widths[0])
        self.convolutions = nn.ModuleList(
            nn.ConvTranspose2d(before, after, KERNEL_SIZE, stride=2, padding=2, output_padding=1)
            for before, after in pairwise(widths)
        )
        self.norms = nn.ModuleList(_norm(width) for width in widths[:-1])
        self.own_rows = OwnRows()

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """Maps (N, 1, H, W) of z (N, LATENT_SIZE)."""
        # (H, W, C): memory order, and TensorFlow's.
        values = self.dense(z).unflatten(1, (self.grid, self.grid, -1)).permute(0, 3, 1, 2)
        values = self.own_rows(values)
        weight = cast(torch.Tensor, self.convolutions[0].weight)
        if weight.is_contiguous():  # channels first: layers follow their input
            values = values.contiguous()
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            values = convolution(F.relu(norm(values), inplace=True))
        return torch.tanh(values)


class Discriminator(nn.Module):
    """From maps to one logit each; above 0 it takes a map for real."""

    def __init__(self, network: Network, *, size: int) -> None:
        super().__init__()
        widths = network.widths
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, KERNEL_SIZE, stride=2, padding=2) for before, after in pairwise(widths)
        )
        self.norms = nn.ModuleList(_norm(width) for width in widths[2:])
        self.dense = DenseOfMaps((size >> NUM_CONVOLUTIONS) ** 2 * widths[-1], 1)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Logits (N, 1) of maps (N, 1, H, W)."""
        first, *others = self.convolutions
        # Maps of one channel can pass for channels last by their strides; these leave it to the weights.
        maps = maps.flatten(1).view(maps.shape)
        values = F.leaky_relu(first(maps), LEAKY_SLOPE, inplace=True)
        for norm, convolution in zip(self.norms, others, strict=True):
            values = F.leaky_relu(norm(convolution(values)), LEAKY_SLOPE, inplace=True)
        logits: torch.Tensor = self.dense(values.permute(0, 2, 3, 1).flatten(1))
        return logits


class Networks(nn.Module):
    """Both networks, and the logits of generated maps on their way from the first loss to the second."""

    def __init__(self, network: Network, *, size: int) -> None:
        super().__init__()
        self.discriminator = Discriminator(network, size=size)
        self.generator = Generator(network, size=size)
        self.whole_maps = WholeMaps()
        self.generated: tuple[torch.Tensor, torch.Tensor] | None = None  # (z, logits)


class DiscriminatorLoss(nn.Module):
    """Takes real maps for real and generated ones for generated: the sum of both mean cross-entropies.

    Computes both networks' forward pass, once for both objectives. Compiled, the networks become a program each
    and this stays Python: in one program each loss's backward pass would go through all that only the other needs.
    """

    def __init__(self, networks: Networks) -> None:
        super().__init__()
        self.networks = networks

    @torch.compiler.disable(recursive=False)  # type: ignore[no-untyped-call, untyped-decorator]
    def forward(self, maps: torch.Tensor, z: torch.Tensor, flip: torch.Tensor) -> torch.Tensor:
        """Scalar loss of maps (N, 1, H, W) and z (N, LATENT_SIZE); where flip (1,) is 1, labels are exchanged."""
        real = self.networks.discriminator(maps)
        generated = self.networks.discriminator(self.networks.generator(z))
        self.networks.generated = z, generated
        # Cross-entropy of a logit is softplus(-logit) for label 1 and softplus(logit) for label 0.
        sign = 1 - 2 * flip
        return F.softplus(-sign * real.float()).mean() + F.softplus(sign * generated.float()).mean()


class GeneratorLoss(nn.Module):
    """Has generated maps taken for real: the non-saturating loss. Labels are never exchanged here."""

    def __init__(self, networks: Networks) -> None:
        super().__init__()
        self.networks = networks

    @torch.compiler.disable(recursive=False)  # type: ignore[no-untyped-call, untyped-decorator]
    def forward(self, maps: torch.Tensor, z: torch.Tensor, flip: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """Scalar loss of the batch that `DiscriminatorLoss` was called with last; RuntimeError for any other."""
        # Taken away, so that no graph outlives its step.
        generated, self.networks.generated = self.networks.generated, None
        if generated is None or generated[0] is not z:
            raise RuntimeError("the generator's loss has to follow the discriminator's, on the same batch")
        return F.softplus(-generated[1].float()).mean()


def program(preset: Preset, *, gate: bool) -> TorchProgram:
    """Both networks and their objectives, the discriminator's first.

    Channels come last in memory: a step then takes 0.95 of the time with 4 samples of `small`, and 0.90 with 8 of
    `paper` (paired medians, 1 core with AVX-512). With 2 it is up to 1.1, for then
    copies of weights outweigh those of maps. Compiled, a step takes 1.2, not least because a compiled network's
    backward pass always computes the gradients of weights, also where only those of the maps are asked for.
    """
    network = NETWORKS[preset.name]
    networks = Networks(network, size=preset.input_shape[1])

    def adam(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        betas = (network.beta1, 0.999)
        return torch.optim.Adam(parameters, lr=preset.learning_rate, betas=betas, fused=True)

    return TorchProgram(
        networks=[networks],
        objectives=[
            objective(
                DiscriminatorLoss(networks),
                networks.discriminator,
                adam,
                gate=gate,
                prefix="discriminator.",
                keeps_graph=True,
            ),
            objective(GeneratorLoss(networks), networks.generator, adam, gate=gate, prefix="generator."),
        ],
        initial=initial,
        outputs=lambda maps, z, _flip: [
            networks.whole_maps(networks.generator(z)),
            networks.discriminator(maps),
        ],
        predict=lambda z: networks.generator(z),
        units=[networks.discriminator, networks.generator],
    )


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=EPSILON, momentum=MOMENTUM)
