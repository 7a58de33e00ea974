"""What ranks of a replica exchange, as differentiable functions of torch.

All adjoints are those of the sum of all ranks' losses (`models/parallel`). What goes to a neighbour is (N, rows, W, C)
without gaps, whatever the memory format. Axis letters: N samples, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

from dlscale.base.errors import UsageError
from dlscale.models.parallel import Neighbours, Part

Function = TypeVar("Function", bound=Callable[..., Any])


def _uncompiled(function: Function) -> Function:
    """Torch's compiler leaves it as it is: a compiled network is in parts between exchanges."""
    return cast(Function, torch.compiler.disable(function))  # type: ignore[no-untyped-call]


@_uncompiled
def halo(
    values: torch.Tensor,
    part: Part,
    *,
    above: int,
    below: int,
    fill: float = 0.0,
    takes_gradient: bool = False,
) -> torch.Tensor:
    """(N, C, above + H + below, W): own rows (N, C, H, W) between those of the neighbours; at the edges all are `fill`.

    With `takes_gradient` it goes to one operation, whose gradient nobody else has: it is changed in place, not copied.
    Raises UsageError if a neighbour has fewer rows than that.
    """
    height = values.shape[2]
    fewest = min(part.rows.counts(part.rows.height(height)))
    if fewest < max(above, below):
        raise UsageError(
            f"split {part.rows.split} leaves a rank {fewest} rows of a map, but the next layer reads "
            f"{max(above, below)} of a neighbour's; choose fewer ranks per sample"
        )
    exchanged: torch.Tensor = _Halo.apply(  # type: ignore[no-untyped-call]
        values, part.neighbours, above, below, fill, takes_gradient
    )
    return exchanged


@_uncompiled
def summed(values: torch.Tensor, part: Part) -> torch.Tensor:
    """The sum over the replica of tensors of one shape, on every rank."""
    total: torch.Tensor = _Sum.apply(values, part.neighbours)  # type: ignore[no-untyped-call]
    return total


@_uncompiled
def gathered(values: torch.Tensor, part: Part) -> torch.Tensor:
    """The whole maps (N, C, H, W), on every rank, of which each has its own rows."""
    whole: torch.Tensor = _Gather.apply(values, part)  # type: ignore[no-untyped-call]
    return whole


def summed_products(values: torch.Tensor, weight: torch.Tensor, part: Part) -> torch.Tensor:
    """(N, outputs) on every rank, of a weight (outputs, inputs) and inputs of which each rank has (N, own inputs)."""
    products: torch.Tensor = _OwnProducts.apply(  # type: ignore[no-untyped-call]
        values, weight, part.rows.own(weight.shape[1])
    )
    return summed(products, part)


def own_rows(values: torch.Tensor, part: Part) -> torch.Tensor:
    """This rank's rows of whole maps (N, C, H, W), which all ranks have."""
    rows = values[:, :, part.rows.own(values.shape[2])]
    return rows.contiguous(memory_format=_memory_format(values))


@_uncompiled
def normalised(
    values: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, part: Part, *, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Batch norm of maps (N, C, H, W) by all ranks' pixels, with their means and unbiased variances (C,)."""
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = _Normalise.apply(  # type: ignore[no-untyped-call]
        values, weight, bias, part.neighbours, epsilon
    )
    return found


class _Halo(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: torch.Tensor,
        neighbours: Neighbours,
        above: int,
        below: int,
        fill: float,
        takes: bool,
    ) -> torch.Tensor:
        ctx.neighbours, ctx.above, ctx.below, ctx.takes = neighbours, above, below, takes
        number, channels, height, width = values.shape
        padded = torch.empty(
            (number, channels, above + height + below, width),
            dtype=values.dtype,
            device=values.device,
            memory_format=_memory_format(values),
        )
        padded[:, :, above : above + height] = values
        from_up, from_down = _exchange(
            neighbours,
            up=values[:, :, :below],
            down=values[:, :, height - above :],
            num_from_up=above,
            num_from_down=below,
        )
        padded[:, :, :above] = fill if from_up is None else from_up
        padded[:, :, above + height :] = fill if from_down is None else from_down
        return padded

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        above, below = ctx.above, ctx.below
        height = gradient.shape[2] - above - below
        own = gradient[:, :, above : above + height]
        own = own if ctx.takes else own.clone()
        from_up, from_down = _exchange(
            ctx.neighbours,
            up=gradient[:, :, :above],
            down=gradient[:, :, above + height :],
            num_from_up=below,
            num_from_down=above,
        )
        if from_up is not None:
            own[:, :, :below] += from_up
        if from_down is not None:
            own[:, :, height - above :] += from_down
        return own, None, None, None, None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, neighbours: Neighbours) -> torch.Tensor:
        ctx.neighbours = neighbours
        return _sum(values, neighbours)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _sum(gradient, ctx.neighbours), None


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


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, part: Part) -> torch.Tensor:
        ctx.part = part
        number, channels, own, width = values.shape
        height = part.rows.height(own)
        whole = _buffer(part.neighbours, values, (height, number, width, channels))
        counts = part.rows.counts(height)
        part.neighbours.gather(_sent(part.neighbours, values.permute(2, 0, 3, 1)), _passed(whole), counts)
        return whole.permute(1, 3, 0, 2).to(values.device).contiguous(memory_format=_memory_format(values))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return own_rows(_sum(gradient, ctx.part.neighbours), ctx.part), None


