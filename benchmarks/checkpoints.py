"""The saved state of one training: one file, of its last checkpoint, in the folder of its study.

The format is safetensors: names, types and shapes in JSON, then bytes. Reading it runs nothing that is in it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dlscale.models.errors import UsageError
from dlscale.models.files import make_folder, write_atomically
from dlscale.models.workload import State

PATTERN = re.compile(r"step-(\d{10})\.safetensors")
STATE_ERRORS = (ValueError, KeyError, TypeError, IndexError)  # of one that was made by something else


def save(folder: Path, state: State, *, step: int) -> int:
    """Write the state after `step` steps, durably, in the place of an earlier one; returns its bytes.

    Raises UsageError if the disk is full or the folder cannot be written; the earlier one is kept then.
    """
    import numpy as np
    from safetensors.numpy import save as packed

    make_folder(folder)
    content = packed({name: np.asarray(value, order="C") for name, value in state.items()})
    write_atomically(path := _path(folder, step), content)
    for other in folder.iterdir():
        if PATTERN.fullmatch(other.name) and other != path:
            other.unlink()
    return len(content)


def last_step(folder: Path) -> int:
    """After how many steps the last state was saved; 0 if there is none."""
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else iter(())
    return max((int(found[1]) for name in names if (found := PATTERN.fullmatch(name))), default=0)


def load(folder: Path, *, step: int) -> State:
    """The state saved after `step` steps. Raises UsageError if the file is damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpacked

    path = _path(folder, step)
    try:
        state: State = unpacked(path.read_bytes())
    except (OSError, SafetensorError, *STATE_ERRORS) as error:
        raise UsageError(
            f"checkpoint {path} cannot be read ({str(error).splitlines()[0]}); "
            "delete it, and the training begins anew"
        ) from None
    return state


def shared(control: Any, state: State | None) -> State:
    """Rank 0's state on all ranks of `control`, an mpi4py communicator; collective."""
    import numpy as np

    facts = {name: (value.shape, value.dtype.str) for name, value in state.items()} if state else None
    facts = control.bcast(facts)
    found = {}
    for name, (shape, kind) in facts.items():
        value = np.ascontiguousarray(state[name]).reshape(shape) if state else np.empty(shape, np.dtype(kind))
        control.Bcast([value.reshape(-1).view(np.uint8), value.nbytes, _bytes()])
        found[name] = value
    return found


def _bytes() -> Any:
    from mpi4py import MPI

    return MPI.BYTE


def _path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:010d}.safetensors"
