"""Layers of torch of which each rank of a replica has the rows. Axis letters: N samples, C channels, H height, W width.

`Layers` makes torch's own, and nothing else, where samples are whole. Names of weights are torch's in any case. In
evaluation mode all layers take whole samples and exchange nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import nn

from dlscale.base.errors import UsageError
from dlscale.models.parallel import Neighbours, Part
from dlscale.models.parallel._torch_exchanges import (
    gathered,
    halo,
    normalised,
    own_rows,
    summed,
    summed_products,
)
from dlscale.models.workload import Preset

Layer = TypeVar("Layer", bound=nn.Module)


class Layers:
    """Makes the layers of a network: torch's own, or those of a rank that has some rows of every map."""

    def __init__(self, part: Part | None = None) -> None:
        self.part = part

    def conv(
        self,
        inputs: int,
        outputs: int,
        size: int | tuple[int, int],
        *,
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
        bias: bool = True,
    ) -> nn.Conv2d:
        """A convolution that makes H / stride rows of H."""
        kind = nn.Conv2d if self.part is None else _Convolution
        return self._of(kind(inputs, outputs, size, stride=stride, padding=padding, bias=bias))

    def conv_transposed(
        self, inputs: int, outputs: int, size: int, *, stride: int, padding: int, output_padding: int
    ) -> nn.ConvTranspose2d:
        """A transposed convolution that makes H * stride rows of H."""
        kind = nn.ConvTranspose2d if self.part is None else _TransposedConvolution
        return self._of(
            kind(inputs, outputs, size, stride=stride, padding=padding, output_padding=output_padding)
        )

    def max_pool(self, size: int, *, stride: int | None = None, padding: int = 0) -> nn.MaxPool2d:
        """The largest value of windows; makes H / stride rows of H."""
        kind = nn.MaxPool2d if self.part is None else _MaxPool
        return self._of(kind(size, stride=stride, padding=padding))

    def batch_norm(self, channels: int, *, eps: float = 1e-5, momentum: float = 0.1) -> nn.BatchNorm2d:
        """Batch norm over the pixels of whole samples."""
        kind = nn.BatchNorm2d if self.part is None else _BatchNorm
        return self._of(kind(channels, eps=eps, momentum=momentum))

    def global_mean(self) -> nn.Module:
        """From maps (N, C, H, W) to the means (N, C) over whole samples."""
        return GlobalMean() if self.part is None else self._of(_GlobalMean())

    def dense(self, inputs: int, outputs: int) -> nn.Linear:
        """From (N, H * W * C) of maps whose channels come last to (N, outputs); each rank has some of the H rows."""
        kind = nn.Linear if self.part is None else _Dense
        return self._of(kind(inputs, outputs))

    def own_rows(self) -> nn.Module:
        """From whole maps (N, C, H, W), as a dense layer makes them, to those rows that the next layers take."""
        return nn.Identity() if self.part is None else self._of(_OwnRows())

    def gathered(self, values: torch.Tensor) -> torch.Tensor:
        """Whole maps (N, C, H, W) of a network in training mode."""
        return values if self.part is None else gathered(values, self.part)

    def _of(self, layer: Layer) -> Layer:
        if isinstance(layer, _OfRows):
            layer.part = cast(Part, self.part)
            layer.check()
        return layer


WHOLE = Layers()


def layers_of(preset: Preset, neighbours: Neighbours | None) -> Layers:
    """What makes the layers of a preset's network. Raises UsageError where its samples cannot be split so."""
    return Layers(Part(rows=preset.rows(neighbours), neighbours=neighbours)) if neighbours else WHOLE


class _OfRows:
    """A layer of a rank that has some rows of every map."""

    part: Part

    def check(self) -> None:
        """Returns if the layer can be split by rows. Raises UsageError."""


