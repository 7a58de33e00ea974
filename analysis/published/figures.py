"""Published figures: panels of what is public, what is predicted and what is ours, each mostly plot.

Published values are strokes, predictions lines in a band, points of ours filled marks (white inside where emulated); no
line joins two kinds. A figure is drawn if three values or more are public, or there is a prediction or a point of
ours; what is only words stays in the table of claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D

from dlscale.analysis import theme
from dlscale.analysis.load import Study
from dlscale.analysis.published.catalogue import RATIOS, Figure, Panel, Published, select
from dlscale.analysis.published.checks import own_points
from dlscale.analysis.published.values import HALF_WIDTH, PLACES, factor
from dlscale.analysis.render.figures import NO_DATE
from dlscale.analysis.render.text import as_csv
from dlscale.base.files import make_folder

MIN_VALUES = 3  # for a curve to be drawn for its published values alone
STROKES = ("x", "+", "1", "2", "3", "4")  # marks of published series
WIDTH, HEIGHT, ROW = 3.5, 2.3, 0.34  # inches of a panel, and of a row of one
LEFT, BOTTOM, RIGHT, GAP = 0.72, 0.62, 0.12, 0.75  # inches, around panels and between them
CLOSE = 1.6  # ticks of a logarithmic axis that are nearer than this factor overlap
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "published": ("published", {"marker": "x", "markersize": 7, "linestyle": "none"}),
    "simulated": ("simulated, 5 to 95 %", {"linestyle": "--"}),
    "measured": ("measured", {"marker": "o", "linestyle": "none"}),
    "emulated": ("emulated", {"marker": "o", "markerfacecolor": "white", "linestyle": "none"}),
}
Looks = dict[str, tuple[str, str, str]]  # series -> colour, mark and stroke
Panels = list[tuple[Panel, pd.DataFrame]]
NUMBERS = ["y", "low", "high"]
COLUMNS = [
    *("figure", "panel", "evidence", "series", "system", "backend", "x", "x_high", "x_unit", "quantity"),
    *("y", "low", "high", "y_unit", "kind", "source", "note"),
]


def panels_of(
    published: Published,
    figure: Figure,
    predicted: pd.DataFrame,
    studies: Sequence[Study] = (),
    stand_in: str | None = None,
) -> Panels:
    """The panels that are drawn, each with its rows in the panel's unit: published, predicted, measured."""
    found = []
    for index, panel in enumerate(figure.panels):
        curves = select(predicted, figure=figure.id, panel=index)
        sources = "claims/" + curves["publication"] + ".toml"
        parts = [_public(published, figure, panel), curves.assign(evidence="simulated", source=sources)]
        if panel.reference:
            parts = [published.measured_for(figure, panel)]
        elif figure.own:
            points = own_points(figure, figure.own.narrowed(panel.own), panel.layout, studies, stand_in)
            origins = [studies[at].origin for at in points["at"]]
            parts.append(points.rename(columns={"name": "series"}).assign(source=origins))
        rows = pd.concat([part.reindex(columns=COLUMNS).astype(object) for part in parts], ignore_index=True)
        rows = rows.assign(figure=figure.id, panel=panel.title or panel.layout, quantity=panel.layout)
        rows = rows.assign(x_unit=panel.x_unit or figure.x_unit, y_unit=panel.y_unit)
        rows = rows.astype(dict.fromkeys(["x", "x_high", *NUMBERS], float))
        rows[NUMBERS] /= factor(panel.layout, panel.y_unit)
        # Predicted rates lie on each other; the efficiencies beside them do not.
        beside = panel.layout == "throughput" and any(it.layout == "efficiency" for it in figure.panels)
        kinds = set(rows["evidence"])
        known = kinds - {"published"} and not (beside and kinds == {"simulated"})
        if known or _num_values(rows) >= MIN_VALUES:
            found.append((panel, rows))
    return found


