"""What the torch networks of all workloads share: objectives, and the replica that holds them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from dlscale.models.frameworks import _torch_gpu, gpu_module
from dlscale.models.frameworks._torch_compiler import leave_out_compiler
from dlscale.models.frameworks._torch_optimizers import named_optimizer
from dlscale.models.frameworks._torch_state import (
    canonical,
    canonical_axes,
    from_canonical,
    read_state,
    view_in_memory_order,
    view_slots,
    write_state,
)
from dlscale.models.frameworks.replica import BatchedReplica, Program, factory_of
from dlscale.models.parallel import Part
from dlscale.models.samples import Arrays, LocalBatches
from dlscale.models.workload import Execution, Objective, ReplicaFactory, State, Weights

Batch = tuple[torch.Tensor, ...]
SHARE = "share_of_rate"  # in a group of an optimizer: its learning rate, relative to that of the first one
DEVICES = {
    "cpu": "cpu",
    "gpu": _torch_gpu.KIND,
}  # torch's names; without a number, the GPU that `prepare` took


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchObjective(Objective):
    """A loss module with its parameters.

    `keeps_graph`: a later objective's loss goes back through this one's forward pass, which must not be
    freed by the first backward pass.
    """

    loss: nn.Module  # forward(*batch) -> mean loss over the local batch, a scalar
    keeps_graph: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchProgram(Program):
    """A workload's networks and objectives. `units` have weights that are gathered together where ranks share them.

    None of them is inside of another, and they are in forward order; unnamed, they are found among the layers.
    """

    units: Sequence[nn.Module] = ()
    as_given: bool = False  # whether batches and weights keep the shape and order of memory that they come in


def prepare(
    num_threads: int,
    *,
    device: str = "cpu",
    local_rank: int = 0,
    precision: str = "fp32",
    compiles: bool = True,
) -> None:
    """Give torch its threads, and on device gpu the node's GPU number `local_rank`; before it has computed anything.

    Unless it `compiles`, its compiler is loaded only where somebody uses it.
    """
    if not compiles:
        leave_out_compiler()
    if device == "gpu":
        gpu_module("torch").take(local_rank, tf32=precision == "tf32")
    torch.set_num_threads(num_threads)
    torch.set_num_interop_threads(1)


def objective(
    loss: nn.Module,
    network: nn.Module,
    make_optimizer: Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer],
    *,
    gate: bool,
    prefix: str = "",
    keeps_graph: bool = False,
) -> TorchObjective:
    """`loss`, differentiated for all parameters of `network`; the gate's optimizer is plain SGD of rate 1."""
    trained = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
    names, parameters = zip(*trained, strict=True)
    return TorchObjective(
        loss=loss,
        names=tuple(prefix + name for name in names),
        parameters=parameters,
        optimizer=torch.optim.SGD(parameters, lr=1.0) if gate else make_optimizer(parameters),
        keeps_graph=keeps_graph,
    )


def replica_factory(make_program: Callable[..., TorchProgram], data: Any, **given: Any) -> ReplicaFactory:
    """Builds replicas of a program."""
    execution: Execution = given["execution"]

    def made(*arguments: Any, **options: Any) -> TorchProgram:
        with torch.device(DEVICES["gpu"]) if execution.device == "gpu" else nullcontext():
            return make_program(*arguments, **options)

    def split_rows(networks: Sequence[nn.Module], part: Part) -> None:
        # Exchanges of rows are hidden from torch's compiler, which importing them loads: 0.6 s.
        _torch_rows = importlib.import_module("dlscale.models.parallel._torch")
        _torch_rows.split_rows(networks, part)

    return factory_of(TorchReplica, named_optimizer, split_rows, made, data, **given)


