"""The torch trainer that all backends share, and how an objective's gradients can be exchanged.

A backend says how by an exchange per objective: not at all (`NoExchange`), by torch's own DistributedDataParallel, or,
for any `Collective`, by the buckets of `_torch_buckets`.

Weights are updated in the order in which they lie in memory. torch's fused optimizers copy every gradient that is
not contiguous in torch's own sense, which with channels last is every convolution's. Given the same memory as flat
tensors they have nothing to copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dlscale.collectives.backend import BUCKET_SIZES, ReplicaTrainer, Setting, StateBytes, StepStamps
from dlscale.models.frameworks import TORCH_GPUS


class Update:
    """An objective's optimizer, working on flat views of the parameters' memory.

    The optimizer keeps the views, with its state of them, for a trainer that comes after this one.
    """

    def __init__(self, objective: Any) -> None:
        self._optimizer = objective.optimizer
        by_address = {parameter.data_ptr(): parameter for parameter in objective.parameters}
        self._view_of: dict[nn.Parameter, nn.Parameter] = {}
        for group in self._optimizer.param_groups:
            pairs = [self._pair(by_address[given.data_ptr()], given) for given in group["params"]]
            group["params"] = [view for _, view in pairs]
            self._view_of.update(pairs)

    def apply(self) -> None:
        """One step of the optimizer."""
        for parameter, view in self._view_of.items():
            view.grad = (
                None if parameter.grad is None else _as_updated(_laid_out_as(parameter, parameter.grad))
            )
        self._optimizer.step()

    def _pair(self, parameter: nn.Parameter, given: nn.Parameter) -> tuple[nn.Parameter, nn.Parameter]:
        """The parameter and its flat view, which `given` may be already."""
        if given is not parameter:
            return parameter, given
        view = nn.Parameter(_as_updated(parameter.detach()))
        state = self._optimizer.state.pop(parameter, {})
        if state:
            self._optimizer.state[view] = {
                name: _as_updated(_laid_out_as(parameter, value)) if _is_like(value, parameter) else value
                for name, value in state.items()
            }
        return parameter, view


def _is_like(value: Any, parameter: nn.Parameter) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == parameter.shape


def _as_updated(tensor: torch.Tensor) -> torch.Tensor:
    """Flat, but for a single number, which has one shape alone."""
    return flat_in_memory(tensor) if tensor.dim() else tensor


def flat_in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor without gaps, in the order in which they lie in memory; it shares that memory."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    if tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor.permute(0, 2, 3, 1).view(-1)
    raise ValueError(f"a tensor with shape {tuple(tensor.shape)} and strides {tensor.stride()} has gaps")


def _laid_out_as(parameter: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the parameter's memory layout, which torch's gradients have unless a hook changed it."""
    pairs = zip(parameter.size(), parameter.stride(), tensor.stride(), strict=True)
    if all(length == 1 or ours == theirs for length, ours, theirs in pairs):
        return tensor
    return torch.empty_like(parameter).copy_(tensor)


class NoExchange:
    """Every rank keeps its own gradients; also the base of what averages one objective's gradients over ranks."""

    def __init__(self, objective: Any) -> None:
        self.loss: nn.Module = objective.loss  # what to call for the loss; an exchange may wrap it
        self._parameters = tuple(objective.parameters)

    def drain(self) -> bool:
        """Whether gradients of the step before must be applied before a step; then every gradient holds their mean."""
        return False

    def begin(self) -> None:
        """A step begins. Let go of the gradients: the next ones take their memory (decision 0003)."""
        clear_gradients(self._parameters)

    def flush(self) -> None:
        """Backpropagation is over: whatever is to travel has been sent off on return."""

    def finish(self) -> bool:
        """Return when every gradient holds a mean over ranks; False if there is none to apply yet."""
        return True

    def synchronize(self) -> None:
        """Return when nothing is under way."""

    def settings(self) -> Mapping[str, Setting]:
        """Its own decisions, for the record."""
        return {}

    def close(self) -> None:
        """Undo its hooks."""


