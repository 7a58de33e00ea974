"""What gave no number, and what lies beside the records and is none."""

from __future__ import annotations

from collections.abc import Iterable

from dlscale.analysis.frame import why_unusable
from dlscale.analysis.page.model import Column, Row, Table, Value
from dlscale.analysis.page.series import tags_of
from dlscale.analysis.page.tables.cells import of_number
from dlscale.analysis.page.words import CONTROLS, workload_title
from dlscale.analysis.words import backend_name
from dlscale.benchmarks.record import Record
from dlscale.benchmarks.record_files import BadFile

COLUMNS = (
    Column(label="workload", numeric=False),
    Column(label="framework", numeric=False),
    Column(label="backend", numeric=False),
    Column(label="ranks"),
    Column(label="block"),
    Column(label="attempt"),
    Column(label="node", numeric=False),
    Column(label="why", numeric=False),
)
FILE_COLUMNS = (Column(label="file", numeric=False), Column(label="why", numeric=False))


def failure_table(failures: Iterable[Record]) -> Table | None:
    """All attempts that gave no number; None without any."""
    rows = tuple(_row(record) for record in failures)
    table = Table(name="failures", caption="Launches that gave no number", columns=COLUMNS, rows=rows)
    return table if rows else None


def file_table(bad_files: Iterable[BadFile]) -> Table | None:
    """Files that are no sound records; None without any."""
    rows = tuple(
        Row(
            values=(Value(text=bad.path.name), Value(text=bad.reason)),
            data={"file": bad.path.name, "why": bad.reason},
        )
        for bad in bad_files
    )
    table = Table(name="files", caption="Files that were left out", columns=FILE_COLUMNS, rows=rows)
    return table if rows else None


def _row(record: Record) -> Row:
    cell = record.case.cell
    rank = record.failure.rank if record.failure else None
    node = next((facts.node for facts in record.ranks if facts.rank == rank), "")
    reason = why_unusable(record) or ""
    name = ", ".join(filter(None, (backend_name(cell), CONTROLS.get(cell.control, ""))))
    return Row(
        values=(
            Value(text=workload_title(cell.workload)),
            Value(text=cell.framework),
            Value(text=name),
            of_number(cell.num_ranks),
            of_number(record.case.block),
            of_number(record.attempt),
            Value(text=node or "-"),
            Value(text=reason),
        ),
        data={
            "case": record.case.id,
            "workload": cell.workload,
            "framework": cell.framework,
            "backend": backend_name(cell),
            "control": cell.control,
            "num_ranks": cell.num_ranks,
            "block": record.case.block,
            "attempt": record.attempt,
            "rank": rank,
            "node": node,
            "kind": record.failure.kind if record.failure else None,
            "why": reason,
        },
        tags=tags_of(cell),
    )
