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

from dlscale.analysis.frames import theme
from dlscale.analysis.frames.load import Study
from dlscale.analysis.frames.render.figures import NO_DATE
from dlscale.analysis.published.catalogue import RATIOS, Figure, Panel, Published, select
from dlscale.analysis.published.checks import own_points
from dlscale.analysis.published.values import HALF_WIDTH, PLACES, factor
from dlscale.base.files import all_or_nothing
from dlscale.base.strings import to_csv

MIN_VALUES = 3  # for a curve to be drawn for its published values alone
STROKES = ("x", "+", "1", "2", "3", "4")  # marks of published series
WIDTH, HEIGHT, ROW = 3.5, 2.3, 0.34  # inches of a panel, and of a row of one
MARGINS = {"left": 0.72, "bottom": 0.62, "right": 0.12, "gap": 0.75}  # inches
CLOSE = 1.6  # ticks of a logarithmic axis that are nearer than this factor overlap
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "published": ("published", {"marker": "x", "markersize": 7, "linestyle": "none"}),
    "simulated": ("simulated, 5 to 95 %", {"linestyle": "--"}),
    "measured": ("measured", {"marker": "o", "linestyle": "none"}),
    "emulated": ("emulated", {"marker": "o", "markerfacecolor": "white", "linestyle": "none"}),
}
Looks = dict[str, tuple[str, str, str]]
NUMBERS = ["y", "low", "high"]
COLUMNS = [
    *(
        "figure",
        "panel",
        "evidence",
        "series",
        "system",
        "backend",
        "x",
        "x_high",
        "x_unit",
        "quantity",
        *NUMBERS,
    ),
    *("y_unit", "kind", "source", "note"),
]


def panels_of(
    published: Published,
    figure: Figure,
    predicted: pd.DataFrame,
    studies: Sequence[Study] = (),
    stand_in: str | None = None,
) -> list[tuple[Panel, pd.DataFrame]]:
    """The panels that are drawn, each with its rows in the panel's unit: published, predicted, measured."""
    found = []
    for index, panel in enumerate(figure.panels):
        curves = select(predicted, figure=figure.id, panel=index).assign(evidence="simulated")
        parts = [
            _public(published, figure, panel),
            curves.assign(source="claims/" + curves["publication"] + ".toml"),
        ]
        if panel.reference:
            parts = [published.measured_for(figure, panel)]
        elif figure.own:
            own = figure.own.narrowed(panel.own)
            points = own_points(figure, own, panel.layout, studies, stand_in)
            origins = [studies[at].origin for at in points["at"]]
            parts.append(points.rename(columns={"name": "series"}).assign(source=origins))
        rows = pd.concat([part.reindex(columns=COLUMNS).astype(object) for part in parts], ignore_index=True)
        fixed = {"figure": figure.id, "panel": panel.title or panel.layout, "quantity": panel.layout}
        rows = rows.assign(**fixed, x_unit=panel.x_unit or figure.x_unit, y_unit=panel.y_unit)
        scale = factor(panel.layout, panel.y_unit)
        rows[["x", "x_high", *NUMBERS]] = rows[["x", "x_high", *NUMBERS]].astype(float)
        rows[NUMBERS] /= scale
        values = (rows["evidence"] == "published") & (rows["x_high"].isna() | (rows["x"] == rows["x_high"]))
        if values.sum() >= MIN_VALUES or rows["evidence"].ne("published").any():
            found.append((panel, rows))
    rates_alone = [
        panel
        for panel, rows in found
        if panel.layout == "throughput"
        and rows["series"].nunique() > 1
        and rows["evidence"].eq("simulated").all()
    ]
    # Predicted rates lie on each other; the efficiencies beside them do not.
    return [
        (panel, rows) for panel, rows in found if panel not in rates_alone or len(found) == len(rates_alone)
    ]


def _public(published: Published, figure: Figure, panel: Panel) -> pd.DataFrame:
    """Published values of a panel, with the limits that are published, and what is said of places or ranges."""
    rows = select(published.values, figure=figure.id)
    rows = rows[rows["series"].isin(panel.series)] if panel.series else rows
    values = select(rows, quantity=panel.layout, statement="")
    widths = select(rows, quantity=panel.layout + HALF_WIDTH)[["series", "x", "y"]]
    half = values[["series", "x"]].merge(widths, on=["series", "x"], how="left")["y"].to_numpy()
    values = values.assign(low=values["y"] - half, high=values["y"] + half)
    said = rows[rows["label"].ne("") & rows["quantity"].isin([panel.layout, *PLACES]) & rows["x"].notna()]
    said = said[
        (said["x_unit"] == figure.x_unit) & (said["quantity"].ne("linear") | (panel.layout in RATIOS))
    ]
    said = said.assign(note=said["statement"])
    is_range = said["x"] != said["x_high"]
    found = pd.concat([values, said[~is_range]])
    found["series"] = [figure.label(series) for series in found["series"]]
    ranges = said[is_range]
    return pd.concat([found, ranges.assign(series=ranges["label"])]).assign(backend="")


