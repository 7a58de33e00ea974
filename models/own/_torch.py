"""A user's own model in torch: its program for replicas, and what it says of itself."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parameter import UninitializedParameter

from dlscale.base.errors import UsageError
from dlscale.models.frameworks._torch import SHARE, TorchProgram, flop_counter, objective
from dlscale.models.frameworks._torch_layers import obstacle_to_units
from dlscale.models.frameworks._torch_optimizers import obstacle_to_parts
from dlscale.models.frameworks._torch_state import canonical
from dlscale.models.own import OwnModel
from dlscale.models.own.data import SEED_LIMIT
from dlscale.models.own.file import SAME, SUM, UNREPEATABLE, OwnFile
from dlscale.models.own.randomness import GeneratorStates, generators_of, seed_generators
from dlscale.models.samples import Arrays
from dlscale.models.workload import Execution, Preset, Weights

BUFFER_SEED = 7  # of what a network draws for itself besides trainable weights: the same on every rank
NUM_TRIES = 8  # passes in which a weight that ever has a gradient is to have one
MOST_SECONDS = 1.0  # for all of them


def seed(number: int) -> None:
    """Seed torch's global generators."""
    torch.manual_seed(number)


class OwnLoss(nn.Module):
    """The user's loss of the network's output; of a network that draws, the batch's last tensor seeds the generators.

    Of one that `skips` weights in some steps, these have a gradient of zeros there: an exchange waits for all.
    """

    def __init__(
        self, network: nn.Module, own: OwnFile, *, random: bool = False, skips: bool = False
    ) -> None:
        super().__init__()
        self.network, self.loss = network, own.names["loss"]
        self.random, self.skips = random, skips
        self.generators = [*own.generators, *generators_of(*network.modules())] if random else []

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        """The scalar loss of (the network's inputs ..., labels[, seed])."""
        if self.random:
            *batch, number = batch  # type: ignore[assignment]
            _seed_of(number, self.generators)
        *inputs, labels = batch
        loss: torch.Tensor = self.loss(self.network(*inputs), labels)
        if self.skips:
            loss = (
                loss + 0 * torch.stack([p.sum() for p in self.network.parameters() if p.requires_grad]).sum()
            )
        return loss


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _seed_of(number: torch.Tensor, generators: Sequence[Any]) -> None:
    seed_generators(int(number), generators)
    torch.manual_seed(int(number))


