"""A user's own model in torch: its program for replicas, and what it says of itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dlscale.base.errors import UsageError
from dlscale.models.frameworks._torch import TorchProgram, canonical, objective
from dlscale.models.own import OwnModel
from dlscale.models.own.file import OwnFile
from dlscale.models.samples import Arrays
from dlscale.models.workload import Execution, Preset, Weights

BUFFER_SEED = 7  # of what a network draws for itself besides trainable weights: the same on every rank


def seed(number: int) -> None:
    """Seed torch's global generators."""
    torch.manual_seed(number)


class OwnLoss(nn.Module):
    """The user's loss of the network's output; with `random` the batch's last tensor seeds what the network draws."""

    def __init__(self, network: nn.Module, loss: Callable[..., Any], *, random: bool) -> None:
        super().__init__()
        self.network, self.loss, self.random = network, loss, random

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        """The scalar loss of (the network's inputs ..., labels[, seed])."""
        if self.random:
            *batch, number = batch  # type: ignore[assignment]
            _seed_of(number)
        *inputs, labels = batch
        loss: torch.Tensor = self.loss(self.network(*inputs), labels)
        return loss


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _seed_of(number: torch.Tensor) -> None:
    torch.manual_seed(int(number))


def programs(own: OwnFile, model: OwnModel, execution: Execution) -> Callable[..., TorchProgram]:  # noqa: ARG001
    """What builds the network and its one objective (`frameworks._torch.replica_factory`)."""

    def program(preset: Preset, *, gate: bool) -> TorchProgram:
        torch.manual_seed(BUFFER_SEED)
        network = _network(own)
        loss = OwnLoss(network, own.names["loss"], random=model.random)

        def make_optimizer(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
            optimizer: torch.optim.Optimizer = own.call("optimizer", parameters)
            if preset.learning_rate != model.learning_rate:
                for group in optimizer.param_groups:
                    group["lr"] = preset.learning_rate
            return optimizer

        def first_weights(seed: int) -> Weights:
            torch.manual_seed(seed)
            return [canonical(p) for p in _network(own).parameters() if p.requires_grad]

        return TorchProgram(
            networks=[network],
            objectives=[objective(loss, network, make_optimizer, gate=gate)],
            first_weights=first_weights,
            outputs=lambda *batch: [network(*batch[: -2 if model.random else -1])],
            predict=network,
        )

    return program


def _network(own: OwnFile) -> nn.Module:
    network: nn.Module = own.call("model")
    return network


def facts(own: OwnFile, batch: Arrays) -> dict[str, Any]:
    """Facts of the network and its optimizer (fields of `OwnModel`), from one training step on `batch`.

    Raises UsageError for what cannot be trained here. `batch` is as `Samples.read` gives it.
    """
    network = _network(own)
    named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    if not named:
        raise UsageError(f"{own.name}: model() has no trainable weights; return a network with some")
    if others := [f"{name} ({p.dtype})" for name, p in named if p.dtype != torch.float32]:
        raise UsageError(
            f"{own.name}: weights must be float32, found {others[0]}; leave precision to --precision"
        )
    optimizer = _optimizer(own, [p for _, p in named])
    *inputs, labels = _tensors(batch)
    network.train()
    outputs = own.run(lambda: network(*inputs), what="the network on a batch of data()")
    if not isinstance(outputs, torch.Tensor) or outputs.shape[:1] != labels.shape[:1]:
        found = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise UsageError(
            f"{own.name}: the network gives {found} for {len(labels)} samples; it must return one tensor, with the "
            "samples as its first axis"
        )
    loss = own.run(lambda: own.names["loss"](outputs, labels), what="loss(outputs, labels)")
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise UsageError(
            f"{own.name}: loss(outputs, labels) returned {_found(loss)}; it must be one number, a mean over samples"
        )
    if not torch.isfinite(loss):
        raise UsageError(f"{own.name}: the first loss is {float(loss.detach())}; it must be finite")
    own.run(loss.backward, what="the backward pass")
    if unused := [name for name, p in named if p.grad is None]:
        raise UsageError(
            f"{own.name}: the loss does not depend on {', '.join(unused[:3])}; leave such weights out, or set their "
            "requires_grad to False"
        )
    num_classes = outputs.shape[1] if outputs.dim() == 2 and outputs.shape[1] > 1 and labels.dim() == 1 else 0
    integer = not labels.is_floating_point() and labels.dtype != torch.bool
    return {
        "num_parameters": sum(p.numel() for _, p in named),
        "forward_flops_per_sample": _flops(network, inputs) // len(labels),
        "optimizer": type(optimizer).__name__,
        "learning_rate": float(optimizer.param_groups[0]["lr"]),
        "num_classes": num_classes if integer else 0,
        "running_statistics": any(True for _ in network.buffers()),
        "random": _draws(network, inputs),
    }


def is_network(made: Any) -> bool:
    """Whether that is a torch network."""
    return isinstance(made, nn.Module)


def _optimizer(own: OwnFile, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    optimizer = own.call("optimizer", parameters)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(
            f"{own.name}: optimizer(parameters) returned a {type(optimizer).__name__}; return one of torch.optim"
        )
    rates = {float(group["lr"]) for group in optimizer.param_groups}
    if len(rates) != 1 or min(rates) <= 0:
        raise UsageError(
            f"{own.name}: the optimizer has learning rates {sorted(rates)}; one above 0 is needed for all weights"
        )
    if sum(len(group["params"]) for group in optimizer.param_groups) != len(parameters):
        raise UsageError(
            f"{own.name}: optimizer(parameters) leaves out some of the parameters; give it all of them, or set "
            "requires_grad of the others to False"
        )
    _check_elementwise(own)
    return optimizer


def _check_elementwise(own: OwnFile) -> None:
    """Raises UsageError for an optimizer whose step depends on the shape of a tensor: trainers give it flat views."""
    first = torch.linspace(-1, 1, 24)
    pair = [nn.Parameter(first.clone().view(4, 6)), nn.Parameter(first.clone())]
    for parameter in pair:
        optimizer = own.call("optimizer", [parameter])
        for step in range(3):
            gradient = torch.cos(torch.arange(24.0) + step)
            parameter.grad = gradient.view(parameter.shape)
            own.run(optimizer.step, what="a step of the optimizer")
    if not torch.allclose(pair[0].detach().reshape(-1), pair[1].detach()):
        raise UsageError(
            f"{own.name}: {type(optimizer).__name__} treats the elements of a tensor differently, and trainers give it "
            "flat tensors; choose one such as SGD, Adam, AdamW, RMSprop or Adagrad"
        )


def _tensors(batch: Arrays) -> list[torch.Tensor]:
    tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in batch]
    return [tensor.permute(0, 3, 1, 2) if tensor.dim() == 4 else tensor for tensor in tensors]


def _found(loss: Any) -> str:
    return f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"


def _flops(network: nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """The operations that torch counts, without the fused layers of CPUs that it does not know."""
    with warnings.catch_warnings(), torch.no_grad(), FlopCounterMode(display=False) as counter:
        warnings.simplefilter("ignore")  # the switch warns of GPUs that nobody asked for
        with torch.backends.mkldnn.flags(enabled=False):
            network(*inputs)
    return int(counter.get_total_flops())


def _draws(network: nn.Module, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether the network's outputs while training depend on the generator."""
    found = []
    for number in (1, 2):
        torch.manual_seed(number)
        with torch.no_grad():
            found.append(network(*inputs))
    return not torch.equal(*found)


def loss_value(own: OwnFile, outputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """The user's loss of outputs (N, ...) and labels (N, ...)."""
    with torch.no_grad():
        loss = own.names["loss"](*_tensors((outputs, labels)))
    return float(loss)
