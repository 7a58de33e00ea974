"""What the torch networks of all workloads share: objectives, and the replica that holds them.

A replica's state as arrays has parameters, batch norm's buffers, and what the optimizers keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.flop_counter import FlopCounterMode

from dlscale.models.frameworks import gpu_module
from dlscale.models.frameworks._torch_eager import put_off_compiler
from dlscale.models.frameworks._torch_optimizers import named_optimizer
from dlscale.models.frameworks._torch_slept import SleptLoss
from dlscale.models.samples import Arrays, DataModule, LocalBatches
from dlscale.models.slept import Slept
from dlscale.models.weights import NUM_DRAWN, Initial, check_names, counted, initialise
from dlscale.models.workload import Execution, Indices, Input, Preset, ReplicaFactory, Shard, State, Weights


def read_state(networks: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> State:
    """Copies, on the host."""
    state = {name: tensor.detach().cpu().numpy().copy() for name, tensor in _state_tensors(networks)}
    for name, values in _kept_by_optimizers(optimizers):
        state |= {
            f"{name}.{key}": _in_memory_order(value.detach()).cpu().numpy().copy()
            for key, value in values.items()
            if isinstance(value, torch.Tensor)
        }
    return state


def write_state(
    networks: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], state: State
) -> None:
    """Overwrite networks and optimizers. Raises UsageError if they are others."""
    kept = {name: value for name, value in state.items() if name.startswith("optimizer")}
    tensors = dict(_state_tensors(networks))
    check_names(
        {name: value for name, value in state.items() if name not in kept},
        {name: tensor.shape for name, tensor in tensors.items()},
    )
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(torch.from_numpy(state[name]))
    for index, optimizer in enumerate(optimizers):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        slots: dict[int, dict[str, Any]] = {}
        for name, value in kept.items():
            owner, place, key = name.split(".", 2)
            if owner == f"optimizer{index}":
                slot = _laid_out(torch.from_numpy(value.copy()), parameters[int(place)])
                slots.setdefault(int(place), {})[key] = slot
        optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})


def _in_memory_order(slot: torch.Tensor) -> torch.Tensor:
    """A slot flat, as a trainer's optimizer keeps it; slots have no gaps."""
    return slot.as_strided((slot.numel(),), (1,)) if slot.dim() > 1 else slot