def _public(published: Published, figure: Figure, panel: Panel) -> pd.DataFrame:
    """Published values of a panel, with the limits that are published, and what is said of places or ranges."""
    rows = select(published.values, figure=figure.id)
    rows = rows[rows["series"].isin(panel.series)] if panel.series else rows
    values = select(rows, quantity=panel.layout, statement="")
    widths = select(rows, quantity=panel.layout + HALF_WIDTH)[["series", "x", "y"]]
    half = values[["series", "x"]].merge(widths, on=["series", "x"], how="left")["y"].to_numpy()
    values = values.assign(low=values["y"] - half, high=values["y"] + half)
    places = PLACES if panel.layout in RATIOS else ("scaling_ends",)
    said = rows[rows["label"].ne("") & rows["quantity"].isin([panel.layout, *places]) & rows["x"].notna()]
    said = select(said, x_unit=figure.x_unit)
    found = pd.concat([values, said.assign(note=said["statement"])])
    named = [figure.label(series) for series in found["series"]]
    return found.assign(series=found["label"].where(_is_range(found), named), backend="")


def write_figures(
    drawn: Sequence[tuple[Figure, Panels]], folder: Path, *, paper: float | None = None
) -> list[Path]:
    """Draw figures into the folder, `<id>.png`, `.pdf`, `.svg` and `.csv`, and return the paths.

    `paper` is a printed width in inches: panels then stand below each other. Raises UsageError for a folder that cannot
    be written to.
    """
    theme.use()
    paths = []
    make_folder(folder, option="--out or --results")
    for figure, panels in drawn:
        picture, rows = draw(figure, panels, paper=paper), pd.concat([rows for _, rows in panels])
        for ending, no_date in NO_DATE.items():
            picture.savefig(folder / f"{figure.id}.{ending}", metadata=no_date, dpi=200)
        plt.close(picture)
        (folder / f"{figure.id}.csv").write_text(as_csv(rows), encoding="utf-8")
        paths += [folder / f"{figure.id}.{ending}" for ending in (*NO_DATE, "csv")]
    return paths


