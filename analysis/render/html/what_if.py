"""What moves a prediction: sliders over a grid of predictions, curves with bands, and where the step goes.

It stands on a page of its own, and on the report of a study beside which the prediction is shown.

It is made from the rows of a grid alone (`dlscale predict --grid`), so that its table and its page cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dlscale.analysis.findings.waterfall_parts import BATCH, STRAGGLERS, WAITING, shown_name
from dlscale.analysis.render.html.content import Slider, WhatIf
from dlscale.analysis.render.html.document import environment, own, policy
from dlscale.analysis.render.theme import looks_for
from dlscale.analysis.text import number
from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.benchmarks.records.prediction import FACTORS, LOSS

TEMPLATE, STYLES, SCRIPT = "what_if.html.j2", ("page.css", "what_if.css"), "what_if.js"
AXES = (
    *(f"{name}_factor" for name in FACTORS),
    "batch",
    "num_nodes",
)  # in the order of the rows, nodes fastest
DIGITS = 5
KEPT = "#7a8794"
LOSS_COLORS = {WAITING: "#D55E00", STRAGGLERS: "#E69F00", BATCH: "#CC79A7"}

Row = Mapping[str, Any]


def write_what_if(rows: Sequence[Row], path: Path, *, asked_batch: int, grid_name: str) -> None:
    """Write the page of these rows atomically. Raises UsageError if it cannot be written, or rows are missing."""
    write_atomically(path, what_if(rows, asked_batch=asked_batch, grid_name=grid_name), mode=0o644)


def what_if(rows: Sequence[Row], *, asked_batch: int, grid_name: str) -> str:
    """The page as HTML. `asked_batch` is the prediction's own, as factors of 1 are."""
    block, first = what_if_block(rows, asked_batch=asked_batch, grid_name=grid_name), rows[0]
    style, script = "\n".join(map(own, STYLES)), own(SCRIPT)
    return environment().get_template(TEMPLATE).render(
        block=block,
        table=_table(rows, {"batch": asked_batch}),
        origin=f"{first['framework']}, {first['ranks_per_node']} ranks per node, seed {first['seed']}.",
        policy=policy(style, [script]),
        # Our own content, which must not be escaped.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
    )  # fmt: skip


def what_if_block(rows: Sequence[Row], *, asked_batch: int, grid_name: str) -> WhatIf:
    """The sliders and what they move. Raises UsageError if rows are missing."""
    first = rows[0]
    values = {name: sorted({row[name] for row in rows}) for name in AXES}
    asked = [_asked(name, asked_batch, values) for name in AXES]
    backends = list(dict.fromkeys(_name(row) for row in rows))
    groups = {name: _whole([row for row in rows if _name(row) == name], values, name) for name in backends}
    return WhatIf(
        title=f"{first['workload']} {first['preset']}, {first['scaling_mode']} scaling on {first['system']}: what if?",
        evidence=f"simulated by {first['engine']} {first['engine_version']}, {first['num_replicates']} replicates a "
        "point; nothing of it was run",
        sliders=tuple(
            Slider(name=name, label=_LABELS[name], count=len(values[name]), asked=place)
            for name, place in zip(AXES, asked, strict=True)
        ),
        data=_data(groups, values, asked),
        origin=f"Between the values of the sliders nothing is interpolated; all {len(rows):,} points, as a table: "
        f"{grid_name}.",
    )


_LABELS = {
    "link_rate_factor": "links",
    "latency_factor": "latency",
    "jitter_factor": "noise of steps and messages",
    "batch": "batch",
    "num_nodes": "nodes",
}


def _data(
    groups: Mapping[str, Sequence[Row]], values: Mapping[str, list[Any]], asked: list[int]
) -> dict[str, Any]:
    first = next(iter(groups.values()))
    looks = looks_for({name: rows[0]["backend"] for name, rows in groups.items()})
    losses = [column for column in first[0] if column.endswith(LOSS)]
    called = {column: shown_name(column.removesuffix(LOSS).replace("_", " ")) for column in losses}
    return {
        "axes": [
            {"name": name, "labels": [_label(name, value, first) for value in values[name]]} for name in AXES
        ],
        "asked": asked,
        "kept": KEPT,
        "losses": [{"name": name, "color": LOSS_COLORS.get(name, "#999999")} for name in called.values()],
        "backends": [
            {
                "name": name,
                "color": looks[name].color,
                "efficiency": _column(rows, "efficiency"),
                "low": _column(rows, "efficiency_low"),
                "high": _column(rows, "efficiency_high"),
                "rate": _column(rows, "samples_per_second"),
                "losses": {called[column]: _column(rows, column) for column in losses},
            }
            for name, rows in groups.items()
        ],
    }


def _column(rows: Sequence[Row], name: str) -> list[float]:
    return [float(f"{row[name]:.{DIGITS}g}") for row in rows]


def _whole(rows: list[Row], values: Mapping[str, list[Any]], name: str) -> list[Row]:
    """The rows in the order of the axes. Raises UsageError if a combination is missing or there twice."""
    ordered = sorted(rows, key=lambda row: tuple(row[axis] for axis in AXES))
    wanted = 1
    for axis in AXES:
        wanted *= len(values[axis])
    if len({tuple(row[axis] for axis in AXES) for row in rows}) != wanted or len(rows) != wanted:
        raise UsageError(
            f"the grid has {len(rows)} points of {name}, and {wanted} combinations of its axes; write it again: "
            "dlscale predict --grid"
        )
    return ordered


def _asked(name: str, batch: int, values: Mapping[str, list[Any]]) -> int:
    """Where the value is that the prediction itself has: of nodes the most. Raises UsageError if there is none."""
    value = {"batch": batch, "num_nodes": values["num_nodes"][-1]}.get(name, 1)
    if value not in values[name]:
        raise UsageError(
            f"the grid has no {name} {value}, which the prediction has; write it again: dlscale predict --grid"
        )
    return values[name].index(value)


def _label(name: str, value: float, rows: Sequence[Row]) -> str:
    if name == "link_rate_factor":
        rate = next(row["link_bytes_per_second"] for row in rows if row[name] == value)
        return f"{value:g} x, {number(rate / 1e9)} GB/s"
    if name == "latency_factor":
        seconds = next(row["latency_seconds"] for row in rows if row[name] == value)
        return f"{value:g} x, {number(1e6 * seconds)} us"
    if name == "jitter_factor":
        return f"{value:g} x"
    if name == "batch":
        return f"{value} samples per {'rank' if rows[0]['scaling_mode'] == 'weak' else 'step'}"
    return str(value)


def _name(row: Row) -> str:
    options = row["backend_options"]
    return f"{row['backend']} ({options})" if options else str(row["backend"])


def _table(rows: Sequence[Row], asked: Mapping[str, float]) -> list[dict[str, str]]:
    """The rows as the prediction was asked for, with factors of 1: one per backend and number of nodes."""
    at = {**dict.fromkeys(AXES[:3], 1.0), **asked}
    return [
        {
            "backend": _name(row),
            "nodes": f"{row['num_nodes']:,}",
            "ranks": f"{row['num_ranks']:,}",
            "rate": number(row["samples_per_second"]),
            **{
                column: f"{100 * row[key]:.1f}"
                for column, key in (
                    ("efficiency", "efficiency"),
                    ("low", "efficiency_low"),
                    ("high", "efficiency_high"),
                )
            },
        }
        for row in rows
        if all(row[axis] == value for axis, value in at.items())
    ]