class TorchReplica(BatchedReplica):
    """`workload.Replica` in torch.

    Weights, buffers and batches of images have channels last, volumes (5 axes) stay as they are; the slots of a state
    are in the order of the memory.
    """

    framework = "torch"

    def __init__(self, program: TorchProgram, batches: LocalBatches, execution: Execution) -> None:
        self._execution = execution
        for network in program.networks:
            for tensor in (*network.parameters(), *network.buffers()):
                if tensor.dim() == 4 and not program.as_given:
                    tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)
            if execution.precision == "fp64":
                network.double()
        super().__init__(program, batches, execution)
        self.objectives = [replace(one, loss=_executed(one.loss, execution)) for one in program.objectives]

    def _as_batch(self, arrays: Arrays) -> Batch:
        """(N, H, W, C) are seen as (N, C, H, W) without a copy, unless channels come first.

        A GPU gets copies of them, in the order of its work: the host does not wait.
        """
        tensors = []
        for array in arrays:
            tensor = torch.from_numpy(array)
            if self._execution.precision == "fp64" and tensor.is_floating_point():
                tensor = tensor.double()
            if tensor.dim() == 4 and not self.program.as_given:
                tensor = tensor.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
            tensors.append(_on_gpu(tensor) if self.device == "gpu" else tensor)
        return tuple(tensors)

    def weights(self) -> Weights:
        return [canonical(parameter) for parameter in self._parameters()]

    def load(self, weights: Weights) -> None:
        with torch.no_grad():
            for parameter, weight in zip(self._parameters(), weights, strict=True):
                parameter.copy_(from_canonical(torch.from_numpy(weight)))

    def tensors(self, arrays: Weights) -> list[torch.Tensor]:
        """Arrays in the layout of `weights` as tensors in that of the parameters; they share memory."""
        return [from_canonical(torch.from_numpy(array)) for array in arrays]

    def gradients(self) -> Weights:
        batch = self.next_batch()
        losses = [objective.loss(*batch) for objective in self.objectives]
        self._losses = [loss.detach() for loss in losses]
        found = [
            gradient
            for objective, loss in zip(self.objectives, losses, strict=True)
            for gradient in torch.autograd.grad(
                loss, objective.parameters, retain_graph=objective.keeps_graph
            )
        ]
        return [
            canonical_axes(_laid_out_like(parameter, gradient).cpu()).numpy()
            for parameter, gradient in zip(self._parameters(), found, strict=True)
        ]

    def apply(self, gradients: Weights) -> None:
        for parameter, gradient in zip(self._parameters(), gradients, strict=True):
            kind = torch.empty_like(parameter)  # with the parameter's strides
            parameter.grad = kind.copy_(from_canonical(torch.from_numpy(gradient)))
        for objective in self.objectives:
            objective.optimizer.step()
        for parameter in self._parameters():
            parameter.grad = None

    def _read_rate(self) -> float:
        return float(self.objectives[0].optimizer.param_groups[0]["lr"])

    def _write_rate(self, learning_rate: float) -> None:
        for objective in self.objectives:
            for group in objective.optimizer.param_groups:
                group["lr"] = learning_rate * group.get(SHARE, 1.0)

    def outputs(self) -> Weights:
        """The networks' outputs for the next local batch; images come as (N, H, W, C)."""
        batch = self.next_batch()
        with self._statistics_kept(), torch.no_grad(), autocast(self._execution):
            return [self._on_host(output) for output in self.program.outputs(*batch)]

    def slots(self) -> State:
        return view_slots(self._optimizers())

    def _views(self) -> Weights:
        return [view_in_memory_order(parameter) for parameter in self._parameters()]

    def _read_state(self) -> State:
        return read_state(self.program.networks, self._optimizers())

    def _write_state(self, state: State) -> None:
        write_state(self.program.networks, self._optimizers(), state)

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        return [objective.optimizer for objective in self.objectives]

    def predict(self, *samples: NDArray[Any]) -> NDArray[np.float32]:
        tensors = self._as_batch(samples)
        for network in self.program.networks:
            network.eval()
        with torch.no_grad(), autocast(self._execution):
            outputs = self._on_host(self.program.predict(*tensors))
        for network in self.program.networks:
            network.train()
        return outputs

    def _on_host(self, outputs: torch.Tensor) -> NDArray[np.float32]:
        """Images as (N, H, W, C), unless they stay as given."""
        if outputs.dim() == 4 and not self.program.as_given:
            outputs = outputs.permute(0, 2, 3, 1)
        return outputs.float().contiguous().cpu().numpy().copy()

    @contextmanager
    def _statistics_kept(self) -> Iterator[None]:
        """Batch norm remembers nothing of what passes through the networks meanwhile."""
        buffers = [buffer for network in self.program.networks for buffer in network.buffers()]
        before = [buffer.clone() for buffer in buffers]
        yield
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)


def flop_counter() -> FlopCounterMode:
    """Torch's own, which knows attention's kernels of GPUs and not that of CPUs; all count as T x T products."""

    def attention(queries: Any, keys: Any, values: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(queries, keys, values))  # type: ignore[no-untyped-call]

    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return FlopCounterMode(display=False, custom_mapping={on_cpu: attention})


def _laid_out_like(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient, copied only if its elements do not lie in memory as the parameter's do."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def autocast(execution: Execution) -> torch.autocast:
    """Compute in bfloat16 where that is asked for."""
    kind = DEVICES[execution.device]
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=execution.precision == "bf16")


def _executed(loss: nn.Module, execution: Execution) -> nn.Module:
    """The loss as it is run: in bfloat16 where that is safe and asked for, weights and gradients stay float32."""
    if execution.precision == "bf16":
        loss.forward = autocast(execution)(loss.forward)
    if execution.compiled:
        # What a network of the user's draws at random is what it would draw without: audits replay steps so.
        loss.compile(options={"fallback_random": True})
    return loss


def _on_gpu(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the GPU with the same strides. Memory that is not pinned would be copied by a waiting host."""
    return tensor.pin_memory().to(DEVICES["gpu"], non_blocking=True)