class _Normalise(torch.autograd.Function):
    """Batch norm by the mean and variance of all ranks' pixels."""

    @staticmethod
    def forward(
        ctx: Any,
        values: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        neighbours: Neighbours,
        epsilon: float,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        # Running statistics that have no weight but the newest: with them statistics of bfloat16 are float32.
        found = torch.ops.aten.batch_norm_update_stats(
            values, torch.zeros_like(weight), torch.zeros_like(weight), 1.0
        )
        mean, variance = (statistic.double() for statistic in found)
        sums = torch.cat([mean, variance + mean * mean, mean.new_ones(1)]) * _num_pixels(values)
        total = _sum(sums, neighbours)
        count = total[-1]
        mean, square = (total[:-1] / count).chunk(2)
        variance = (square - mean * mean).clamp(min=0)
        inverse = (variance + epsilon).rsqrt().to(weight.dtype)
        unbiased = (variance * (count / (count - 1))).to(weight.dtype)
        mean, variance = mean.to(weight.dtype), variance.to(weight.dtype)
        ctx.save_for_backward(values, weight, mean, inverse, count)
        ctx.neighbours, ctx.epsilon = neighbours, epsilon
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
        plain, dotted = (
            (own / _num_pixels(values) - _sum(own, ctx.neighbours) / count).to(weight.dtype).chunk(2)
        )
        scale = weight * inverse
        factor = scale * inverse * dotted
        offset = scale * plain - factor * mean
        inner.addcmul_(values, _per_channel(factor, inner)).add_(_per_channel(offset, inner))
        return inner, of_weight, of_bias, None, None


def _exchange(
    neighbours: Neighbours, *, up: torch.Tensor, down: torch.Tensor, num_from_up: int, num_from_down: int
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Rows (N, C, rows, W) for both neighbours, and what came from them; None where there is none."""
    number, channels, _, width = up.shape

    def sent(rows: torch.Tensor, *, exists: bool) -> Any:
        return _sent(neighbours, rows.permute(0, 2, 3, 1)) if exists and rows.shape[2] else None

    def buffer(num_rows: int, *, exists: bool) -> torch.Tensor | None:
        return _buffer(neighbours, up, (number, num_rows, width, channels)) if exists and num_rows else None

    upper, lower = neighbours.index > 0, neighbours.index < neighbours.split - 1
    from_up, from_down = buffer(num_from_up, exists=upper), buffer(num_from_down, exists=lower)
    neighbours.exchange(
        sent(up, exists=upper),
        sent(down, exists=lower),
        None if from_up is None else _passed(from_up),
        None if from_down is None else _passed(from_down),
    )
    return (
        None if from_up is None else from_up.to(up.device).permute(0, 3, 1, 2),
        None if from_down is None else from_down.to(up.device).permute(0, 3, 1, 2),
    )


def _sum(values: torch.Tensor, neighbours: Neighbours) -> torch.Tensor:
    kind = torch.float64 if values.dtype == torch.float64 else torch.float32
    device = values.device if neighbours.takes_tensors else "cpu"
    total = torch.empty(values.shape, dtype=kind, device=device).copy_(values.detach())
    neighbours.sum(_passed(total))
    return total.to(dtype=values.dtype, device=values.device)


def _sent(neighbours: Neighbours, values: torch.Tensor) -> Any:
    """As `Neighbours` takes it."""
    values = values.detach().contiguous()
    return _passed(values if neighbours.takes_tensors else values.cpu())


def _buffer(neighbours: Neighbours, like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device if neighbours.takes_tensors else "cpu")


def _passed(values: torch.Tensor) -> Any:
    """The same memory: an array of a tensor that is in the host's; NumPy has no bfloat16."""
    bits = values.view(torch.int16) if values.dtype == torch.bfloat16 else values
    return bits.numpy() if bits.device.type == "cpu" else bits


def _memory_format(values: torch.Tensor) -> torch.memory_format:
    """That of maps; of one channel they pass for either, and are left to the next layer's weights."""
    last = values.shape[1] > 1 and values.stride(1) == 1
    return torch.channels_last if last else torch.contiguous_format


def _num_pixels(maps: torch.Tensor) -> int:
    return maps.numel() // maps.shape[1]


def _per_channel(numbers: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
    return numbers.to(maps.dtype).view(1, -1, 1, 1)