def clear_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Let go of all gradients."""
    for parameter in parameters:
        parameter.grad = None


class TorchTrainer(ReplicaTrainer):
    """A replica's objectives, each differentiated and exchanged, and only then all updated (`Trainer`).

    `exchanges` are those of the objectives, in order, and so are `updates`; `close` is called when they are closed.
    """

    def __init__(
        self,
        replica: Any,
        exchanges: Sequence[NoExchange],
        *,
        updates: Sequence[Update] | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(replica)
        self.exchanges = tuple(exchanges)
        self._close = close
        self._updates = updates or [Update(objective) for objective in replica.objectives]
        devices = {p.device.type for objective in replica.objectives for p in objective.parameters}
        self._gpus = [torch.get_device_module(kind) for kind in devices & {*TORCH_GPUS}]

    def step(self) -> None:
        if all(exchange.drain() for exchange in self.exchanges):
            self._update()
        self._train(self._replica.next_batch())

    def synchronize(self) -> None:
        """On a CPU only a pipelined exchange can outlast its step; a GPU has to be waited for."""
        for exchange in self.exchanges:
            exchange.synchronize()
        for gpu in self._gpus:
            gpu.synchronize()

    def state_bytes(self) -> StateBytes:
        """What the replica holds, and the gradients that are kept between steps, whole buckets of them."""
        parameters = (p for objective in self._replica.objectives for p in objective.parameters)
        gradients = storage_bytes(p.grad for p in parameters if p.grad is not None)
        return replace(super().state_bytes(), gradients=gradients)

    def settings(self) -> dict[str, Setting]:
        """The exchanges' own decisions, the last one's where they differ; the buckets of all."""
        decided: dict[str, Setting] = {}
        sizes: list[Setting] = []
        for exchange in self.exchanges:
            settings = exchange.settings()
            decided.update(settings)
            sizes += [settings[BUCKET_SIZES]] if BUCKET_SIZES in settings else []
        return decided | ({BUCKET_SIZES: ",".join(map(str, sizes))} if sizes else {})

    def close(self) -> None:
        for exchange in self.exchanges:
            exchange.close()
        self._close()

    def _train(self, batch: Sequence[torch.Tensor]) -> None:
        losses = []
        for objective, exchange in zip(self._replica.objectives, self.exchanges, strict=True):
            exchange.begin()
            loss = exchange.loss(*batch)
            self._backward(objective, loss)
            exchange.flush()
            losses.append(loss.detach())
        if all(exchange.finish() for exchange in self.exchanges):
            self._update()
        self._losses = losses

    def _backward(self, objective: Any, loss: torch.Tensor) -> None:
        # Only this objective's own parameters: a generator's loss must not reach the discriminator's.
        loss.backward(inputs=list(objective.parameters), retain_graph=objective.keeps_graph)  # type: ignore[no-untyped-call]

    def _update(self) -> None:
        for update in self._updates:
            update.apply()


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """The bytes of the memory that tensors lie in, each piece of it once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in storages.values())


class TorchStampedTrainer(TorchTrainer):
    """A replica alone, whose steps can be stamped (`StampedTrainer`); on a CPU.

    Gradients are stamped by hooks, which are made for a stamped step and removed after it.
    """

    settling_steps = 0

    def __init__(self, replica: Any) -> None:
        super().__init__(replica, [NoExchange(objective) for objective in replica.objectives])
        self._passes: list[tuple[float, float]] = []  # ends of each objective's forward and backward pass

    def stamped_step(self) -> StepStamps:
        parameters = [p for objective in self._replica.objectives for p in objective.parameters]
        ready = dict.fromkeys(parameters, 0.0)

        def stamp(parameter: torch.Tensor) -> None:
            ready[parameter] = time.perf_counter()

        hooks = [parameter.register_post_accumulate_grad_hook(stamp) for parameter in parameters]
        try:
            begin = time.perf_counter()
            batch = self._replica.next_batch()
            fetched = time.perf_counter()
            self._train(batch)
            end = time.perf_counter()
        finally:
            for hook in hooks:
                hook.remove()
        return StepStamps(
            fetched=fetched - begin,
            forward=[forward - begin for forward, _ in self._passes],
            backward=[backward - begin for _, backward in self._passes],
            ready=[moment - begin for moment in ready.values()],
            end=end - begin,
        )

    def _train(self, batch: Sequence[torch.Tensor]) -> None:
        self._passes.clear()
        super()._train(batch)

    def _backward(self, objective: Any, loss: torch.Tensor) -> None:
        forward = time.perf_counter()
        super()._backward(objective, loss)
        self._passes.append((forward, time.perf_counter()))


def alone(replica: Any) -> TorchStampedTrainer:
    """The replica as it is."""
    return TorchStampedTrainer(replica)
