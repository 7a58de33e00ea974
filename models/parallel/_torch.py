"""Networks of torch of which each rank of a replica computes some rows.

A network is written for whole samples, of torch's layers and those of `frameworks/_torch_layers`. `split_rows` gives
each layer the forward pass of a rank that has some rows of every map. In evaluation mode all layers take whole samples
and exchange nothing.

All adjoints are those of the sum of all ranks' losses (`models/parallel`). What goes to a neighbour is (N, rows, W, C)
without gaps, whatever the memory format. Axis letters: N samples, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import nn

from dlscale.base.errors import UsageError
from dlscale.models.frameworks._torch_layers import DenseOfMaps, GlobalMean, OwnRows, WholeMaps
from dlscale.models.parallel import Part


def split_rows(networks: Iterable[nn.Module], part: Part) -> None:
    """Let networks compute this rank's rows of every map. Raises UsageError for a layer that cannot be split so."""
    for module in (module for network in networks for module in network.modules()):
        if kind := SPLIT.get(type(module)):
            module.__class__ = kind
            layer = cast(_OfRows, module)
            layer.part = part
            layer.check()


class _OfRows:
    """A layer of a rank that has some rows of every map."""

    part: Part
    above = below = 0  # rows of the neighbours that it reads

    def check(self) -> None:
        """Returns if the layer can be split by rows. Raises UsageError."""

    def of_rows(self, values: Any) -> Any:
        """What it makes of own rows, while training."""
        raise NotImplementedError

    def forward(self, values: Any, *more: Any) -> Any:
        if cast(nn.Module, self).training:
            return self.of_rows(values)
        return super().forward(values, *more)  # type: ignore[misc]

    def with_halo(self, values: torch.Tensor, *, fill: float = 0.0) -> torch.Tensor:
        """(N, C, above + H + below, W): own rows between the neighbours', which are `fill` beyond the sample."""
        if not (self.above or self.below):
            return values
        self.part.rows.check_halo(values.shape[2], max(self.above, self.below))
        return _halo(values, self.part, self.above, self.below, fill)


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


class _Convolution(_Windows, nn.Conv2d):
    def of_rows(self, values: torch.Tensor) -> torch.Tensor:
        values = self.with_halo(_in_autocast(values))
        return F.conv2d(values, self.weight, self.bias, self.stride, (0, _pair(self.padding)[1]))


class _MaxPool(_Windows, nn.MaxPool2d):
    def of_rows(self, values: torch.Tensor) -> torch.Tensor:
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

    def of_rows(self, values: torch.Tensor) -> torch.Tensor:
        size, stride, (padding, sides) = self.kernel_size[0], self.stride[0], _pair(self.padding)
        # Padding cuts off the rows that halos make and others have: as many below as above.
        cut = padding + stride * self.above
        more = stride * (1 + self.above - self.below) + 2 * padding - size  # of own rows, than are left then
        outputs = F.conv_transpose2d(
            self.with_halo(_in_autocast(values)),
            self.weight,
            self.bias,
            self.stride,
            (cut, sides),
            (max(more, 0), self.output_padding[1]),
        )
        return outputs if more >= 0 else outputs[:, :, :more]


class _BatchNorm(_OfRows, nn.BatchNorm2d):
    """Batch norm over the pixels of whole samples."""

    def of_rows(self, values: torch.Tensor) -> torch.Tensor:
        normal: torch.Tensor
        normal, *statistics = _normalised(values, self.weight, self.bias, self.part, self.eps)
        with torch.no_grad():
            self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
            for running, new in zip((self.running_mean, self.running_var), statistics, strict=True):
                cast(torch.Tensor, running).lerp_(new, cast(float, self.momentum))
        return normal


class _GlobalMean(_OfRows, GlobalMean):
    def of_rows(self, values: torch.Tensor) -> torch.Tensor:
        own = values.shape[2]
        return _summed(values.mean(dim=(2, 3)) * (own / self.part.rows.height(own)), self.part)


