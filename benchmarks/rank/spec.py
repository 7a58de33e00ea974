"""What a launch is to do, as the supervisor writes it, and what its cases train and read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import PositiveFloat

from dlscale.base.definitions import Frozen
from dlscale.base.strings import Text
from dlscale.benchmarks.records.cell import SHORT_CONTROLS, Case, Cell
from dlscale.benchmarks.study.rules import SHORT_CONTROL_SECONDS, Rules
from dlscale.models.own import OwnWorkload
from dlscale.models.own.model import FilePlace
from dlscale.models.workload import Execution, Input, ReplicaFactory, Workload


class LaunchSpec(Frozen):
    """What a launch is to do. All cases have the same backend, ranks and servers; the first decides them.

    `patient`: who waits at a barrier sleeps, because there are more ranks than cores.
    """

    cases: list[Case]
    rules: Rules
    launched_at: float  # of the monotonic clock of the machine `boot_id`, which nobody sets
    boot_id: Text = ""
    seconds: PositiveFloat  # wall time that the launch may take
    budgeted: bool = False  # windows are added while it lasts; else there are as few as the rules allow
    data: Text | None  # path of the input; None where every case is synthetic
    checkpoints: Text | None = None  # the study's folder of them, where trainings have any
    own: FilePlace | None = None  # the study's copy of the user's file, where the workload is one
    skip_bad: bool = False
    patient: bool = False
    seed: int

    def checkpoints_of(self, case: Case) -> Path | None:
        """Where that case's are; None where it has none: only what is trained is saved."""
        if self.checkpoints is None or case.cell.control != "train":
            return None
        return Path(self.checkpoints) / case.id

    def share(self, index: int, seconds: float) -> float:
        """What case number `index` may have of the time that is left for it and those after it."""
        cases = self.cases[index:]
        sharing = sum(case.cell.control not in SHORT_CONTROLS for case in cases)
        return (seconds - SHORT_CONTROL_SECONDS * (len(cases) - sharing)) / max(1, sharing)

    def facts(self, cell: Cell) -> Workload:
        """The workload of a cell; that of a user's file with the study's copy."""
        facts = cell.facts
        return facts.at(self.own) if isinstance(facts, OwnWorkload) and self.own else facts

    def source(self, cell: Cell) -> Input:
        if "synthetic" in (cell.control, cell.data):
            return Input()
        source = Input(path=Path(cell.own.file if cell.own else str(self.data)), skip_bad=self.skip_bad)
        if cell.target is None:
            return source
        return replace(source, held_out=cell.target.held_out, order=self.seed)

    def factory(self, cell: Cell) -> ReplicaFactory:
        """What builds a cell's replicas."""
        return self.facts(cell).factory(
            framework=cell.framework,
            preset=cell.preset,
            local_batch=cell.local_batch,
            source=self.source(cell),
            execution=Execution(
                precision=cell.precision,
                compiled=cell.compiled,
                device=cell.device,
                learning_rate=cell.target.learning_rate if cell.target else None,
                optimizer=cell.target.optimizer if cell.target else None,
            ),
        )

    def reference_factory(self, cell: Cell) -> ReplicaFactory:
        """Replicas for audits: where eager ones round alike not compiled, to see what a compiler makes wrong.

        None does by XLA, nor in bfloat16: what a compiler fuses it does not round in between.
        """
        alike = cell.framework == "torch" and cell.precision != "bf16"
        return self.factory(cell.model_copy(update={"compiled": cell.compiled and not alike}))