def _laid_out(slot: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A flat slot as its parameter lies in memory."""
    if slot.dim() == 1 and parameter.dim() > 1 and slot.numel() == parameter.numel():
        return slot.as_strided(parameter.size(), parameter.stride())
    return slot


def _state_tensors(networks: Sequence[nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    for index, network in enumerate(networks):
        for kind in (network.named_parameters(), network.named_buffers()):
            for name, tensor in kind:
                yield f"network{index}.{name}", tensor


def _kept_by_optimizers(optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[tuple[str, dict[str, Any]]]:
    """("optimizer<number>.<place of a parameter>", what is kept of it by name)."""
    for index, optimizer in enumerate(optimizers):
        for place, values in optimizer.state_dict()["state"].items():
            yield f"optimizer{index}.{place}", values


Batch = tuple[torch.Tensor, ...]
MEMORY_FORMATS = {"channels_last": torch.channels_last, "channels_first": torch.contiguous_format}
DEVICES = {"cpu": "cpu", "gpu": "cuda"}  # torch's names; "cuda" is the GPU that `prepare` took


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchObjective:
    """A loss module and the parameters that it, alone, is differentiated for (`workload.Objective`).

    `keeps_graph`: a later objective's loss goes back through this one's forward pass, which must not be
    freed by the first backward pass.
    """

    loss: nn.Module  # forward(*batch) -> mean loss over the local batch, a scalar
    names: tuple[str, ...]
    parameters: tuple[nn.Parameter, ...]
    optimizer: torch.optim.Optimizer
    keeps_graph: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchProgram:
    """A workload's networks and objectives, before they have weights and batches."""

    networks: Sequence[nn.Module]
    objectives: Sequence[TorchObjective]
    initial: Initial | None = None
    first_weights: Callable[[int], Weights] | None = None  # by seed; None: `initial` draws them
    outputs: Callable[..., Sequence[torch.Tensor]]  # (*batch) -> what the networks make of it, while training
    predict: Callable[..., torch.Tensor]  # (*samples) -> (N, ...), by networks in evaluation mode


def prepare(
    num_threads: int,
    *,
    device: str = "cpu",
    local_rank: int = 0,
    slept: bool = False,  # noqa: ARG001
    deferred: bool = False,  # noqa: ARG001
) -> None:
    """Give torch its threads, and on device gpu the node's GPU number `local_rank`; before it has computed anything.

    Steps that are `slept` or `deferred` need no more of them: what sleeps or waits is the thread that would compute.
    """
    if device == "gpu":
        gpu_module("torch").take(local_rank)
    torch.set_num_threads(num_threads)
    torch.set_num_interop_threads(1)


def numerics() -> dict[str, str]:
    """What in this process decides how precisely and with how many threads torch computes, replicas of audits too."""
    backends: Any = torch.backends  # has attributes that its stubs do not name
    kinds = (backends.mkldnn.matmul, backends.mkldnn.conv, backends.cuda.matmul, backends.cudnn.conv)
    names = ("mkldnn.matmul", "mkldnn.conv", "cuda.matmul", "cudnn.conv")
    precisions = {name: str(kind.fp32_precision) for name, kind in zip(names, kinds, strict=True)}
    return precisions | {
        "autocast": str(torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")),
        "default type": str(torch.get_default_dtype()),
        "threads": str(torch.get_num_threads()),
    }


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


def replica_factory(
    make_program: Callable[..., TorchProgram],
    data: DataModule,
    *,
    preset: Preset,
    local_batch: int,
    source: Input,
    execution: Execution,
) -> ReplicaFactory:
    """Builds a workload's replicas for a preset, a batch, a source of samples and a way to run."""
    if execution.learning_rate is not None:
        preset = replace(preset, learning_rate=execution.learning_rate)

    def build(*, shard: Shard, seed: int, gate: bool = False) -> TorchReplica:
        if not execution.compiled:
            put_off_compiler()
        with torch.device(DEVICES["gpu"]) if execution.device == "gpu" else nullcontext():
            program = make_program(preset, gate=gate)
        if execution.optimizer and not gate:
            program = replace(
                program,
                objectives=[
                    replace(
                        objective,
                        optimizer=named_optimizer(
                            execution.optimizer,
                            objective.names,
                            objective.parameters,
                            learning_rate=preset.learning_rate,
                        ),
                    )
                    for objective in program.objectives
                ],
            )
        for network in program.networks:
            network.to(memory_format=MEMORY_FORMATS[execution.memory_format])  # type: ignore[call-overload]
        batches = LocalBatches(
            data,
            preset=preset,
            local_batch=local_batch,
            source=source,
            shard=shard,
            seed=seed,
            gate=gate,
        )
        replica = TorchReplica(program, batches, execution)
        if program.first_weights:
            replica.load(program.first_weights(seed))
        elif program.initial:
            initialise(replica, program.initial, seed=seed)
        return replica

    return build


class TorchReplica:
    """`workload.Replica` in torch: objectives in order and an endless source of local batches."""

    framework = "torch"

    def __init__(self, program: TorchProgram, batches: LocalBatches, execution: Execution) -> None:
        self.objectives = (
            _slept(program, execution.slept)
            if execution.slept
            else tuple(
                replace(objective, loss=_executed(objective.loss, execution))
                for objective in program.objectives
            )
        )
        self.device = execution.device
        self.compiled, self.sleeps = execution.compiled, execution.slept is not None
        self._program, self._execution, self._batches = program, execution, batches
        self._losses: Sequence[torch.Tensor] = ()
        self._samples: Iterator[Batch]
        if batches.fixed is not None:
            self._samples = repeat(_tensors(batches.fixed, execution))
        else:
            loader = DataLoader(
                _Endless(batches), batch_size=None, collate_fn=lambda arrays: _tensors(arrays, execution)
            )
            self._samples = iter(loader)

    def next_batch(self) -> Batch:
        """The next local batch; images are (N, C, H, W) in the chosen memory format."""
        return (*next(self._samples), *_tensors(self._batches.step_inputs(), self._execution))

    def weights(self) -> Weights:
        """Copies of the trainable weights."""
        return [canonical(parameter) for parameter in self._parameters()]

    def load(self, weights: Weights) -> None:
        """Overwrite the trainable weights."""
        with torch.no_grad():
            for parameter, weight in zip(self._parameters(), weights, strict=True):
                parameter.copy_(_from_canonical(torch.from_numpy(weight)))

    def tensors(self, arrays: Weights) -> list[torch.Tensor]:
        """Arrays in the layout of `weights` as tensors in that of the parameters; they share memory."""
        return [_from_canonical(torch.from_numpy(array)) for array in arrays]

    def gradients(self) -> Weights:
        """This replica's own mean gradients on the next local batch, in the order of `weights`."""
        batch = self.next_batch()
        losses = [objective.loss(*batch) for objective in self.objectives]
        self._losses = [loss.detach() for loss in losses]
        return [
            canonical(gradient)
            for objective, loss in zip(self.objectives, losses, strict=True)
            for gradient in torch.autograd.grad(
                loss, objective.parameters, retain_graph=objective.keeps_graph
            )
        ]

    def apply(self, gradients: Weights) -> None:
        """Update the weights once by every objective's optimizer, with these gradients."""
        for parameter, gradient in zip(self._parameters(), gradients, strict=True):
            kind = torch.empty_like(parameter)  # with the parameter's strides
            parameter.grad = kind.copy_(_from_canonical(torch.from_numpy(gradient)))
        for objective in self.objectives:
            objective.optimizer.step()
        for parameter in self._parameters():
            parameter.grad = None

    def losses(self) -> list[float]:
        """Losses of the last `gradients`, one per objective."""
        return [float(loss) for loss in self._losses]

    def learning_rate(self) -> float:
        """The rate of the first optimizer."""
        return float(self.objectives[0].optimizer.param_groups[0]["lr"])

    def set_learning_rate(self, learning_rate: float) -> None:
        """From the next step on, all optimizers have that rate."""
        for objective in self.objectives:
            for group in objective.optimizer.param_groups:
                group["lr"] = learning_rate

    def set_local_batch(self, local_batch: int) -> None:
        """From the next batch on it has that many samples."""
        self._batches.resize(local_batch)

    def last_samples(self) -> Indices | None:
        """Indices of the samples in the last local batch; None of synthetic ones."""
        return self._batches.last_samples

    def num_samples(self) -> int:
        """Samples of the input; 0 of a synthetic one."""
        return self._batches.num_samples

    def names(self) -> list[str]:
        """Names of the trainable weights, in the order of `weights`."""
        return [name for objective in self.objectives for name in objective.names]

    def outputs(self) -> Weights:
        """The networks' outputs for the next local batch; images come as (N, H, W, C)."""
        batch = self.next_batch()
        with self._statistics_kept(), torch.no_grad(), autocast(self._execution):
            return [_channels_to_the_end(output) for output in self._program.outputs(*batch)]

    def state(self) -> State:
        """Copies of all that the next steps depend on; optimizers' slots are in the order of the memory."""
        networks, optimizers = self._program.networks, [o.optimizer for o in self.objectives]
        return {NUM_DRAWN: counted(self._batches.num_drawn, self._batches.num_read)} | read_state(
            networks, optimizers
        )

    def restore(self, state: State) -> None:
        """Resume from `state`."""
        rest = dict(state)
        drawn = map(int, rest.pop(NUM_DRAWN))
        write_state(self._program.networks, [o.optimizer for o in self.objectives], rest)
        self._batches.begin_at(*drawn)

    def predict(self, *samples: NDArray[Any]) -> NDArray[np.float32]:
        """(N, ...) of samples as `Samples.read` gives them, with running statistics and without dropout."""
        tensors = _tensors(samples, self._execution)
        for network in self._program.networks:
            network.eval()
        with torch.no_grad(), autocast(self._execution):
            outputs = _channels_to_the_end(self._program.predict(*tensors))
        for network in self._program.networks:
            network.train()
        return outputs

    def forward_flops(self) -> int:
        """Floating-point operations of `outputs` per sample, as torch counts them."""
        batch = self.next_batch()
        with self._statistics_kept(), FlopCounterMode(display=False) as counter, torch.no_grad():
            self._program.outputs(*batch)
        return int(counter.get_total_flops()) // len(batch[0])

    def num_skipped(self) -> int:
        """Samples left out so far because they could not be read."""
        return self._batches.num_skipped

    @contextmanager
    def _statistics_kept(self) -> Iterator[None]:
        """Batch norm remembers nothing of what passes through the networks meanwhile."""
        buffers = [buffer for network in self._program.networks for buffer in network.buffers()]
        before = [buffer.clone() for buffer in buffers]
        yield
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for objective in self.objectives for parameter in objective.parameters]


def canonical(tensor: torch.Tensor) -> NDArray[Any]:
    """A C-contiguous copy of a weight or gradient on the host, in the canonical layout.

    (O, I, H, W) becomes (H, W, I, O), a transposed convolution's (I, O, H, W) becomes (H, W, O, I), and a
    dense layer's (O, I) becomes (I, O): by the number of axes alone.
    """
    tensor = tensor.detach().cpu()
    if tensor.dim() == 4:
        tensor = tensor.permute(2, 3, 1, 0)
    elif tensor.dim() == 2:
        tensor = tensor.T
    return tensor.contiguous().numpy().copy()


def autocast(execution: Execution) -> torch.autocast:
    """Compute in bfloat16 where that is asked for."""
    kind = DEVICES[execution.device]
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=execution.precision == "bf16")


