"""The gates and audits that a case's record must have, by name: a record that lacks one is no good record.

The list has a version, which a launch writes into its records. Those of before there was one are read as they are.
"""

from __future__ import annotations

from typing import Final

from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.capabilities import capabilities
from dlscale.collectives.sharding import NONE

GATES_VERSION: Final = 2

REPLAY_AUDITS = ("audit_step", "audit_scale", "audit_batches", "audit_samples", "audit_loss", "audit_window")
SERVER_AUDITS = (*REPLAY_AUDITS, "audit_movement", "audit_count")
TARGET_AUDITS = ("audit_held_out", "audit_evaluation")


def required_gates(cell: Cell, *, diverged: bool = False) -> tuple[str, ...]:
    """The names, of a case of that cell which ran to its end; `diverged`: its weights are no numbers."""
    row = capabilities(cell.backend)
    in_rounds = cell.algorithm != SYNC and not row.servers
    update = ("round" if in_rounds else "gradient", *(["broadcast"] if row.exchanges else []))
    sharding = ("sharding",) if cell.shard != NONE else ()
    split = ("split", "split_precision") if cell.split > 1 and row.exchanges else ()
    names = (*update, *sharding, *split)
    if cell.control == "loader":
        return (*names, "loader")
    if cell.control == "exchange":
        return (*names, "exchange", "exchange_bytes")
    if cell.control == "halos":
        return (*names, "halos")
    if cell.control == "profile":
        return (*names, "profile_bytes", "finite_loss")
    if cell.target and diverged:
        return names
    audits = SERVER_AUDITS if row.servers else REPLAY_AUDITS
    names = (*names, "finite_loss", *audits, *(TARGET_AUDITS if cell.target else ()))
    return (*names, *(["identity"] if row.exchanges else []))


def missing_gates(record: Record) -> list[str]:
    """The names of those that a record ought to have and has not, in order; none of a record without a list."""
    if record.gates_version is None or record.failure is not None:
        return []
    diverged = record.solution is not None and record.solution.end == "diverged"
    found = {gate.name for gate in record.gates}
    names = required_gates(record.case.cell, diverged=diverged)
    return [name for name in names if name not in found]
