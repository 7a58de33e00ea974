"""`--grid`: predictions for other links, latencies, noise and batches, as a table and as a page with sliders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.progress import track

from dlscale.analysis.predict.grid import AXES, GRID, WHAT_IF, Axes, check_grid, grid_rows, read_axes, to_csv
from dlscale.analysis.predict.prediction import Situation
from dlscale.base.files import make_folder, write_atomically


class Grid(click.ParamType[Axes]):
    """Axes of a grid: link_rate=0.5|1|2,batch=32|128."""

    name = "axes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Axes:
        """The axes; malformed ones are a one-line error."""
        if isinstance(value, Axes):
            return value
        try:
            return read_axes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


grid_option = click.option(
    "--grid",
    type=Grid(),
    is_flag=False,
    flag_value="",
    help=f"Also predict what if: a table and a page with sliders. Axes are {', '.join(AXES)}, with usual values or "
    "yours beside 1 and your batch: link_rate=0.5|2,batch=32|128; the first three are factors.",
)


def put_grid(axes: Axes, situations: Sequence[Situation], sizes: Sequence[int], stem: Path) -> None:
    """Write the table and the page beside the prediction's files, with progress. Raises UsageError."""
    from dlscale.analysis.render.html.what_if import write_what_if  # takes longer to import than a prediction

    count = check_grid(axes, situations, sizes)
    engine = situations[0].engine
    click.echo(f"what if: {count:,} points by {engine.name} {engine.version}", err=True)
    rows = list(
        track(grid_rows(axes, situations, sorted(sizes)), total=count, description="what if", transient=True)
    )
    make_folder(stem.parent)
    table, page = Path(f"{stem}{GRID}"), Path(f"{stem}{WHAT_IF}")
    write_atomically(table, to_csv(rows), mode=0o644)
    write_what_if(rows, page, asked_batch=situations[0].batch, grid_name=table.name)
    click.echo(f"what if: {page}, {table.name}")