class _DenseOfMaps(_OfRows, DenseOfMaps):
    def of_rows(self, values: torch.Tensor) -> torch.Tensor:
        own = self.part.rows.own(self.weight.shape[1])  # H is the outermost axis of the inputs
        products: torch.Tensor = _OwnProducts.apply(values, self.weight, own)  # type: ignore[no-untyped-call]
        outputs = _summed(products, self.part)
        return outputs + self.bias.to(outputs.dtype)


class _OwnRows(_OfRows, OwnRows):
    def of_rows(self, values: torch.Tensor) -> torch.Tensor:
        rows = values[:, :, self.part.rows.own(values.shape[2])]
        return rows.contiguous(memory_format=_memory_format(values))


class _WholeMaps(_OfRows, WholeMaps):
    def of_rows(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of maps of which each rank has filled its own rows."""
        height = self.part.rows.height(values.shape[2])
        own = self.part.rows.own(height)
        return _summed(F.pad(values, (0, 0, own.start, height - own.stop)), self.part)


SPLIT: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv2d: _Convolution,
    nn.MaxPool2d: _MaxPool,
    nn.ConvTranspose2d: _TransposedConvolution,
    nn.BatchNorm2d: _BatchNorm,
    GlobalMean: _GlobalMean,
    DenseOfMaps: _DenseOfMaps,
    OwnRows: _OwnRows,
    WholeMaps: _WholeMaps,
}


class _Halo(torch.autograd.Function):
    """Own rows between the neighbours'. One layer alone takes them, so that their gradient is changed in place."""

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, part: Part, above: int, below: int, fill: float
    ) -> torch.Tensor:
        ctx.part, ctx.above, ctx.below = part, above, below
        number, channels, height, width = values.shape
        padded = torch.empty(
            (number, channels, above + height + below, width),
            dtype=values.dtype,
            device=values.device,
            memory_format=_memory_format(values),
        )
        padded[:, :, above : above + height] = values
        edges = values[:, :, :below], values[:, :, height - above :]
        padded[:, :, :above], padded[:, :, above + height :] = _exchange(part, edges, (above, below), fill)
        return padded

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        above, below = ctx.above, ctx.below
        height = gradient.shape[2] - above - below
        own = gradient[:, :, above : above + height]
        edges = gradient[:, :, :above], gradient[:, :, above + height :]
        from_up, from_down = _exchange(ctx.part, edges, (below, above))
        own[:, :, :below] += from_up
        own[:, :, height - above :] += from_down
        return own, None, None, None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, part: Part) -> torch.Tensor:
        ctx.part = part
        return _sum(values, part)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _sum(gradient, ctx.part), None


class _OwnProducts(torch.autograd.Function):
    """Inputs times their columns of a weight, whose gradient is written where it belongs; torch's is copied there."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: torch.Tensor, own: slice) -> torch.Tensor:
        ctx.save_for_backward(values, weight)
        ctx.own = own
        return F.linear(values, weight[:, own])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        values, weight = ctx.saved_tensors
        gradient = gradient.to(weight.dtype)
        of_weight = torch.zeros_like(weight)
        torch.mm(gradient.T, values.to(weight.dtype), out=of_weight[:, ctx.own])
        return (gradient @ weight[:, ctx.own]).to(values.dtype), of_weight, None


class _Normalise(torch.autograd.Function):
    """Batch norm by the mean and variance of all ranks' pixels."""

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, part: Part, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        # Running statistics that have no weight but the newest: with them statistics of bfloat16 are float32.
        found = torch.ops.aten.batch_norm_update_stats(
            values, torch.zeros_like(weight), torch.zeros_like(weight), 1.0
        )
        mean, variance = (statistic.double() for statistic in found)
        sums = torch.cat([mean, variance + mean * mean, mean.new_ones(1)]) * _num_pixels(values)
        total = _sum(sums, part)
        count = total[-1]
        mean, square = (total[:-1] / count).chunk(2)
        variance = (square - mean * mean).clamp(min=0)
        inverse = (variance + epsilon).rsqrt().to(weight.dtype)
        unbiased = (variance * (count / (count - 1))).to(weight.dtype)
        mean, variance = mean.to(weight.dtype), variance.to(weight.dtype)
        ctx.save_for_backward(values, weight, mean, inverse, count)
        ctx.part, ctx.epsilon = part, epsilon
        ctx.mark_non_differentiable(mean, unbiased)
        return F.batch_norm(values, mean, variance, weight, bias, eps=epsilon), mean, unbiased

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        values, weight, mean, inverse, count = ctx.saved_tensors
        # Of own pixels alone: dx = scale (dy - mean(dy) - x^ mean(dy x^)), with the statistics of all ranks' pixels.
        inner, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            gradient, values, weight, None, None, mean, inverse, True, ctx.epsilon, [True] * 3
        )
        own = torch.cat([of_bias, of_weight]).double()
        # What own means took away too much or too little, as a x + b.
        plain, dotted = (own / _num_pixels(values) - _sum(own, ctx.part) / count).to(weight.dtype).chunk(2)
        scale = weight * inverse
        factor = scale * inverse * dotted
        offset = scale * plain - factor * mean
        inner.addcmul_(values, _per_channel(factor, inner)).add_(_per_channel(offset, inner))
        return inner, of_weight, of_bias, None, None


