"""What a learning rate is tuned for: all of a cell that its gradients, its updates and its target depend on."""

from __future__ import annotations

from typing import Any

from pydantic import NonNegativeInt, PositiveInt

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.strings import Data, Name, NameOrNone, Text
from dlscale.benchmarks.records.cell import Cell, Setting
from dlscale.collectives.algorithms.registry import SYNC


class RateConfiguration(Frozen):
    """Cells of one configuration share a tuned learning rate: backends with equal batches compute the same gradients.

    The ranks belong to it as the global batch does: batch norm sees local batches. One of a search by cell names its
    backend, with options and servers, on which the updates depend where ranks do not wait, or gradients come late.
    """

    workload: Name
    preset: Name
    sequence_length: PositiveInt | None = where_given(None)
    height: PositiveInt | None = where_given(None)
    framework: Name
    algorithm: Name = SYNC
    algorithm_options: dict[Text, Setting] = {}
    num_ranks: PositiveInt
    global_batch: PositiveInt
    precision: Name
    data: Text
    target: dict[Text, Data]  # that of the cells, without learning rates and budget
    backend: NameOrNone = where_given("")  # with the next two; empty: any whose ranks step together
    backend_options: dict[Text, Setting] = where_given({})
    num_servers: NonNegativeInt = where_given(0)

    @property
    def text(self) -> str:
        """`hep_cnn tiny in torch on 2 ranks with global batch 32`; an algorithm beside synchronous SGD is named.

        So are the backend and its options, where it has them.
        """
        ranks = f"{self.num_ranks} rank{'s' * (self.num_ranks > 1)}"
        how = "" if self.algorithm == SYNC else f" by {self.algorithm}"
        if self.backend:
            options = ", ".join(f"{name}={value}" for name, value in self.backend_options.items())
            how += f" over {self.backend}" + (f" ({options})" if options else "")
        where = f"{self.framework}{how} on {ranks} with global batch {self.global_batch}"
        return f"{self.workload} {self.preset} in {where}"

    def differences(self, other: RateConfiguration) -> list[str]:
        """What `other` has that is not as here, in words: `precision bf16`."""
        mine, theirs = _flat(self), _flat(other)
        return [f"{name} {value}" for name, value in theirs.items() if mine.get(name) != value] + [
            f"no {name}" for name in mine if name not in theirs
        ]


def configuration_of(cell: Cell, *, by_cell: bool = False) -> RateConfiguration:
    """The configuration of a cell that has a target; `by_cell` with its backend."""
    backend: dict[str, Any] = {}
    if by_cell:
        backend = {
            "backend": cell.backend,
            "backend_options": cell.backend_options,
            "num_servers": cell.num_servers,
        }
    return RateConfiguration(
        **backend,
        workload=cell.workload,
        preset=cell.preset,
        sequence_length=cell.sequence_length,
        height=cell.height,
        framework=cell.framework,
        algorithm=cell.algorithm,
        algorithm_options=cell.algorithm_options,
        num_ranks=cell.num_ranks,
        global_batch=cell.global_batch,
        precision=cell.precision,
        data=cell.data,
        target=_without_rates(cell.target.model_dump(mode="json", exclude_none=True)) if cell.target else {},
    )


def _without_rates(fields: dict[str, Any]) -> dict[str, Any]:
    """A target, or a part of it, without its rates, how long trainings may take, and when they are looked at."""
    return {
        name: _without_rates(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if name != "tuning" and not name.endswith("_rate") and not name.startswith(("max_", "evaluate_"))
    }


def _flat(configuration: RateConfiguration) -> dict[str, Any]:
    own = configuration.model_dump(exclude={"target", "algorithm_options", "backend_options"})
    options = configuration.algorithm_options | configuration.backend_options
    return own | options | configuration.target
