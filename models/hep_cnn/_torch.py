"""HEP-CNN in torch. Axis letters: N samples, C channels, H height, W width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import nn

from dlscale.models.frameworks._torch import TorchProgram, objective
from dlscale.models.frameworks._torch_layers import DenseOfMaps, GlobalMean
from dlscale.models.hep_cnn import KEEP_PROBABILITY, NETWORKS, Network, initial
from dlscale.models.workload import Preset


class HepCnn(nn.Module):
    """The network up to its logits, (N, 2)."""

    def __init__(self, network: Network, *, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.num_hidden = network.num_hidden
        widths = [channels, *[network.num_filters] * network.num_convolutions]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 3, padding=1) for before, after in pairwise(widths)
        )
        if network.num_hidden:
            num_pixels = (height >> network.num_convolutions) * (width >> network.num_convolutions)
            self.hidden = DenseOfMaps(network.num_filters * num_pixels, network.num_hidden)
        self.classifier = nn.Linear(network.num_hidden or network.num_filters, 2)
        self.pool, self.global_mean = nn.MaxPool2d(2), GlobalMean()

    def forward(self, images: torch.Tensor, masks: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits (N, 2) of images (N, C, H, W); without masks no value is dropped."""
        kept = iter(masks)
        values = images
        for index, convolution in enumerate(self.convolutions):
            values = F.relu(convolution(values))
            if self.num_hidden is None and index == len(self.convolutions) - 1:
                values = self.global_mean(values)
            else:
                values = _drop(self.pool(values), kept)
        if self.num_hidden:
            values = values.permute(0, 2, 3, 1).flatten(1)  # (H, W, C): memory order, and TensorFlow's
            values = _drop(F.relu(self.hidden(values)), kept)
        logits: torch.Tensor = self.classifier(values)
        return logits


class HepCnnLoss(nn.Module):
    """Mean softmax cross-entropy; every event counts alike, as in the published benchmark runs."""

    def __init__(self, network: HepCnn) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor, labels: torch.Tensor, *masks: torch.Tensor) -> torch.Tensor:
        """Scalar loss of images (N, C, H, W), labels (N,) and no or all dropout masks (N, ...)."""
        return F.cross_entropy(self.network(images, masks).float(), labels)


def program(preset: Preset, *, gate: bool) -> TorchProgram:
    """The network of a preset and its one objective.

    Channels come last in memory: forward and backward then take 0.77 of the time at 224x224 and 0.87 at
    64x64 (medians of 30 interleaved pairs, 1 core with AVX-512).
    """
    network = HepCnn(NETWORKS[preset.name], input_shape=preset.input_shape)
    return TorchProgram(
        networks=[network],
        objectives=[
            objective(
                HepCnnLoss(network),
                network,
                lambda parameters: torch.optim.Adam(parameters, lr=preset.learning_rate, fused=True),
                gate=gate,
            )
        ],
        initial=initial,
        outputs=lambda images, _labels, *masks: [network(images, masks)],
        predict=lambda images: network(images, []),
        units=[*network.convolutions[1:], *([network.hidden] if network.num_hidden else [])],
    )


def _drop(values: torch.Tensor, masks: Iterator[torch.Tensor]) -> torch.Tensor:
    mask = next(masks, None)
    return values if mask is None else values * mask * (1 / KEEP_PROBABILITY)
