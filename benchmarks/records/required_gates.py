"""The gates and audits that a case's record must have, by name: a record that lacks one is no good record.

The list has a version, which a launch writes into its records. Those of before there was one are read as they are.
"""

from __future__ import annotations

from typing import Final

from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record
from dlscale.collectives.capabilities import capabilities

GATES_VERSION: Final = 3

REPLAY_AUDITS = ("audit_step", "audit_scale", "audit_window", "audit_samples")
SERVER_AUDITS = (*REPLAY_AUDITS, "audit_count")
TARGET_AUDITS = ("audit_held_out", "audit_evaluation")


# What a control checks instead of a training.
OF_CONTROLS = {
    "loader": ("loader",),
    "exchange": ("exchange", "exchange_bytes"),
    "halos": (),
    "profile": ("finite_loss",),
}


def required_gates(cell: Cell, *, diverged: bool = False) -> tuple[str, ...]:
    """The names, of a case of that cell which ran to its end; `diverged`: its weights are no numbers."""
    row = capabilities(cell.backend)
    names = ["control", "gradient", *(["broadcast"] if row.exchanges else [])]
    names += ["split", "split_precision"] if cell.split > 1 and row.exchanges else []
    if cell.control in OF_CONTROLS:
        return (*names, *OF_CONTROLS[cell.control])
    if cell.target and diverged:
        return tuple(names)
    names += ["finite_loss", *(SERVER_AUDITS if row.servers else REPLAY_AUDITS)]
    names += TARGET_AUDITS if cell.target else ()
    return (*names, *(["identity"] if row.exchanges else []))


def missing_gates(record: Record) -> list[str]:
    """The names of those that a record ought to have and has not, in order; none where its list is an older one."""
    if record.gates_version != GATES_VERSION or record.failure is not None:
        return []
    diverged = record.solution is not None and record.solution.end == "diverged"
    present = {gate.name for gate in record.gates}
    return [name for name in required_gates(record.case.cell, diverged=diverged) if name not in present]