class _Windows(_OfRows):
    """One that reads windows of rows: output row j reads rows j * stride - padding to that + size - 1."""

    kernel_size: Any
    stride: Any
    padding: Any

    def check(self) -> None:
        (size, _), (stride, _), (padding, _) = map(_pair, (self.kernel_size, self.stride, self.padding))
        if not 0 < size - 2 * padding <= stride:
            raise UsageError(
                f"split {self.part.rows.split} was asked for, but a layer with kernel {size}, stride {stride} and "
                f"padding {padding} does not make 1 row of each {stride}; choose another padding, or leave split out"
            )
        self.above, self.below = padding, max(0, size - padding - stride)

    def with_halo(self, values: torch.Tensor, *, fill: float = 0.0) -> torch.Tensor:
        """Own rows (N, C, H, W) between those of others that windows reach."""
        if not self.above and not self.below:
            return values
        return halo(values, self.part, above=self.above, below=self.below, fill=fill, takes_gradient=True)


class _Convolution(_Windows, nn.Conv2d):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(values)
        return F.conv2d(
            self.with_halo(_in_autocast(values)),
            self.weight,
            self.bias,
            self.stride,
            (0, _pair(self.padding)[1]),
        )


class _MaxPool(_Windows, nn.MaxPool2d):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return cast(torch.Tensor, super().forward(values))
        values = self.with_halo(values, fill=-torch.inf)
        return F.max_pool2d(values, self.kernel_size, self.stride, (0, _pair(self.padding)[1]))


class _TransposedConvolution(_OfRows, nn.ConvTranspose2d):
    """Input row i adds to output rows i * stride - padding to that + size - 1."""

    def check(self) -> None:
        size, stride, padding = self.kernel_size[0], self.stride[0], _pair(self.padding)[0]
        if size - 2 * padding + self.output_padding[0] != stride:
            raise UsageError(
                f"split {self.part.rows.split} was asked for, but a transposed convolution with kernel {size}, stride "
                f"{stride}, padding {padding} and output padding {self.output_padding[0]} does not make {stride} rows "
                "of each 1; choose another padding, or leave split out"
            )
        self.above, self.below = (size - 1 - padding) // stride, -(-padding // stride)

    def forward(self, values: torch.Tensor, output_size: list[int] | None = None) -> torch.Tensor:
        if not self.training:
            return super().forward(values, output_size)
        size, stride, (padding, beside) = self.kernel_size[0], self.stride[0], _pair(self.padding)
        # Padding cuts off the rows that halos make and others have: as many below as above.
        cut = padding + stride * self.above
        more = stride * (1 + self.above - self.below) + 2 * padding - size  # of own rows, than are left then
        values = _in_autocast(values)
        values_and_halo = halo(values, self.part, above=self.above, below=self.below, takes_gradient=True)
        outputs = F.conv_transpose2d(
            values_and_halo,
            self.weight,
            self.bias,
            self.stride,
            (cut, beside),
            (max(more, 0), self.output_padding[1]),
        )
        return outputs if more >= 0 else outputs[:, :, :more]


class _BatchNorm(_OfRows, nn.BatchNorm2d):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(values)
        normal, *statistics = normalised(values, self.weight, self.bias, self.part, epsilon=self.eps)
        with torch.no_grad():
            self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
            for running, new in zip((self.running_mean, self.running_var), statistics, strict=True):
                cast(torch.Tensor, running).lerp_(new, cast(float, self.momentum))
        return normal


class GlobalMean(nn.Module):
    """From maps (N, C, H, W) to their means (N, C)."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values.mean(dim=(2, 3))


class _GlobalMean(_OfRows, GlobalMean):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        means = super().forward(values)
        if not self.training:
            return means
        own = values.shape[2]
        return summed(means * (own / self.part.rows.height(own)), self.part)


class _Dense(_OfRows, nn.Linear):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(values)
        outputs = summed_products(values, self.weight, self.part)  # H is the outermost axis of the inputs
        return outputs if self.bias is None else outputs + self.bias.to(outputs.dtype)


class _OwnRows(_OfRows, nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return own_rows(values, self.part) if self.training else values


def _in_autocast(values: torch.Tensor) -> torch.Tensor:
    """As a convolution computes with them: halos of float32 would be twice as wide."""
    device = values.device.type
    return values.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else values


def _pair(value: Any) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)
