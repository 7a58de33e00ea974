"""A training's course over all its launches: where it is, when it is saved, and where it goes on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from dlscale.benchmarks import checkpoints
from dlscale.benchmarks.control import MpiControl
from dlscale.benchmarks.measure import Rules
from dlscale.benchmarks.spool import SpoolWriter
from dlscale.collectives import Backend, Trainer
from dlscale.models.errors import UsageError


class TrainingCourse:
    """`measure.Course` of a trainer that may have been another launch's before. Collective."""

    def __init__(
        self,
        trainer: Trainer,
        rules: Rules,
        folder: Path,
        *,
        case: int,
        control: MpiControl,
        world: Any,
        spool: SpoolWriter,
    ) -> None:
        self._trainer, self._rules, self._folder, self._case = trainer, rules, folder, case
        self._control, self._world, self._spool = control, world, spool
        self._step: int = self._world.bcast(checkpoints.last_step(folder) if self._is_first else 0)
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
            num_bytes = checkpoints.save(self._folder, self._trainer.state(), step=self._step)
        self._control.barrier()
        seconds = time.perf_counter() - start
        self._saved = self._step
        if self._is_first:
            self._spool.write(
                "checkpoint", case=self._case, step=self._step, seconds=seconds, num_bytes=num_bytes
            )

    def _restore(self) -> None:
        """Rank 0 reads, and everybody goes on from what it found. Raises UsageError, on rank 0 if it cannot be read."""
        self._control.barrier()
        start = time.perf_counter()
        state = checkpoints.load(self._folder, step=self._step) if self._is_first else None
        state = checkpoints.shared(self._world, state)
        try:
            self._trainer.restore(state)
        except checkpoints.STATE_ERRORS as error:
            raise UsageError(
                f"the checkpoint in {self._folder} is of another training ({error}); delete it, and the training "
                "begins anew"
            ) from None
        self._control.barrier()
        if self._is_first:
            self._spool.write(
                "resumed", case=self._case, step=self._step, seconds=time.perf_counter() - start
            )


def check_backend(backend: Backend) -> None:
    """Returns if all that a training over it depends on is on every rank. Raises UsageError."""
    name = backend.capabilities.name
    if backend.delay or backend.wire != "float32":
        what = "gradients under way" if backend.delay else "what rounding has left over"
        raise UsageError(
            f"backend {name} has {what}, which each rank has its own of and no checkpoint keeps; leave "
            "--checkpoint-every out, or the option"
        )
