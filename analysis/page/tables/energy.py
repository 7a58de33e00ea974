"""What a sample takes in joules, and what counted them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlscale.analysis.energy import Energy
from dlscale.analysis.energy_table import LEGEND, WORDS
from dlscale.analysis.family import family_of
from dlscale.analysis.page.model import Column, Row, Table, Text, Value
from dlscale.analysis.page.series import tags_of
from dlscale.analysis.page.tables.cells import TRAINING, flat, of_interval, of_number, training, trimmed
from dlscale.analysis.page.tables.numbers import label
from dlscale.analysis.page.words import listed, plural
from dlscale.analysis.rows import to_energy_row
from dlscale.analysis.words import rate
from dlscale.benchmarks.record import Record

Key = tuple[str, str, str]  # system, cell, kind of evidence
COLUMNS = (
    *TRAINING,
    Column(label="backend", numeric=False),
    Column(label="ranks"),
    Column(label="energy", unit="J per sample"),
    Column(label="power", unit="W"),
    Column(label="counted", numeric=False),
    Column(label="parts", unit="of a node", numeric=False),
    Column(label="launches"),
)


def energy_table(found: Iterable[Energy], records: Iterable[Record]) -> Table | None:
    """One row per training whose energy is known; None where none is. `records` say which parts were counted."""
    parts = _parts(records)
    rows = tuple(_row(one, parts.get(_key(one), {})) for one in found if one.joules_per_sample)
    table = Table(name="energy", caption="Energy per sample", columns=COLUMNS, rows=rows, legend=LEGEND)
    return trimmed(table) if rows else None


def unknown_energy(found: Sequence[Energy]) -> Text | None:
    """Why energy is not known, and of how many trainings; None where it is known of all."""
    reasons = [one.reason for one in found if not one.joules_per_sample]
    if not reasons:
        return None
    whose = "" if len(reasons) == len(found) else f" of {plural(len(reasons), 'cell')} of {len(found)}"
    return Text(text=f"Energy per sample{whose} is not known: {listed(list(dict.fromkeys(reasons)))}.")


def _row(one: Energy, parts: dict[str, set[str]]) -> Row:
    counted = "; ".join(" | ".join(sorted(parts[source])) for source in one.sources if parts.get(source))
    return Row(
        values=(
            *training(family_of(one.cell, system=one.system)),
            label(one.cell, one.evidence),
            of_number(one.cell.num_ranks),
            of_interval(one.joules_per_sample, rate),
            of_number(one.watts, ".0f"),
            Value(text=", ".join(WORDS[source] for source in one.sources)),
            Value(text=counted),
            of_number(one.num_launches),
        ),
        data={**flat(to_energy_row(one)), "parts": counted},
        tags=tags_of(one.cell),
    )


def _key(one: Energy) -> Key:
    return one.system, one.cell.id, one.evidence


def _parts(records: Iterable[Record]) -> dict[Key, dict[str, set[str]]]:
    """Of each training and source the parts of a node that it counts; several where nodes differ."""
    found: dict[Key, dict[str, set[str]]] = {}
    for record in records:
        for reading in record.energy:
            if reading.source and reading.joules is not None and reading.parts:
                key = (record.system, record.case.cell.id, record.evidence)
                found.setdefault(key, {}).setdefault(reading.source, set()).add(reading.parts)
    return found
