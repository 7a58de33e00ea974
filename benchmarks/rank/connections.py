"""What a rank of a launch is connected to: its backend and, where ranks share samples, its replica's other ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dlscale.benchmarks.rank.observers import GatherMeter, HaloMeter
from dlscale.benchmarks.records.cell import Cell
from dlscale.collectives import Backend
from dlscale.collectives.job import ServerSplit
from dlscale.collectives.neighbours import carrier_of, connect_neighbours
from dlscale.collectives.neighbours.carried import CarriedNeighbours
from dlscale.collectives.neighbours.gathering import AbsentNeighbours, over_control
from dlscale.collectives.registry import connect
from dlscale.collectives.sharding import NONE
from dlscale.models.parallel import Neighbours
from dlscale.models.workload import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """A rank's backend and neighbours, and what is counted of them."""

    backend: Backend
    neighbours: CarriedNeighbours | None  # None: samples are whole, or nobody exchanges rows
    beside: Neighbours | None  # the same ranks over the control plane, whom references ask
    shard: Shard
    gathers: GatherMeter | None  # of sharded weights
    halos: HaloMeter | None

    def close(self) -> None:
        """Leave them; collective."""
        if self.neighbours:
            self.neighbours.close()
        self.backend.close()


def connections(cell: Cell, *, control: Any, job: ServerSplit | None) -> Connections:
    """Those of a cell's ranks; collective. Raises UsageError where nothing carries what it asks for."""
    backend = connect(
        cell.backend,
        control=control,
        framework=cell.framework,
        options=cell.backend_options,
        job=job,
        algorithm=cell.algorithm,
        algorithm_options=cell.algorithm_options,
        shard=cell.shard,
    )
    neighbours: CarriedNeighbours | None = None
    asked: Neighbours | None = None
    beside: Neighbours | None = None
    replica, index = divmod(control.Get_rank(), cell.split)
    if cell.split > 1 and not backend.capabilities.exchanges:
        tensors = cell.device == "gpu" and cell.framework == "torch"
        asked = beside = AbsentNeighbours(index=index, split=cell.split, takes_tensors=tensors)
    elif cell.split > 1:
        carrier = carrier_of(cell.backend, framework=cell.framework, halo=cell.halo)
        options = cell.backend_options if carrier == cell.backend else {}
        asked = neighbours = connect_neighbours(carrier, control=control, split=cell.split, options=options)
        beside = over_control(control, split=cell.split)
    return Connections(
        backend=backend,
        neighbours=neighbours,
        beside=beside,
        shard=Shard(index=replica, count=max(1, control.Get_size() // cell.split), neighbours=asked),
        gathers=GatherMeter(backend) if cell.shard != NONE else None,
        halos=HaloMeter(neighbours) if neighbours else None,
    )
