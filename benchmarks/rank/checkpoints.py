"""A training run over all its launches: where it is, when it is saved, and where it resumes.

The saved state is rank 0's, in a file of the study's folder. The format is safetensors: names, types and shapes in
JSON, then bytes. Reading it runs nothing that is in it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, refuse_links, write_atomically
from dlscale.benchmarks.rank.measure import CommunicatorControl
from dlscale.benchmarks.records.record import Checkpoint, Resumption
from dlscale.collectives import Trainer
from dlscale.models.workload import State

FILE = re.compile(r"step-(\d{10})\.safetensors")
NOTES = "notes"  # among the file's metadata
STATE_ERRORS = (ValueError, KeyError, TypeError, IndexError)  # of one that was made by something else


class TrainingRun:
    """The steps of a trainer whose training may have begun in an earlier launch. Collective.

    `notes` is the text that was saved with the state that the training resumes from; empty at its beginning.
    """

    def __init__(
        self,
        trainer: Trainer,
        every: int,
        folder: Path,
        *,
        control: CommunicatorControl,
        world: Any,
        write: Callable[[Checkpoint | Resumption], None],
        gathers: bool = False,
    ) -> None:
        """It is saved `every` so many steps; 0: never. `gathers`: a state is gathered from shards, by all ranks."""
        self._trainer, self._every, self._folder = trainer, every, folder
        self._control, self._world, self._write, self._gathers = control, world, write, gathers
        self._rank: int = world.Get_rank()
        # Over all launches.
        self.step: int = world.bcast(last_checkpoint_step(folder) if self._rank == 0 else 0)
        self._saved = self.step
        self.notes = ""
        if self.step:
            self._restore()

    def passed(self, num_steps: int, notes: Callable[[], str] = str) -> None:
        """Count the steps, and save the state with `notes` if that is due."""
        self.step += num_steps
        if self._every and self.num_to_save() <= 0:
            self._save(notes)

    def num_to_save(self) -> int:
        """Steps until the state is due to be saved."""
        num_steps: int = self._saved + self._every - self.step
        return num_steps

    def _save(self, notes: Callable[[], str]) -> None:
        """Rank 0's state; all wait, for the weights may not change meanwhile."""
        self._trainer.synchronize()
        self._control.barrier()
        start, num_bytes = time.perf_counter(), 0
        state = self._trainer.state() if self._rank == 0 or self._gathers else {}
        if self._rank == 0:
            num_bytes = save_checkpoint(self._folder, state, step=self.step, notes=notes())
        self._control.barrier()
        self._saved = self.step
        if self._rank == 0:
            seconds = time.perf_counter() - start
            self._write(Checkpoint(step=self.step, seconds=seconds, num_bytes=num_bytes))

    def _restore(self) -> None:
        """Rank 0 reads the state, and all ranks resume from it. Raises UsageError."""
        self._control.barrier()
        start = time.perf_counter()
        state = None
        if self._rank == 0:
            state, self.notes = load_checkpoint(self._folder, step=self.step)
        self.notes = self._world.bcast(self.notes)
        try:
            self._trainer.restore(share_checkpoint(self._world, state))
        except (UsageError, *STATE_ERRORS) as error:
            raise self.of_another(error) from None
        self._control.barrier()
        if self._rank == 0:
            self._write(Resumption(step=self.step, seconds=time.perf_counter() - start))

    def of_another(self, error: Exception) -> UsageError:
        """The error of a state or notes that this training did not save."""
        return UsageError(
            f"the checkpoint in {self._folder} belongs to another training ({' '.join(str(error).split())[:200]}); "
            "delete it, and the training begins anew"
        )


def save_checkpoint(folder: Path, state: State, *, step: int, notes: str = "") -> int:
    """Write the state after `step` steps with `notes`, durably, and delete earlier ones; returns its bytes.

    Raises UsageError if the disk is full or the folder cannot be written; the earlier one is kept then.
    """
    import numpy as np
    from safetensors.numpy import save

    refuse_links([folder])
    make_folder(folder)
    arrays = {name: np.asarray(value, order="C") for name, value in state.items()}
    content = save(arrays, metadata={NOTES: notes} if notes else None)
    write_atomically(_path(folder, step), content)
    for path in folder.iterdir():
        name = FILE.fullmatch(path.name)
        if name and int(name[1]) != step:
            path.unlink()
    return len(content)


def last_checkpoint_step(folder: Path) -> int:
    """After how many steps the last state was saved; 0 if there is none."""
    names = [FILE.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(name[1]) for name in names if name), default=0)


def load_checkpoint(folder: Path, *, step: int) -> tuple[State, str]:
    """The state saved after `step` steps, and the notes with it. Raises UsageError if the file is damaged."""
    from safetensors import SafetensorError, safe_open

    path = _path(folder, step)
    try:
        if not path.is_file():  # a pipe would be waited for
            raise OSError("no such file")
        with safe_open(path, framework="numpy") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dictionary
            return state, str((file.metadata() or {}).get(NOTES, ""))
    except (OSError, SafetensorError, *STATE_ERRORS) as error:
        raise UsageError(
            f"checkpoint {path} cannot be read ({str(error).splitlines()[0]}); delete it, and the training begins anew"
        ) from None


def share_checkpoint(control: Any, state: State | None) -> State:
    """Rank 0's state on all ranks of `control`, a `Communicator`; collective."""
    import numpy as np

    facts = {name: (value.shape, value.dtype.str) for name, value in state.items()} if state else None
    shared = {}
    for name, (shape, kind) in control.bcast(facts).items():
        value = np.ascontiguousarray(state[name]).reshape(shape) if state else np.empty(shape, np.dtype(kind))
        control.Bcast(value.reshape(-1).view(np.uint8))
        shared[name] = value
    return shared


def _path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:010d}.safetensors"
