"""The layer that the torch image classifiers share."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import nn

from dlscale.models.parallel._torch import WHOLE, Layers


class ConvolutionNorm(nn.Module):
    """A convolution without bias, batch norm and, unless `relu` is False, ReLU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        size: int | tuple[int, int],
        stride: int = 1,
        pad: int | tuple[int, int] = 0,
        epsilon: float = 1e-5,
        relu: bool = True,
        layers: Layers = WHOLE,
    ) -> None:
        super().__init__()
        self.convolution = layers.conv(inputs, outputs, size, stride=stride, padding=pad, bias=False)
        self.norm = layers.batch_norm(outputs, eps=epsilon)
        self.relu = relu

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(N, outputs, H', W') of (N, inputs, H, W)."""
        normalised: torch.Tensor = self.norm(self.convolution(values))
        # In place: batch norm is differentiated by its input, so nobody needs what ReLU overwrites.
        return F.relu_(normalised) if self.relu else normalised
