"""A training run over all its launches: where it is, when it is saved, and where it resumes.

The saved state is that of the last checkpoint, in the folder of the study: a file of rank 0's, and one of every other
rank that has something of its own. Rank 0's is written last: without it the others are no checkpoint. The format is
safetensors: names, types and shapes in JSON, then bytes. Reading it runs nothing that is in it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, read_regular, refuse_links, write_atomically
from dlscale.benchmarks.rank.case import CaseRun
from dlscale.benchmarks.rank.measure import CommunicatorControl
from dlscale.benchmarks.records.record import Checkpoint, Resumption
from dlscale.collectives import Backend, Trainer
from dlscale.collectives.backend import OWN
from dlscale.collectives.sharding import NONE
from dlscale.models.workload import State

FILE = re.compile(r"step-(\d{10})(\.rank-\d+)?\.safetensors")
NOTES = "notes"  # among the file's metadata
STATE_ERRORS = (ValueError, KeyError, TypeError, IndexError)  # of one that was made by something else
LARGEST_BYTES = 1 << 40


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
        self.step: int = world.bcast(
            last_checkpoint_step(folder) if self._rank == 0 else 0
        )  # over all launches
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
        """Rank 0's state and what others have of their own; all wait, for the weights may not change meanwhile."""
        self._trainer.synchronize()
        self._control.barrier()
        start = time.perf_counter()
        num_bytes = 0
        own = self._trainer.own_state()
        if own and self._rank:
            num_bytes = save_checkpoint(self._folder, own, step=self.step, rank=self._rank)
        num_bytes = sum(self._world.allgather(num_bytes))
        shared = self._trainer.state() if self._rank == 0 or self._gathers else {}
        if self._rank == 0:
            num_bytes += save_checkpoint(self._folder, shared | own, step=self.step, notes=notes())
        self._control.barrier()
        seconds = time.perf_counter() - start
        self._saved = self.step
        if self._rank == 0:
            self._write(Checkpoint(step=self.step, seconds=seconds, num_bytes=num_bytes))

    def _restore(self) -> None:
        """Rank 0 reads the state, and all ranks resume from it, each with its own.

        Raises UsageError, on the rank whose file cannot be read.
        """
        self._control.barrier()
        start = time.perf_counter()
        state: State = {}
        if self._rank == 0:
            state, self.notes = load_checkpoint(self._folder, step=self.step)
        self.notes = self._world.bcast(self.notes)
        own = {name: value for name, value in state.items() if name.startswith(OWN)}
        shared = {name: value for name, value in state.items() if name not in own}
        if self._world.bcast(bool(own)) and self._rank:
            own, _ = load_checkpoint(self._folder, step=self.step, rank=self._rank)
        try:
            self._trainer.restore(share_checkpoint(self._world, shared if self._rank == 0 else None) | own)
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


def training_run(case: CaseRun, trainer: Trainer) -> TrainingRun | None:
    """The training of a case over its launches; None where it is neither saved nor resumed. Raises UsageError."""
    if case.checkpoints is None:
        return None
    context = case.context
    if case.rules.checkpoint_every:
        check_can_resume(context.backend)
    return TrainingRun(
        trainer,
        case.rules.checkpoint_every,
        case.checkpoints,
        control=context.control,
        world=context.world,
        write=case.write,
        gathers=context.backend.shard != NONE,
    )


def check_can_resume(backend: Backend) -> None:
    """Returns if a checkpoint has all that a training over it depends on. Raises UsageError."""
    if backend.delay:
        raise UsageError(
            f"backend {backend.capabilities.name} has gradients under way, which each rank has its own of and no "
            "checkpoint keeps; leave rules.checkpoint_every out, or the option"
        )


def save_checkpoint(folder: Path, state: State, *, step: int, notes: str = "", rank: int = 0) -> int:
    """Write the state after `step` steps with `notes`, durably; returns its bytes.

    That of rank 0 completes the checkpoint, and earlier ones are deleted. Raises UsageError if the disk is full or the
    folder cannot be written; the earlier one is kept then.
    """
    import numpy as np
    from safetensors.numpy import save

    refuse_links([folder])
    make_folder(folder)
    arrays = {name: np.asarray(value, order="C") for name, value in state.items()}
    content = save(arrays, metadata={NOTES: notes} if notes else None)
    write_atomically(_path(folder, step, rank), content)
    for path in folder.iterdir() if rank == 0 else ():
        name = FILE.fullmatch(path.name)
        if name and int(name[1]) != step:
            path.unlink()
    return len(content)


def last_checkpoint_step(folder: Path) -> int:
    """After how many steps the last state was saved; 0 if there is none."""
    names = [FILE.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(name[1]) for name in names if name and not name[2]), default=0)


def load_checkpoint(folder: Path, *, step: int, rank: int = 0) -> tuple[State, str]:
    """That rank's state saved after `step` steps, and the notes with it.

    Raises UsageError if the file is damaged, or is not there.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = _path(folder, step, rank)
    try:
        content = read_regular(path, limit=LARGEST_BYTES)
        state: State = load(content)
        header = json.loads(
            content[8 : 8 + int.from_bytes(content[:8], "little")]
        )  # which `load` does not give
    except (OSError, SafetensorError, *STATE_ERRORS) as error:
        remedy = f"delete {folder}" if rank else "delete it"
        raise UsageError(
            f"checkpoint {path} cannot be read ({str(error).splitlines()[0]}); {remedy}, and the training begins anew"
        ) from None
    return state, str(header.get("__metadata__", {}).get(NOTES, ""))


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


def _path(folder: Path, step: int, rank: int = 0) -> Path:
    return folder / f"step-{step:010d}{f'.rank-{rank}' if rank else ''}.safetensors"