def write_figures(
    drawn: Sequence[tuple[Figure, list[tuple[Panel, pd.DataFrame]]]],
    folder: Path,
    *,
    paper: float | None = None,
) -> list[Path]:
    """Draw figures into the folder, `<id>.png`, `.pdf`, `.svg` and `.csv`, and return the paths.

    `paper` is a printed width in inches: panels then stand below each other. Raises UsageError where one file cannot be
    written; those of an earlier call then stay, all of them.
    """
    theme.use()
    names: list[str] = []
    with all_or_nothing(folder) as place:
        for figure, panels in drawn:
            picture = draw(figure, panels, paper=paper)
            for ending, no_date in NO_DATE.items():
                names.append(f"{figure.id}.{ending}")
                picture.savefig(place / names[-1], metadata=no_date, dpi=200)
            plt.close(picture)
            names.append(f"{figure.id}.csv")
            rows = pd.concat([rows for _, rows in panels])
            records = rows.astype(object).where(rows.notna(), None).to_dict("records")
            (place / names[-1]).write_text(to_csv(records), encoding="utf-8")
    return [folder / name for name in names]


def draw(
    figure: Figure, panels: Sequence[tuple[Panel, pd.DataFrame]], *, paper: float | None = None
) -> Picture:
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
    inner, between = max(HEIGHT, tallest), MARGINS["gap"]
    height = top + MARGINS["bottom"] + num_lines * inner + (num_lines - 1) * between
    picture, places = plt.subplots(
        num_lines,
        columns,
        figsize=(width, height),
        squeeze=False,
        sharey=_is_shared(panels),
        gridspec_kw={
            "left": MARGINS["left"] / width,
            "right": 1 - MARGINS["right"] / width,
            "bottom": MARGINS["bottom"] / height,
            "top": 1 - top / height,
            "wspace": between / ((width - 0.8 - (columns - 1) * between) / columns),
            "hspace": between / inner,
        },
    )
    for place in places.flat[len(panels) :]:
        place.set_visible(False)
    for (panel, own), axes in zip(panels, places.flat, strict=False):
        if panel.bars:
            _draw_rows(axes, panel, own, looks)
        else:
            _draw_curves(axes, figure, panel, own, looks)
        title = ": ".join(filter(None, ("measured here" if panel.reference else "", panel.title)))
        axes.set_title(title, fontsize=8, loc="left")
    values = rows.loc[rows["evidence"] == "published", "kind"].isin(["table", "read off a figure"])
    nature = (
        ""
        if values.any() or not rows["evidence"].eq("simulated").any()
        else "; simulated, published only as a picture"
    )
    texts: dict[str, Any] = {"x": 0.06 / width, "va": "top"}
    picture.text(y=1 - 0.05 / height, s=figure.title, fontsize=9, fontweight="bold", **texts)
    picture.text(y=1 - 0.22 / height, s=figure.workload + nature, fontsize=7, color="#444444", **texts)
    picture.legend(
        handles.values(), handles, loc="upper left", bbox_to_anchor=(0.0, 1 - 0.32 / height), ncols=per_line
    )
    picture.text(
        y=0.14 / height, s=sources(figure, rows)[: int(28 * width)], fontsize=5, color="#666666", **texts
    )
    return picture


def _is_shared(panels: Sequence[tuple[Panel, pd.DataFrame]]) -> bool:
    """Whether the panels have one scale: curves of the same quantity."""
    return len({(panel.layout, panel.y_unit) for panel, _ in panels}) == 1 and not any(
        it.bars for it, _ in panels
    )


def sources(figure: Figure, rows: pd.DataFrame) -> str:
    """One line: the publication, and where all else is from."""
    others = rows.loc[rows["evidence"] != "published", ["evidence", "source"]].drop_duplicates()
    return "; ".join(
        [figure.publication, *(f"{kind}: {source}" for kind, source in others.itertuples(index=False))]
    )


