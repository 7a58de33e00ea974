"""The store of a process group that needs none."""

from __future__ import annotations

from typing import Any

from torch.distributed import Store  # type: ignore[attr-defined]

from dlscale.models.errors import UsageError


class NoStore(Store):
    """Refuses to be used: what ranks have to tell each other goes through the ring.

    A store of one process would do for backend "dlscale" too, but a group of another backend would wait in it for ever.
    """

    def _refuse(self, *_arguments: Any, **_options: Any) -> Any:
        raise UsageError(
            'the method "mpi://" has no store, which only backend "dlscale" can do without; for groups of another '
            "backend give init_process_group a store (FileStore, TCPStore), rank and world_size"
        )

    set = get = add = wait = check = compare_set = delete_key = num_keys = _refuse
