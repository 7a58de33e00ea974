"""What launches cost before they train, what saving costs, and what each backend asks of a script."""

from __future__ import annotations

from collections.abc import Iterable

from dlscale.analysis import checkpoints, productivity_table, startup
from dlscale.analysis.checkpoints import Saving
from dlscale.analysis.page.model import Column, Row, Table, Value
from dlscale.analysis.page.plot_model import Tags
from dlscale.analysis.page.tables.cells import NOTHING, flat, of_interval, of_number
from dlscale.analysis.page.words import milliseconds, workload_title
from dlscale.analysis.productivity import Change
from dlscale.analysis.rows import to_productivity_row, to_saving_row, to_start_up_row
from dlscale.analysis.startup import PHASES, StartUp

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
    table = Table(name="starts", caption=caption, columns=START_COLUMNS, rows=rows, legend=startup.LEGEND)
    return table if rows else None


def saving_table(found: Iterable[Saving]) -> Table | None:
    """None where nothing was saved."""
    rows = tuple(_saving(one) for one in found)
    caption = "What saving the trainings cost"
    table = Table(
        name="checkpoints", caption=caption, columns=SAVING_COLUMNS, rows=rows, legend=checkpoints.LEGEND
    )
    return table if rows else None


def productivity(changes: Iterable[Change]) -> Table | None:
    """None where no script is known."""
    rows = tuple(_change(one) for one in changes)
    table = Table(
        name="productivity",
        caption="Lines to make a single-process script distributed",
        columns=PRODUCTIVITY_COLUMNS,
        rows=rows,
        legend=productivity_table.LEGEND,
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
            of_interval(one.seconds, milliseconds),
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