def draw(figure: Figure, panels: Panels, *, paper: float | None = None) -> Picture:
    """The panels side by side, below a title and one legend, with one line on sources below."""
    columns = 1 if paper else min(len(panels), 3)
    num_lines = -(-len(panels) // columns)
    rows = pd.concat([rows for _, rows in panels])
    looks = _looks(rows)
    handles = _handles(panels, rows, looks)
    width = paper or (4.8 if columns == 1 else WIDTH * columns)
    per_line = max(1, int((width - 0.1) / (0.053 * max(map(len, handles)) + 0.45)))
    top = 0.42 + 0.15 * -(-len(handles) // per_line) + 0.2 * any(panel.title for panel, _ in panels)
    tallest = max(ROW * len(set(_names(own))) + 0.3 if panel.bars else 0.0 for panel, own in panels)
    inner = max(HEIGHT, tallest)
    height = top + BOTTOM + num_lines * inner + (num_lines - 1) * GAP
    alike = len({(panel.layout, panel.y_unit, panel.bars) for panel, _ in panels}) == 1
    shared = alike and not panels[0][0].bars
    picture, places = plt.subplots(num_lines, columns, figsize=(width, height), squeeze=False, sharey=shared)
    # Fixed margins in inches: matplotlib's own layouts draw every figure twice.
    inside = (width - LEFT - RIGHT - (columns - 1) * GAP) / columns
    edges = (LEFT / width, BOTTOM / height, 1 - RIGHT / width, 1 - top / height)
    picture.subplots_adjust(*edges, wspace=GAP / inside, hspace=GAP / inner)
    for place in places.flat[len(panels) :]:
        place.set_visible(False)
    for (panel, own), axes in zip(panels, places.flat, strict=False):
        (_draw_rows if panel.bars else _draw_curves)(axes, figure, panel, own, looks)
        title = ": ".join(filter(None, ("measured here" if panel.reference else "", panel.title)))
        axes.set_title(title, fontsize=8, loc="left")
    only = "simulated" in set(rows["evidence"]) and _num_values(rows) < MIN_VALUES
    subtitle = figure.workload + "; simulated, published as a picture" * only
    others = rows.loc[rows["evidence"] != "published", ["evidence", "source"]].drop_duplicates()
    source = "; ".join([figure.publication, *(": ".join(it) for it in others.itertuples(index=False))])
    for y, size, text in (
        (height - 0.05, 9, figure.title),
        (height - 0.22, 6 if paper else 7, subtitle),
        (0.14, 5, source[: int(26 * width)]),
    ):
        bold = "bold" if size == 9 else "normal"
        picture.text(0.06 / width, y / height, text, fontsize=size, fontweight=bold, va="top")
    corner = (0.0, 1 - 0.32 / height)
    picture.legend(handles.values(), handles, loc="upper left", bbox_to_anchor=corner, ncols=per_line)
    return picture


def _handles(panels: Panels, rows: pd.DataFrame, looks: Looks) -> dict[str, Any]:
    """What the legend shows: series of curves, and kinds of evidence, in grey."""
    found: dict[str, Any] = {}
    shown = {name for panel, own in panels if not panel.bars for name in own["series"]}
    for name, own in rows[rows["series"].isin(shown)].groupby("series", sort=False):
        kinds = set(own["evidence"])
        style: dict[str, Any] = {"color": "#BBBBBB", "linewidth": 4}  # of a range
        if name in looks:
            line = "--" if "simulated" in kinds else "-." if own["x"].isna().all() else "none"
            style = {"linestyle": line, **_style(next(kind for kind in KINDS if kind in kinds), looks[name])}
        found[name] = Line2D([], [], **style)
    greys = [KINDS[kind] for kind in rows["evidence"].unique()]
    return found | {label: Line2D([], [], color="#666666", **look) for label, look in greys}


def _looks(rows: pd.DataFrame) -> Looks:
    """What is ours has its backend's look, what is published one that is left."""
    spare = [look for backend, look in theme.LOOKS.items() if backend not in set(rows["backend"])]
    looks: Looks = {}
    series = rows[~_is_range(rows)].sort_values("evidence", key=lambda it: it != "published", kind="stable")
    series = series.drop_duplicates("series")[["series", "backend"]]
    for (name, backend), stroke in zip(series.itertuples(index=False), cycle(STROKES), strict=False):
        look = theme.LOOKS.get(backend)
        if not look or look in {own[:2] for own in looks.values()}:
            look = spare.pop(0) if spare else theme.PLAIN
        looks[name] = (*look, stroke)
    return looks


def _num_values(rows: pd.DataFrame) -> int:
    """How many published values have a place of their own."""
    return int((rows["evidence"].eq("published") & ~_is_range(rows)).sum())


def _is_range(rows: pd.DataFrame) -> pd.Series:
    """Which rows are of a range of places; the others are points."""
    return rows["x_high"].notna() & (rows["x"] != rows["x_high"])


def _groups(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame, list[pd.Series]]]:
    """Name, evidence, rows and lengths of error bars of each series of one kind."""
    for (name, evidence), own in rows.groupby(["series", "evidence"], sort=False):
        own = own.sort_values("x", kind="stable")
        own = own.assign(y=own["y"].fillna((own["low"] + own["high"]) / 2))  # a range in words
        yield name, evidence, own, [(own["y"] - own["low"]).fillna(0), (own["high"] - own["y"]).fillna(0)]


def _style(evidence: str, look: tuple[str, str, str]) -> dict[str, Any]:
    color, mark, stroke = look
    style = {"color": color, "marker": "" if evidence == "simulated" else mark}
    if evidence == "published":
        return style | {"marker": stroke, "markersize": 7, "markeredgewidth": 1.5}
    return style | ({"markerfacecolor": "white"} if evidence == "emulated" else {})


def _draw_curves(axes: Axes, figure: Figure, panel: Panel, rows: pd.DataFrame, looks: Looks) -> None:
    """Each series over x; what is said of a range is an area."""
    points = rows[~_is_range(rows)]
    for name, evidence, own, errors in _groups(points):
        style = _style(evidence, looks[name])
        if own["x"].isna().all():  # the publication does not say where
            for y in own["y"]:
                axes.axhline(y, color=style["color"], linestyle="-.", linewidth=0.8)
        elif evidence == "simulated":
            axes.fill_between(
                own["x"], own["low"], own["high"], color=style["color"], alpha=0.13, linewidth=0
            )
            axes.plot(own["x"], own["y"], "--", **style)
        else:
            alike = len(own[["kind", "system"]].drop_duplicates()) == 1 and own["x"].is_unique
            joined = alike and (evidence == "published" or panel.reference)
            line = "none" if not joined else ":" if evidence == "published" else "-"
            axes.errorbar(own["x"], own["y"], yerr=errors, capsize=2, linestyle=line, **style)
    for _, row in rows[_is_range(rows)].drop_duplicates("series").iterrows():
        limits = (0, 1) if pd.isna(row["low"]) else (row["low"], row["high"])
        whole = {"transform": axes.get_xaxis_transform()} if pd.isna(row["low"]) else {"linewidth": 3}
        axes.fill_between([row["x"], row["x_high"]], *limits, color="#999999", alpha=0.35, **whole)
    _guides(axes, figure, panel, points)
    axes.set_xlabel(panel.x_label or figure.x_label)
    if (panel.x_scale or figure.x_scale) != "linear":
        theme.rank_axis(axes, rows[rows["x"].notna()], x="x", label=panel.x_label or figure.x_label)
        places = sorted(set(rows["x"].dropna()))
        ticks, close = places[-1:], max(CLOSE, (places[-1] / places[0]) ** (1 / 8))
        for place in reversed(places):
            ticks += [place] if ticks[-1] / place >= close else []
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    if panel.y_scale == "log":
        theme.log_axis(axes.yaxis, base=10 if points["y"].max() > 30 * points["y"].min() else 2)
    if panel.layout == "efficiency":
        ideal = 1 / factor(panel.layout, panel.y_unit)
        axes.set_ylim(0, max(1.12 * ideal, 1.06 * points[NUMBERS].max().max()))
    axes.set_ylabel(f"{panel.y_label} [{panel.y_unit}]")


def _guides(axes: Axes, figure: Figure, panel: Panel, points: pd.DataFrame) -> None:
    """Ideal scaling, or where two are equal."""
    grey: dict[str, Any] = {"color": "#999999", "linewidth": 0.8, "zorder": 1}
    ends = points["x"].min(), points["x"].max()
    if panel.layout in ("efficiency", "relative_throughput"):
        axes.axhline(1 / factor(panel.layout, panel.y_unit), **grey)
    elif panel.layout == "speed_up":
        axes.plot(ends, [x / figure.base_x for x in ends], **grey)
    elif panel.layout == "throughput":
        firsts = select(points, evidence="published").sort_values("x").drop_duplicates("series")
        for x, y in firsts[["x", "y"]].itertuples(index=False):
            axes.plot((x, ends[1]), (y, y * ends[1] / x), **grey)


def _names(rows: pd.DataFrame) -> pd.Series:
    """The rows of a panel of rows: a series, and its x where there are several; predictions only where others are."""
    others = rows.loc[rows["evidence"] != "simulated", ["series", "x"]].drop_duplicates().assign(kept=True)
    kept = rows[["series", "x"]].merge(others, on=["series", "x"], how="left")["kept"].eq(True).to_numpy()
    places = (
        rows["x"].map(lambda x: "at an unknown number of" if pd.isna(x) else f"{x:g}") + " " + rows["x_unit"]
    )
    return (rows["series"] + (", " + places if others["x"].nunique(dropna=False) > 1 else ""))[kept]


def _draw_rows(axes: Axes, _: Figure, panel: Panel, rows: pd.DataFrame, looks: Looks) -> None:
    """A row per series and place, its name above its marks; a prediction below the others."""
    names = _names(rows)
    order = list(dict.fromkeys(names))[::-1]
    for name, evidence, own, errors in _groups(rows.loc[names.index].assign(row=names.map(order.index))):
        style = _style(evidence, looks[name]) | ({"marker": "|"} if evidence == "simulated" else {})
        height = own["row"] - (0.2 if evidence == "simulated" else 0.0)
        axes.errorbar(own["y"], height, xerr=errors, capsize=2, linestyle="none", **style)
    for place, name in enumerate(order):
        axes.text(0.01, place + 0.2, name, transform=axes.get_yaxis_transform(), fontsize=6.5)
    axes.set(yticks=[], ylim=(-0.5, len(order) - 0.2), xlabel=f"{panel.y_label} [{panel.y_unit}]")
    axes.margins(x=0.1)
    if panel.y_scale == "log":
        theme.log_axis(axes.xaxis, base=10)
