"""The control plane of a launch, separate from what carries the gradients."""

from __future__ import annotations

from typing import Any

from dlscale.collectives.job import rest

PATIENT_POLL_SECONDS = 0.0005


class MpiControl:
    """The control plane over mpi4py, on a communicator of its own (`measure.Control`)."""

    def __init__(self, communicator: Any, *, patient: bool = False) -> None:
        from mpi4py import MPI

        self._communicator, self._patient = communicator, patient
        self._max = MPI.MAX

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self._patient:
            rest(self._communicator.Ibarrier(), poll_seconds=PATIENT_POLL_SECONDS)
        else:
            self._communicator.Barrier()

    def maximum(self, value: float) -> float:
        """The largest value of all ranks."""
        if self._patient:
            self.barrier()  # then nobody waits for long inside MPI
        largest: float = self._communicator.allreduce(value, op=self._max)
        return largest