def _handles(
    panels: Sequence[tuple[Panel, pd.DataFrame]], rows: pd.DataFrame, looks: Looks
) -> dict[str, Any]:
    """What the legend shows: series of curves, and kinds of evidence, in grey."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for panel, own in panels if not panel.bars for name in own["series"]):
        own = rows[rows["series"] == name]
        evidence = next(kind for kind in KINDS if kind in set(own["evidence"]))
        style = _style(evidence, looks[name]) if name in looks else {"color": "#BBBBBB", "linewidth": 4}
        is_line = own["evidence"].eq("simulated").any() or own["x"].isna().all() or name not in looks
        found[name] = Line2D([], [], **{"linestyle": "-" if is_line else "none", **style})
    for kind in rows["evidence"].unique():
        label, look = KINDS[kind]
        found[label] = Line2D([], [], color="#666666", **look)
    return found


def _looks(rows: pd.DataFrame) -> Looks:
    """Series -> colour, mark and stroke: what is ours has its backend's, what is published one that is left."""
    spare = [look for backend, look in theme.LOOKS.items() if backend not in set(rows["backend"])]
    looks: Looks = {}
    series = rows[~_is_range(rows)].sort_values("evidence", key=lambda it: it != "published", kind="stable")
    series = series.drop_duplicates("series")[["series", "backend"]]
    for (name, backend), stroke in zip(series.itertuples(index=False), cycle(STROKES), strict=False):
        look = theme.LOOKS.get(backend)
        if not look or look in {own[:2] for own in looks.values()}:
            look = spare.pop(0) if spare else theme.LOOKS["none"]
        looks[name] = (*look, stroke)
    return looks


def _is_range(rows: pd.DataFrame) -> pd.Series:
    """Which rows are of a range of places; the others are points."""
    return rows["x_high"].notna() & (rows["x"] != rows["x_high"])


def _groups(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame, list[pd.Series]]]:
    """Name, evidence, rows and lengths of error bars of each series of one kind."""
    for (name, evidence), own in rows.groupby(["series", "evidence"], sort=False):
        own = own.sort_values("x", kind="stable")
        yield name, evidence, own, [(own["y"] - own["low"]).fillna(0), (own["high"] - own["y"]).fillna(0)]


def _style(evidence: str, look: tuple[str, str, str]) -> dict[str, Any]:
    color, mark, stroke = look
    marker = stroke if evidence == "published" else "" if evidence == "simulated" else mark
    face = {"markerfacecolor": "white"} if evidence == "emulated" else {}
    large = {"markersize": 7, "markeredgewidth": 1.5} if evidence == "published" else {}
    return {"color": color, "marker": marker, **face, **large}


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
    for row in rows[_is_range(rows)].drop_duplicates("series").to_dict("records"):
        area: dict[str, Any] = {"color": "#999999", "alpha": 0.35}
        if pd.isna(row["low"]):
            axes.axvspan(row["x"], row["x_high"], linewidth=0, **area)
        else:
            axes.fill_between([row["x"], row["x_high"]], row["low"], row["high"], linewidth=3, **area)
    _guides(axes, figure, panel, points)
    axes.set_xlabel(panel.x_label or figure.x_label)
    if (panel.x_scale or figure.x_scale) != "linear":
        theme.rank_axis(axes, rows[rows["x"].notna()], x="x", label=panel.x_label or figure.x_label)
        places = sorted(set(rows["x"].dropna()))
        ticks = places[-1:]
        for place in reversed(places):
            ticks += [place] if ticks[-1] / place >= CLOSE else []
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
        for x, y in points.sort_values("x").drop_duplicates("series")[["x", "y"]].itertuples(index=False):
            axes.plot((x, ends[1]), (y, y * ends[1] / x), **grey)


def _names(rows: pd.DataFrame) -> pd.Series:
    """The rows of a panel of rows: a series, and its x where there are several; predictions only where others are."""
    others = rows.loc[rows["evidence"] != "simulated", ["series", "x"]].drop_duplicates().assign(kept=True)
    kept = rows[["series", "x"]].merge(others, on=["series", "x"], how="left")["kept"].eq(True).to_numpy()
    places = (
        rows["x"].map(lambda x: "at an unknown number of" if pd.isna(x) else f"{x:g}") + " " + rows["x_unit"]
    )
    return (rows["series"] + (", " + places if others["x"].nunique(dropna=False) > 1 else ""))[kept]


def _draw_rows(axes: Axes, panel: Panel, rows: pd.DataFrame, looks: Looks) -> None:
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