def programs(own: OwnFile, model: OwnModel, execution: Execution) -> Callable[..., TorchProgram]:  # noqa: ARG001
    """What builds the network and its one objective (`frameworks._torch.replica_factory`)."""

    def program(preset: Preset, *, gate: bool) -> TorchProgram:
        seed_generators(BUFFER_SEED)
        torch.manual_seed(BUFFER_SEED)
        network = _network(own)
        loss = OwnLoss(network, own, random=model.random, skips=model.skips)

        def make_optimizer(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
            optimizer: torch.optim.Optimizer = own.call("optimizer", parameters)
            first = float(optimizer.param_groups[0]["lr"])
            for group in optimizer.param_groups:
                group[SHARE] = float(group["lr"]) / first
                if preset.learning_rate != model.learning_rate:
                    group["lr"] = preset.learning_rate * group[SHARE]
            if own.clip_norm:
                optimizer.register_step_pre_hook(partial(_clip, own.clip_norm))
            return optimizer

        def first_weights(seed: int) -> Weights:
            seed_generators(seed % SEED_LIMIT)
            torch.manual_seed(seed)
            return [canonical(p) for p in _network(own).parameters() if p.requires_grad]

        return TorchProgram(
            networks=[network],
            objectives=[objective(loss, network, make_optimizer, gate=gate)],
            first_weights=first_weights,
            outputs=lambda *batch: [network(*batch[: -2 if model.random else -1])],
            predict=network,
            schedule=None if gate else own.schedule,
        )

    return program


def _clip(norm: float, optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Before an update: scale all gradients together, so that their norm is at most that."""
    nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], norm)


def _network(own: OwnFile) -> nn.Module:
    """A new network, training, whose weights have no gaps in memory: trainers see them flat."""
    network: nn.Module = own.call("model")
    for parameter in network.parameters():
        if not isinstance(parameter, UninitializedParameter):
            parameter.data = parameter.data.contiguous()
    network.train()  # a user's own may return nothing
    return network


def facts(own: OwnFile, batch: Arrays) -> dict[str, Any]:
    """Facts of the network and its optimizer (fields of `OwnModel`), from some training steps on `batch`.

    Raises UsageError for what cannot be trained here. `batch` is as `Samples.read` gives it.
    """
    network = _network(own)
    named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    _check_weights(own, network, named)
    optimizer = _optimizer(own, [p for _, p in named])
    *inputs, labels = _tensors(batch)
    before = [p.detach().clone() for _, p in named]
    outputs = own.run(lambda: network(*inputs), what="the network on a batch of data()")
    if overwritten := [
        name for (name, p), kept in zip(named, before, strict=True) if not torch.equal(p, kept)
    ]:
        raise UsageError(
            f"{own.name}: the network overwrites {overwritten[0]} while it computes, and updates of weights are the "
            "optimizer's; compute with what you write there instead"
        )
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
    _check_mean(own, outputs.detach(), labels, float(loss.detach()))
    own.run(loss.backward, what="the backward pass")
    _check_gradients(own, network, named, loss)
    num_classes = outputs.shape[1] if outputs.dim() == 2 and outputs.shape[1] > 1 and labels.dim() == 1 else 0
    integer = not labels.is_floating_point() and labels.dtype != torch.bool
    random = _draws(own, network, [*inputs, labels])
    skips = _skips(own, network, [*inputs, labels], named)
    return {
        "num_parameters": sum(p.numel() for _, p in named),
        "forward_flops_per_sample": _flops(network, inputs) // len(labels),
        "optimizer": type(optimizer).__name__,
        "learning_rate": float(optimizer.param_groups[0]["lr"]),
        "whole_tensors": obstacle_to_parts(optimizer),
        "num_classes": num_classes if integer else 0,
        "running_statistics": any(True for _ in network.buffers()),
        "random": random,
        "skips": skips,
        "whole_network": obstacle_to_units(network, skips=skips),
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
    if (rate := min(float(group["lr"]) for group in optimizer.param_groups)) <= 0:
        raise UsageError(f"{own.name}: the optimizer has a learning rate of {rate:g}; all need one above 0")
    if any("initial_lr" in group for group in optimizer.param_groups):
        raise UsageError(
            f"{own.where('optimizer')}: the optimizer has a schedule of torch.optim.lr_scheduler, which nobody would "
            "step; leave it out, and write schedule(step), which returns what the learning rate is multiplied by in "
            "step 0, 1, ..."
        )
    updated = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if left_out := [p for p in parameters if id(p) not in updated]:
        raise UsageError(
            f"{own.where('optimizer')}: optimizer(parameters) leaves out {len(left_out)} of the {len(parameters)} "
            "parameters that it is given; let it have these, all of them, or set requires_grad of the others to False "
            "in model()"
        )
    return optimizer


Named = Sequence[tuple[str, nn.Parameter]]


def _check_weights(own: OwnFile, network: nn.Module, named: Named) -> None:
    """Raises UsageError for weights that ranks cannot train together."""
    if not named:
        raise UsageError(f"{own.name}: model() has no trainable weights; return a network with some")
    if lazy := [name for name, p in named if isinstance(p, UninitializedParameter)]:
        raise UsageError(
            f"{own.name}: {lazy[0]} has no shape before the first batch; give the layer its sizes, in the place of a "
            "lazy one"
        )
    if others := [f"{name} ({p.dtype})" for name, p in named if p.dtype != torch.float32]:
        raise UsageError(
            f"{own.name}: weights must be float32, found {others[0]}; leave precision to --precision"
        )
    if hasattr(network, "_orig_mod"):
        raise UsageError(
            f"{own.where('model')}: model() returns a network of torch.compile; return the network itself, and have it "
            "compiled with --set compiled=yes"
        )
    if hooked := [name for name, p in named if p._post_accumulate_grad_hooks]:
        raise UsageError(
            f"{own.name}: {hooked[0]} has a hook that is called after its gradient was added up, which not every "
            "exchange does; write register_hook, or clip_norm"
        )
    if any(isinstance(module, nn.SyncBatchNorm) for module in network.modules()):
        raise UsageError(
            f"{own.name}: SyncBatchNorm averages over ranks by itself, and here statistics are each rank's own; write "
            "BatchNorm1d, 2d or 3d"
        )
    places: dict[int, str] = {p.data_ptr(): name for name, p in _network(own).named_parameters() if p.numel()}
    if again := [name for name, p in named if p.data_ptr() in places]:
        raise UsageError(
            f"{own.where('model')}: model() returns {again[0]} again when it is called again; every replica needs "
            "weights of its own: make the layers inside of model()"
        )
    seen: dict[int, str] = {}
    for name, parameter in named:
        if parameter.numel() and seen.setdefault(parameter.data_ptr(), name) != name:
            raise UsageError(
                f"{own.name}: {seen[parameter.data_ptr()]} and {name} share memory and are two parameters; let both "
                "layers have one parameter"
            )


def _check_mean(own: OwnFile, outputs: torch.Tensor, labels: torch.Tensor, loss: float) -> None:
    """Raises UsageError for a loss that is a sum over samples: ranks average theirs."""
    twice = 0.0
    with contextlib.suppress(Exception):  # a loss may take whole batches alone
        twice = float(own.names["loss"](torch.cat([outputs, outputs]), torch.cat([labels, labels])))
    if loss and math.isclose(twice, 2 * loss, rel_tol=SAME):
        raise UsageError(SUM.format(file=own.name, arguments="outputs, labels"))


def _check_gradients(own: OwnFile, network: nn.Module, named: Named, loss: torch.Tensor) -> None:
    """Raises UsageError for gradients that no exchange averages, and for weights trained outside of the network."""
    if sparse := [name for name, p in named if p.grad is not None and p.grad.layout != torch.strided]:
        raise UsageError(
            f"{own.name}: gradients of {sparse[0]} are sparse, and ranks average whole ones; write sparse=False"
        )
    inside = {id(p) for p in network.parameters()}
    if others := [tensor for tensor in _differentiated(loss) if id(tensor) not in inside]:
        names = [name for name, tensor in _tensors_of(own.names) if tensor is others[0]]
        name = names[0] if names else f"a tensor of shape ({', '.join(map(str, others[0].shape))})"
        raise UsageError(
            f"{own.name}: {name} is trained and is no weight of model(), so that neither optimizer nor ranks would "
            "know of it; make it a part of the network (nn.Parameter)"
        )


def _differentiated(loss: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that a loss has gradients of, wherever they are kept: the leaves of its graph."""
    found, seen, left = list[torch.Tensor](), set[Any](), [loss.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        left += [following for following, _ in node.next_functions]
        if (leaf := getattr(node, "variable", None)) is not None:
            found.append(leaf)
    return found


def _tensors_of(names: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that a file keeps as names of its own, and the weights of modules that it keeps."""
    for kept, value in names.items():
        if isinstance(value, torch.Tensor):
            yield kept, value
        elif isinstance(value, nn.Module):
            yield from ((f"{kept}.{name}", parameter) for name, parameter in value.named_parameters())


def _draws(own: OwnFile, network: nn.Module, batch: Sequence[torch.Tensor]) -> bool:
    """Whether a training step draws random numbers. Raises UsageError for one that seeding does not repeat."""
    loss = OwnLoss(network, own, random=True)
    kept = {name: buffer.detach().clone() for name, buffer in network.named_buffers()}
    values = []
    for _ in range(3):
        for name, buffer in network.named_buffers():  # which a network may put others in the place of
            buffer.data.copy_(kept[name])
        seed_generators(BUFFER_SEED, loss.generators)
        torch.manual_seed(BUFFER_SEED)
        before = GeneratorStates(loss.generators)
        with torch.no_grad():
            outputs = network(*batch[:-1])
            values.append(torch.cat([outputs.float().reshape(-1), loss.loss(outputs, batch[-1]).reshape(1)]))
    if not all(torch.allclose(values[0], value, rtol=SAME, atol=0, equal_nan=True) for value in values[1:]):
        raise UsageError(UNREPEATABLE.format(file=own.name, remedy=REMEDY))
    return before.drawn_from()


REMEDY = (
    "keep what it counts in a buffer (register_buffer), and draw from the generators of torch, NumPy or Python, not "
    "from one that is made in every call"
)


def _skips(own: OwnFile, network: nn.Module, batch: Sequence[torch.Tensor], named: Named) -> bool:
    """Whether some weights have no gradient in some steps. Raises UsageError for those that never have one."""
    loss, used, skips = OwnLoss(network, own, random=True), set[str](), False
    begun = time.monotonic()
    for number in range(NUM_TRIES):
        chosen = torch.from_numpy(np.random.default_rng(number).integers(0, len(batch[-1]), len(batch[-1])))
        network.zero_grad()
        loss(*(tensor[chosen] for tensor in batch), torch.tensor([number])).backward()
        with_gradient = {name for name, p in named if p.grad is not None}
        used |= with_gradient
        skips |= len(with_gradient) < len(named)
        if time.monotonic() - begun > MOST_SECONDS and not skips:
            break
    if unused := [name for name, _ in named if name not in used]:
        raise UsageError(
            f"{own.name}: the loss does not depend on {', '.join(unused[:3])}; leave such weights out, or set their "
            "requires_grad to False"
        )
    return skips


def _tensors(batch: Arrays) -> list[torch.Tensor]:
    tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in batch]
    return [tensor.permute(0, 3, 1, 2) if tensor.dim() == 4 else tensor for tensor in tensors]


def _found(loss: Any) -> str:
    return f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"


def _flops(network: nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """The operations that torch counts, without the fused layers of CPUs that it does not know."""
    with warnings.catch_warnings(), torch.no_grad(), flop_counter() as counter:
        warnings.simplefilter("ignore")  # the switch warns of GPUs that nobody asked for
        with torch.backends.mkldnn.flags(enabled=False):
            network(*inputs)
    return int(counter.get_total_flops())


def loss_value(own: OwnFile, outputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """The user's loss of outputs (N, ...) and labels (N, ...)."""
    with torch.no_grad():
        loss = own.names["loss"](*_tensors((outputs, labels)))
    return float(loss)
