"""A user's own model in torch: its program for replicas, and what it says of itself."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from dlscale.models.frameworks._torch import SHARE, TorchProgram, flop_counter, objective
from dlscale.models.frameworks._torch_layers import obstacle_to_units
from dlscale.models.frameworks._torch_optimizers import obstacle_to_parts
from dlscale.models.frameworks._torch_state import canonical
from dlscale.models.own import checks
from dlscale.models.own.file import OwnFile
from dlscale.models.own.model import OwnModel
from dlscale.models.own.randomness import Generators, same_states
from dlscale.models.samples import Arrays
from dlscale.models.workload import Execution, Preset, Weights

BUFFER_SEED = 7  # of what a network draws for itself besides trainable weights: the same on every rank
NUM_TRIES = 8  # passes in which a weight that ever has a gradient is to have one
MOST_SECONDS = 1.0  # for all of them
REMEDY = (
    "keep what it counts in a buffer (register_buffer), and draw from the generators of torch, NumPy or Python, not "
    "from one that is made in every call"
)


class OwnLoss(nn.Module):
    """The user's loss of the network's output; of a network that draws, the batch's last tensor seeds the generators.

    Of one that `skips` weights in some steps, these have a gradient of zeros there: an exchange waits for all.
    """

    def __init__(self, network: nn.Module, own: OwnFile, *, random: bool, skips: bool) -> None:
        super().__init__()
        self.network, self.loss = network, own.names["loss"]
        self.random, self.skips = random, skips
        self.generators = Generators(own.names, *network.modules())

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        """The scalar loss of (the network's inputs ..., labels[, seed])."""
        if self.random:
            *batch, number = batch  # type: ignore[assignment]
            _seed(self.generators, number)
        *inputs, labels = batch
        loss: torch.Tensor = self.loss(self.network(*inputs), labels)
        if self.skips:
            sums = [p.sum() for p in self.network.parameters() if p.requires_grad]
            loss = loss + 0 * torch.stack(sums).sum()
        return loss


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _seed(generators: Generators, number: torch.Tensor) -> None:
    generators.seed(int(number))


def programs(own: OwnFile, model: OwnModel, execution: Execution) -> Callable[..., TorchProgram]:  # noqa: ARG001
    """What builds the network and its one objective (`frameworks._torch.replica_factory`)."""

    def program(preset: Preset, *, gate: bool) -> TorchProgram:
        network = _network(own, seed=BUFFER_SEED)
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
            return [canonical(p) for p in _network(own, seed=seed).parameters() if p.requires_grad]

        def computed(*inputs: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():  # a network may differentiate by its input, as for forces
                outputs: torch.Tensor = network(*inputs)
            return outputs.detach()

        return TorchProgram(
            networks=[network],
            objectives=[objective(loss, network, make_optimizer, gate=gate)],
            first_weights=first_weights,
            outputs=lambda *batch: [computed(*batch[: -2 if model.random else -1])],
            predict=computed,
            schedule=None if gate else own.schedule,
            as_given=True,
        )

    return program


def _clip(norm: float, optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Before an update: scale all gradients together, so that their norm is at most that."""
    nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], norm)


def _network(own: OwnFile, *, seed: int) -> nn.Module:
    """A new network, training, as the file made it, but for gaps in a weight's memory: trainers see them flat."""
    own.generators.seed(seed)
    network: nn.Module = own.call("model")
    for parameter in network.parameters():
        if parameter.stride() != torch.empty_like(parameter).stride():
            parameter.data = parameter.data.contiguous()
    network.train()  # a user's own may return nothing
    return network


def is_network(made: Any) -> bool:
    """Whether that is a torch network."""
    return isinstance(made, nn.Module)


def facts(own: OwnFile, batch: Arrays) -> dict[str, Any]:
    """Facts of the network and its optimizer (fields of `OwnModel`), from some training steps on `batch`.

    Raises UsageError for what cannot be trained here. `batch` is as `Samples.read` gives it.
    """
    network = _network(own, seed=BUFFER_SEED)
    trial = _Trial(own, network, batch)
    parameters = [p for _, p in trial.named]
    _check_network(own, network, trial.named)
    optimizer = _checked_optimizer(own, parameters)
    outputs, labels = trial.check_step()
    random, skips = trial.check_repeats()
    trial.check_alone()
    inputs = trial.tensors()[:-1]
    return {
        "num_parameters": sum(p.numel() for p in parameters),
        "forward_flops_per_sample": _flops(network, inputs) // len(labels),
        "optimizer": type(optimizer).__name__,
        "learning_rate": float(optimizer.param_groups[0]["lr"]),
        "whole_tensors": obstacle_to_parts(optimizer),
        "num_classes": checks.classes_in(
            outputs.shape,
            labels.shape,
            are_whole=not labels.is_floating_point() and labels.dtype != torch.bool,
        ),
        "running_statistics": any(True for _ in network.buffers()),
        "random": random,
        "skips": skips,
        "whole_network": obstacle_to_units(network, skips=skips),
    }


class _Trial:
    """Training steps of a network on one batch, without updates."""

    def __init__(self, own: OwnFile, network: nn.Module, batch: Arrays) -> None:
        self.own, self.network, self._batch = own, network, batch
        self.named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
        self._buffers = {name: buffer.detach().clone() for name, buffer in network.named_buffers()}
        self._generators = Generators(own.names, *network.modules())

    def tensors(self) -> list[torch.Tensor]:
        """The batch, in new tensors: a network may change the one that it is given."""
        return [torch.from_numpy(array.copy()) for array in self._batch]

    def loss(self, seed: int, batch: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        """(outputs, loss) of the network as it was made."""
        for name, buffer in self.network.named_buffers():  # which a network may put others in the place of
            buffer.data.copy_(self._buffers[name])
        self._generators.seed(seed)
        *inputs, labels = batch
        outputs = self.own.run(lambda: self.network(*inputs), what="the network on a batch of data()")
        is_tensor = isinstance(outputs, torch.Tensor)
        checks.check_outputs(self.own, outputs.shape if is_tensor else None, outputs, num_samples=len(labels))
        loss = self.own.run(lambda: self.own.names["loss"](outputs, labels), what="loss(outputs, labels)")
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            found = (
                f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
            )
            raise self.own.wrong(
                f"loss(outputs, labels) returned {found}; it must be one number, a mean over samples",
                at="loss",
            )
        return outputs, loss

    def check_step(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(outputs, labels). Raises UsageError for a loss or gradients that ranks cannot average."""
        own = self.own
        *_, labels = batch = self.tensors()
        outputs, loss = self.loss(BUFFER_SEED, batch)
        twice = 0.0
        with contextlib.suppress(Exception), torch.no_grad():  # a loss may take whole batches alone
            both = torch.cat([outputs, outputs]).detach(), torch.cat([labels, labels])
            twice = float(own.names["loss"](*both))
        checks.check_loss(own, "outputs, labels", float(loss.detach()), twice=twice)
        own.run(loss.backward, what="the backward pass")
        if sparse := [
            name for name, p in self.named if p.grad is not None and p.grad.layout != torch.strided
        ]:
            raise own.wrong(
                f"gradients of {sparse[0]} are sparse, and ranks average whole ones; write sparse=False",
                at="model",
            )
        # What is differentiated in two steps was there before: neither an input nor made by the network.
        _, again = self.loss(BUFFER_SEED, self.tensors())
        inside = {id(p) for p in self.network.parameters()}
        kept = {id(tensor) for tensor in _differentiated(again)} - inside
        outside = [tensor for tensor in _differentiated(loss) if id(tensor) in kept]
        names = {id(value): name for name, value in own.names.items()}
        texts = [names.get(id(one), f"a tensor of shape {tuple(one.shape)}") for one in outside]
        checks.check_inside(own, texts, " (nn.Parameter)")
        return outputs.detach(), labels

    def check_repeats(self) -> tuple[bool, bool]:
        """(whether a step draws random numbers, whether some weights have no gradient in some steps).

        Raises UsageError for a step that seeding does not repeat, and for weights that never have a gradient.
        """
        values, used, skips, drawn, begun = list[torch.Tensor](), set[str](), False, False, time.monotonic()
        for number in range(NUM_TRIES):
            batch = self.tensors()
            if number > 1:
                chosen = np.random.default_rng(number).integers(0, len(batch[-1]), len(batch[-1]))
                batch = [tensor[torch.from_numpy(chosen)] for tensor in batch]
            self._generators.seed(seed := BUFFER_SEED + max(0, number - 1))  # the first two alike
            before = [*self._generators.states(), torch.get_rng_state()]
            self.network.zero_grad()
            outputs, loss = self.loss(seed, batch)
            drawn |= not same_states(before, [*self._generators.states(), torch.get_rng_state()])
            loss.backward()
            values.append(torch.cat([outputs.detach().float().reshape(-1), loss.detach().reshape(1)]))
            with_gradient = {name for name, p in self.named if p.grad is not None}
            used |= with_gradient
            skips |= len(with_gradient) < len(self.named)
            if number and not skips and time.monotonic() - begun > MOST_SECONDS:
                break
        first, again = values[:2]
        if not torch.allclose(first, again, rtol=checks.SAME, atol=0, equal_nan=True):
            raise checks.unrepeatable(self.own, REMEDY)
        checks.check_used(self.own, [name for name, _ in self.named if name not in used], "requires_grad")
        return drawn, skips

    def check_alone(self) -> None:
        """Raises UsageError for a step that exchanges by torch.distributed, which some backends alone initialise."""
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        listening = _Listening()  # type: ignore[no-untyped-call]
        try:
            # What else fails then is not the file's mistake: no other rank answers.
            with contextlib.suppress(Exception), listening:
                self.loss(BUFFER_SEED, self.tensors())[1].backward()
        finally:
            dist.destroy_process_group()
        if listening.error:
            raise self.own.wrong(
                "torch.distributed is used, where it is initialised: ranks would exchange outside of the backend that "
                "is measured; leave it out",
                error=listening.error,
            )


class _Listening(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Ends at the first operation of torch.distributed, and keeps where that was."""

    error: Exception | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "c10d" in func.namespace:
            self.error = RuntimeError(str(func))
            raise self.error
        return func(*args, **kwargs or {})


def _check_network(own: OwnFile, network: nn.Module, named: Sequence[tuple[str, nn.Parameter]]) -> None:
    """Raises UsageError for weights that ranks cannot train together."""
    if not named:
        raise own.wrong("model() has no trainable weights; return a network with some", at="model")
    if others := [f"{name} ({p.dtype})" for name, p in named if p.dtype != torch.float32]:
        raise own.wrong(
            f"weights must be float32, found {others[0]}; leave precision to --precision", at="model"
        )
    if hasattr(network, "_orig_mod"):
        raise own.wrong(
            "model() returns a network of torch.compile; return the network itself, and have it compiled with --set "
            "compiled=yes",
            at="model",
        )
    places = {p.data_ptr() for p in _network(own, seed=BUFFER_SEED).parameters() if p.numel()}
    checks.check_new(own, [name for name, p in named if p.data_ptr() in places])


def _checked_optimizer(own: OwnFile, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    optimizer = own.call("optimizer", parameters)
    problem = ""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise own.wrong(
            f"optimizer(parameters) returned a {type(optimizer).__name__}; return one of torch.optim",
            at="optimizer",
        )
    updated = {id(p) for group in optimizer.param_groups for p in group["params"]}
    left_out = sum(id(p) not in updated for p in parameters)
    if (rate := min(float(group["lr"]) for group in optimizer.param_groups)) <= 0:
        problem = f"the optimizer has a learning rate of {rate:g}; all need one above 0"
    elif any("initial_lr" in group for group in optimizer.param_groups):
        problem = (
            "the optimizer has a schedule of torch.optim.lr_scheduler, which nothing steps here; leave it out, and "
            "write schedule(step), which returns what the learning rate is multiplied by in step 0, 1, ..."
        )
    elif left_out:
        problem = (
            f"optimizer(parameters) leaves out {left_out} of the {len(parameters)} parameters that it is given; let it "
            "have these, all of them, or set requires_grad of the others to False in model()"
        )
    if problem:
        raise own.wrong(problem, at="optimizer")
    return optimizer


def _differentiated(loss: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that a loss has gradients of, wherever they are kept: the leaves of its graph."""
    seen, left = set[Any](), [loss.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        left += [following for following, _ in node.next_functions]
        if (leaf := getattr(node, "variable", None)) is not None:
            yield leaf


def _flops(network: nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """The operations that torch counts, without the fused layers of CPUs that it does not know; 0 if it counts none.

    It cannot where a network differentiates by its input.
    """
    with contextlib.suppress(RuntimeError), warnings.catch_warnings(), flop_counter() as counter:
        warnings.simplefilter("ignore")  # the switch warns of GPUs that are not there
        with torch.backends.mkldnn.flags(enabled=False):
            network(*inputs)
        return int(counter.get_total_flops())
    return 0


def loss_value(own: OwnFile, outputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """The user's loss of outputs (N, ...) and labels (N, ...)."""
    with torch.no_grad():
        return float(own.names["loss"](torch.from_numpy(outputs), torch.from_numpy(labels)))
