"""A training run over all its launches: where it is, when it is saved, and where it resumes.

The saved state is one file, of the last checkpoint, in the folder of the study. Its format is safetensors: names,
types and shapes in JSON, then bytes. Reading it runs nothing that is in it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, write_atomically
from dlscale.benchmarks.rank.measure import BarrierControl
from dlscale.benchmarks.records.spool import CheckpointSaved, TrainingResumed
from dlscale.benchmarks.study.study import Rules
from dlscale.collectives import Backend, Trainer
from dlscale.models.workload import State


class TrainingRun:
    """`measure.TrainingProgress` of a trainer whose training may have begun in an earlier launch. Collective."""

    def __init__(
        self,
        trainer: Trainer,
        rules: Rules,
        folder: Path,
        *,
        control: BarrierControl,
        world: Any,
        write: Callable[[CheckpointSaved | TrainingResumed], None],
    ) -> None:
        self._trainer, self._rules, self._folder = trainer, rules, folder
        self._control, self._world, self._write = control, world, write
        self._step: int = self._world.bcast(last_checkpoint_step(folder) if self._is_first else 0)
        self._saved = self._step
        if self._step:
            self._restore()

    def passed(self, num_steps: int) -> None:
        """Count the steps, and save the state if that is due."""
        self._step += num_steps
        if self._rules.checkpoint_every and self._step - self._saved >= self._rules.checkpoint_every:
            self._save()

    def num_left(self) -> int:
        """Steps to the training's end."""
        return max(0, self._rules.train_steps - self._step)

    @property
    def _is_first(self) -> bool:
        return bool(self._world.Get_rank() == 0)

    def _save(self) -> None:
        """Rank 0's state; the others wait, for the weights may not change meanwhile."""
        self._trainer.synchronize()
        self._control.barrier()
        start = time.perf_counter()
        num_bytes = 0
        if self._is_first:
            num_bytes = save_checkpoint(self._folder, self._trainer.state(), step=self._step)
        self._control.barrier()
        seconds = time.perf_counter() - start
        self._saved = self._step
        if self._is_first:
            self._write(CheckpointSaved(step=self._step, seconds=seconds, num_bytes=num_bytes))

    def _restore(self) -> None:
        """Rank 0 reads the state, and all ranks resume from it. Raises UsageError, on rank 0 if it cannot be read."""
        self._control.barrier()
        start = time.perf_counter()
        state = load_checkpoint(self._folder, step=self._step) if self._is_first else None
        state = share_checkpoint(self._world, state)
        try:
            self._trainer.restore(state)
        except STATE_ERRORS as error:
            raise UsageError(
                f"the checkpoint in {self._folder} is of another training ({error}); delete it, and the training "
                "begins anew"
            ) from None
        self._control.barrier()
        if self._is_first:
            self._write(TrainingResumed(step=self._step, seconds=time.perf_counter() - start))


def check_can_resume(backend: Backend) -> None:
    """Returns if all that a training over it depends on is on every rank. Raises UsageError."""
    name = backend.capabilities.name
    if backend.delay or backend.wire != "float32":
        what = "gradients under way" if backend.delay else "what rounding has left over"
        raise UsageError(
            f"backend {name} has {what}, which each rank has its own of and no checkpoint keeps; leave "
            "--checkpoint-every out, or the option"
        )


PATTERN = re.compile(r"step-(\d{10})\.safetensors")
STATE_ERRORS = (ValueError, KeyError, TypeError, IndexError)  # of one that was made by something else


def save_checkpoint(folder: Path, state: State, *, step: int) -> int:
    """Write the state after `step` steps, durably, in the place of an earlier one; returns its bytes.

    Raises UsageError if the disk is full or the folder cannot be written; the earlier one is kept then.
    """
    import numpy as np
    from safetensors.numpy import save as packed

    make_folder(folder)
    content = packed({name: np.asarray(value, order="C") for name, value in state.items()})
    write_atomically(path := _checkpoint_path(folder, step), content)
    for other in folder.iterdir():
        if PATTERN.fullmatch(other.name) and other != path:
            other.unlink()
    return len(content)


def last_checkpoint_step(folder: Path) -> int:
    """After how many steps the last state was saved; 0 if there is none."""
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else iter(())
    return max((int(match[1]) for name in names if (match := PATTERN.fullmatch(name))), default=0)


def load_checkpoint(folder: Path, *, step: int) -> State:
    """The state saved after `step` steps. Raises UsageError if the file is damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpacked

    path = _checkpoint_path(folder, step)
    try:
        state: State = unpacked(path.read_bytes())
    except (OSError, SafetensorError, *STATE_ERRORS) as error:
        raise UsageError(
            f"checkpoint {path} cannot be read ({str(error).splitlines()[0]}); "
            "delete it, and the training begins anew"
        ) from None
    return state


def share_checkpoint(control: Any, state: State | None) -> State:
    """Rank 0's state on all ranks of `control`, an mpi4py communicator; collective."""
    import numpy as np

    facts = {name: (value.shape, value.dtype.str) for name, value in state.items()} if state else None
    facts = control.bcast(facts)
    shared = {}
    for name, (shape, kind) in facts.items():
        value = np.ascontiguousarray(state[name]).reshape(shape) if state else np.empty(shape, np.dtype(kind))
        control.Bcast([value.reshape(-1).view(np.uint8), value.nbytes, _state_bytes()])
        shared[name] = value
    return shared


def _state_bytes() -> Any:
    from mpi4py import MPI

    return MPI.BYTE


def _checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:010d}.safetensors"