# Torch's compiler leaves these as they are: a compiled network is in parts between exchanges.
_halo: Callable[..., torch.Tensor] = torch.compiler.disable(_Halo.apply)  # type: ignore[no-untyped-call]
_summed: Callable[..., torch.Tensor] = torch.compiler.disable(_Sum.apply)  # type: ignore[no-untyped-call]
_normalised: Callable[..., Any] = torch.compiler.disable(_Normalise.apply)  # type: ignore[no-untyped-call]


def _exchange(
    part: Part, edges: tuple[torch.Tensor, torch.Tensor], counts: tuple[int, int], fill: float = 0.0
) -> list[torch.Tensor]:
    """The rows (N, C, count, W) from above and below, for the `edges` that go there; `fill` beyond the sample."""
    number, channels, _, width = edges[0].shape
    dtype, device = edges[0].dtype, edges[0].device
    where = device if part.neighbours.takes_tensors else torch.device("cpu")
    sent = [rows.detach().permute(0, 2, 3, 1).contiguous().to(where) for rows in edges]
    received = [
        torch.full((number, count, width, channels), fill, dtype=dtype, device=where) for count in counts
    ]
    part.neighbours.exchange(*map(_passed, (*sent, *received)))
    return [rows.to(device).permute(0, 3, 1, 2) for rows in received]


def _sum(values: torch.Tensor, part: Part) -> torch.Tensor:
    """The sum over the replica's ranks, in the type of `values`; made in float32 or float64."""
    kind = torch.float64 if values.dtype == torch.float64 else torch.float32
    device = values.device if part.neighbours.takes_tensors else "cpu"
    total = torch.empty(values.shape, dtype=kind, device=device).copy_(values.detach())
    part.neighbours.sum(_passed(total))
    return total.to(dtype=values.dtype, device=values.device)


def _passed(values: torch.Tensor) -> Any:
    """The same memory: an array of a tensor that is in the host's; NumPy has no bfloat16."""
    bits = values.view(torch.int16) if values.dtype == torch.bfloat16 else values
    return bits.numpy() if bits.device.type == "cpu" else bits


def _in_autocast(values: torch.Tensor) -> torch.Tensor:
    """As a convolution computes with them: halos of float32 would be twice as wide."""
    device = values.device.type
    return values.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else values


def _memory_format(values: torch.Tensor) -> torch.memory_format:
    """That of maps; of one channel they pass for either, and are left to the next layer's weights."""
    last = values.shape[1] > 1 and values.stride(1) == 1
    return torch.channels_last if last else torch.contiguous_format


def _num_pixels(maps: torch.Tensor) -> int:
    return maps.numel() // maps.shape[1]


def _per_channel(numbers: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
    return numbers.to(maps.dtype).view(1, -1, 1, 1)


def _pair(value: Any) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)
