"""Workers that step together before servers that wait for nobody: the groups of a hybrid training.

T. Kurth et al., *Deep Learning at 15PF*, arXiv:1708.05256: inside a group gradients are averaged and weights shared by
collective operations, and one worker, here the first, pushes and fetches for all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlscale.collectives.mpi_ps.messages import Floats, LostRankError, Mailbox, Patience


class Group:
    """The workers `ranks` of a communicator of their own, in its order. What all do is collective over them."""

    def __init__(self, communicator: Any, mailbox: Mailbox, ranks: Sequence[int]) -> None:
        self._communicator, self._mailbox, self._ranks = communicator, mailbox, list(ranks)
        self.size = len(self._ranks)
        self.leads: bool = communicator.Get_rank() == 0
        self._total = np.empty(0, np.float32)

    def share(self, flat: Floats) -> None:
        """Give all the leader's values, in place."""
        self._wait(self._communicator.Ibcast(flat))

    def mean(self, flat: Floats) -> None:
        """Replace the leader's values by the mean of all, in place; those of others stay."""
        if self.leads and self._total.size != flat.size:
            self._total = np.empty_like(flat)
        self._wait(self._communicator.Ireduce(flat, self._total if self.leads else None))
        if self.leads:
            np.divide(self._total, self.size, out=flat)

    def agree(self, goes_on: bool) -> bool:
        word = np.array([goes_on], np.uint8)
        self._wait(self._communicator.Ibcast(word))
        return bool(word[0])

    def close(self) -> None:
        self._communicator.Free()

    def _wait(self, request: Any) -> None:
        """Return when it is done. Raises RuntimeError where a worker has died, for the others cannot go on."""
        patience = Patience()
        try:
            while not self._mailbox.is_moved(request, *self._ranks):
                patience.wait()
        except LostRankError as error:
            pid = self._mailbox.watch.gone()[error.rank]
            raise RuntimeError(
                f"mpi_ps: worker {error.rank} (process {pid}) died, and the others of its group wait for it"
            ) from None
