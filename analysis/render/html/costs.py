"""The page's tables of costs: start of a launch, checkpoints, energy per sample, lines of code per backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlscale.analysis.families import family_of
from dlscale.analysis.findings import checkpoints, productivity, startup
from dlscale.analysis.findings.checkpoints import Saving, to_saving_row
from dlscale.analysis.findings.energy import ENERGY_LEGEND, ENERGY_WORDS, Energy, to_energy_row
from dlscale.analysis.findings.productivity import Change, to_productivity_row
from dlscale.analysis.findings.startup import PHASES, StartUp, to_start_up_row
from dlscale.analysis.render.html.labels import listed, milliseconds_text, plural, tags_of, workload_title
from dlscale.analysis.render.html.model import Column, Row, Sentence, Table, Tags, Value
from dlscale.analysis.render.html.tables import (
    NOTHING,
    TRAINING,
    flat,
    label,
    of_interval,
    of_number,
    training,
    trimmed,
)
from dlscale.analysis.render.text import rate
from dlscale.benchmarks.records.record import Record

PHASE_NAMES = {
    "start_up": "start",
    "import_backend": "import",
    "connect": "connect",
    "gates": "gates",
    "first_step": "first step",
}
START_COLUMNS = (
    Column(label="framework", numeric=False),
    Column(label="backend", numeric=False),
    Column(label="ranks"),
    *(Column(label=PHASE_NAMES.get(phase, phase), unit="s") for phase in PHASES),
    Column(label="sum", unit="s"),
    Column(label="launches"),
)
SAVING_COLUMNS = (
    Column(label="workload", numeric=False),
    Column(label="framework", numeric=False),
    Column(label="backend", numeric=False),
    Column(label="ranks"),
    Column(label="saved"),
    Column(label="size", unit="MB"),
    Column(label="time each", unit="s"),
    Column(label="share", unit="%"),
    Column(label="restarts"),
    Column(label="lost steps"),
    Column(label="launches"),
)
PRODUCTIVITY_COLUMNS = (
    Column(label="framework", numeric=False),
    Column(label="backend", numeric=False),
    Column(label="added", unit="lines"),
    Column(label="changed", unit="lines"),
    Column(label="removed", unit="lines"),
    Column(label="script", numeric=False),
)


def start_table(found: Iterable[StartUp]) -> Table | None:
    """None without launches."""
    rows = tuple(_start(one) for one in found)
    caption = "What a launch costs before it trains"
    table = Table(
        name="starts", caption=caption, columns=START_COLUMNS, rows=rows, legend=startup.STARTUP_LEGEND
    )
    return table if rows else None


def saving_table(found: Iterable[Saving]) -> Table | None:
    """None where nothing was saved."""
    rows = tuple(_saving(one) for one in found)
    caption = "What saving the trainings cost"
    table = Table(
        name="checkpoints",
        caption=caption,
        columns=SAVING_COLUMNS,
        rows=rows,
        legend=checkpoints.CHECKPOINT_LEGEND,
    )
    return table if rows else None


def script_changes_table(changes: Iterable[Change]) -> Table | None:
    """None where no script is known."""
    rows = tuple(_change(one) for one in changes)
    table = Table(
        name="productivity",
        caption="Lines to make a single-process script distributed",
        columns=PRODUCTIVITY_COLUMNS,
        rows=rows,
        legend=productivity.PRODUCTIVITY_LEGEND,
    )
    return table if rows else None


def _start(one: StartUp) -> Row:
    seconds = [one.seconds[phase] for phase in PHASES]
    known = [value for value in seconds if value is not None]
    return Row(
        values=(
            Value(text=one.framework),
            Value(text=one.backend + (f" + {one.num_servers} servers" if one.num_servers else "")),
            of_number(one.num_ranks),
            *(of_number(value, ".2f") for value in seconds),
            of_number(sum(known) if len(known) == len(seconds) else None, ".2f"),
            of_number(one.num_launches),
        ),
        data=flat(to_start_up_row(one)),
        tags=Tags(framework=one.framework, backend=one.backend),
    )


def _saving(one: Saving) -> Row:
    return Row(
        values=(
            Value(text=workload_title(one.workload)),
            Value(text=one.framework),
            Value(text=one.backend),
            of_number(one.num_ranks),
            of_number(one.num_checkpoints),
            of_number(one.num_bytes and one.num_bytes / 1e6, ".1f"),
            of_interval(one.seconds, milliseconds_text),
            NOTHING if one.share is None else Value(text=f"{100 * one.share:.2f}", order=one.share),
            of_number(one.num_restarts),
            of_number(one.num_lost_steps),
            of_number(one.num_launches),
        ),
        data=flat(to_saving_row(one)),
        tags=Tags(workload=one.workload, framework=one.framework, backend=one.backend),
    )


def _change(one: Change) -> Row:
    counts = (one.added, one.changed, one.removed)
    return Row(
        values=(
            Value(text=one.framework),
            Value(text=one.backend),
            *(of_number(count) for count in counts),
            Value(text=one.script),
        ),
        data=flat(to_productivity_row(one)),
        tags=Tags(framework=one.framework, backend=one.backend),
    )


Key = tuple[str, str, str]  # system, cell, kind of evidence
ENERGY_COLUMNS = (
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
    parts = _energy_parts(records)
    rows = tuple(_energy_row(one, parts.get(_energy_key(one), {})) for one in found if one.joules_per_sample)
    table = Table(
        name="energy", caption="Energy per sample", columns=ENERGY_COLUMNS, rows=rows, legend=ENERGY_LEGEND
    )
    return trimmed(table) if rows else None


def unknown_energy(found: Sequence[Energy]) -> Sentence | None:
    """Why energy is not known, and of how many trainings; None where it is known of all."""
    reasons = [one.reason for one in found if not one.joules_per_sample]
    if not reasons:
        return None
    whose = "" if len(reasons) == len(found) else f" of {plural(len(reasons), 'cell')} of {len(found)}"
    return Sentence(text=f"Energy per sample{whose} is not known: {listed(list(dict.fromkeys(reasons)))}.")


def _energy_row(one: Energy, parts: dict[str, set[str]]) -> Row:
    counted = "; ".join(" | ".join(sorted(parts[source])) for source in one.sources if parts.get(source))
    return Row(
        values=(
            *training(family_of(one.cell, system=one.system)),
            label(one.cell, one.evidence),
            of_number(one.cell.num_ranks),
            of_interval(one.joules_per_sample, rate),
            of_number(one.watts, ".0f"),
            Value(text=", ".join(ENERGY_WORDS[source] for source in one.sources)),
            Value(text=counted),
            of_number(one.num_launches),
        ),
        data={**flat(to_energy_row(one)), "parts": counted},
        tags=tags_of(one.cell),
    )


def _energy_key(one: Energy) -> Key:
    return one.system, one.cell.id, one.evidence


def _energy_parts(records: Iterable[Record]) -> dict[Key, dict[str, set[str]]]:
    """Of each training and source the parts of a node that it counts; several where nodes differ."""
    found: dict[Key, dict[str, set[str]]] = {}
    for record in records:
        for reading in record.energy:
            if reading.source and reading.joules is not None and reading.parts:
                key = (record.system, record.case.cell.id, record.evidence)
                found.setdefault(key, {}).setdefault(reading.source, set()).add(reading.parts)
    return found