def _from_canonical(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() == 4:
        return tensor.permute(3, 2, 0, 1)
    return tensor.T if tensor.dim() == 2 else tensor


class _Mixed(nn.Module):
    """A loss computed in bfloat16 where that is safe; weights and gradients stay float32."""

    def __init__(self, loss: nn.Module, execution: Execution) -> None:
        super().__init__()
        self.loss = loss
        self._execution = execution

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        with autocast(self._execution):
            loss: torch.Tensor = self.loss(*batch)
        return loss


def _slept(program: TorchProgram, slept: Slept) -> tuple[TorchObjective, ...]:
    """The objectives of a program whose passes sleep."""
    passes = slept.passes([objective.names for objective in program.objectives])
    return tuple(
        replace(objective, loss=SleptLoss(objective.loss, objective.parameters, sleeps=sleeps))
        for objective, sleeps in zip(program.objectives, passes, strict=True)
    )


def _executed(loss: nn.Module, execution: Execution) -> nn.Module:
    """The loss as it is run."""
    module = loss if execution.precision == "fp32" else _Mixed(loss, execution)
    if execution.compiled:
        # What a network of the user's draws at random is what it would draw without: audits replay steps so.
        module.compile(options={"fallback_random": True})
    return module


class _Endless(IterableDataset[Arrays]):
    """Local batches of samples as torch's DataLoader wants them."""

    def __init__(self, batches: LocalBatches) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Arrays]:
        return self._batches.samples()


def _tensors(arrays: Sequence[NDArray[Any]], execution: Execution) -> Batch:
    """Arrays as tensors: (N, H, W, C) are seen as (N, C, H, W) without a copy, unless channels come first.

    A GPU gets copies of them, in the order of its work: the host does not wait.
    """
    tensors = []
    for array in arrays:
        tensor = torch.from_numpy(array)
        if tensor.dim() == 4:
            tensor = tensor.permute(0, 3, 1, 2)
            tensor = tensor.contiguous(memory_format=MEMORY_FORMATS[execution.memory_format])
        tensors.append(_on_gpu(tensor) if execution.device == "gpu" else tensor)
    return tuple(tensors)


def _on_gpu(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the GPU with the same strides. Memory that is not pinned would be copied by a waiting host."""
    return tensor.pin_memory().to(DEVICES["gpu"], non_blocking=True)


def _channels_to_the_end(tensor: torch.Tensor) -> NDArray[np.float32]:
    tensor = tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor
    return tensor.float().contiguous().cpu().numpy().copy()
