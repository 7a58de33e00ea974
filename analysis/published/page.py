"""Verdicts in words: on a terminal, and with the figures on one page that needs no network."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from dlscale.analysis.published.catalogue import Published
from dlscale.analysis.published.checks import CONSISTENT, INCONSISTENT, OPEN, UNKNOWN
from dlscale.analysis.published.verdicts import AGREES, DISAGREES, VERDICTS
from dlscale.analysis.render.screen import grid
from dlscale.analysis.text import number, plural, with_limits
from dlscale.base.files import write_atomically

PAGE, TEMPLATE = "index.html", Path(__file__).with_name("index.html.j2")
READ = (
    "published: within rounding and what repeated runs differ by, 2 points or 2 % where nobody says it; a fact that "
    "several figures have counts once."
)
SMALLEST = 1e-3  # below that a gain of efficiency is none


def range_text(low: Any, high: Any) -> str:
    """What is published, as a range."""
    least, most = (number(end) if pd.notna(end) else "" for end in (low, high))
    if least and most:
        return least if low == high else f"{least} to {most}"
    return f"from {least}" if least else f"up to {most}" if most else "-"


def claims_table(rows: pd.DataFrame) -> pd.DataFrame:
    """The claims as texts, with reason and reading."""
    bands = rows[["predicted", "predicted_low", "predicted_high"]].astype(float).itertuples(index=False)
    ends = rows[["published_low", "published_high"]].itertuples(index=False)
    reasons = rows["reason"].fillna("")
    readings = ["" if pd.isna(it) else f"read: {it}" for it in rows["reading"]]
    texts = {
        "figure": rows["figure"].tolist(),
        "claim": [": ".join(filter(None, it)) for it in zip(rows["claim"], rows["text"], strict=True)],
        "published": [range_text(*it) for it in ends],
        "predicted": [with_limits(*it, write=_no_small) or "-" for it in bands],
        "verdict": rows["verdict"].tolist(),
        "reason": ["; ".join(filter(None, it)) for it in zip(reasons, readings, strict=True)],
    }
    return pd.DataFrame(texts, rows.index, dtype=object)


def _no_small(value: float) -> str:
    return number(value) if abs(value) >= SMALLEST else "0"


def claims_screen(rows: pd.DataFrame, *, everything: bool) -> RenderableType:
    """The claims of each figure, then the reasons, each once; figures that nothing predicts are counted, or shown."""
    claimed = rows["check"].notna()
    shown = rows if everything else rows[claimed]
    table = claims_table(shown)
    table["claim"] = table.pop("figure") + ": " + table["claim"]
    among = [", ".join(["", *curves]) if curves else "" for curves in shown["curves"]]
    names = shown["figure"] + pd.Series(among, shown.index, dtype=object)
    reasons = dict.fromkeys((names + ", " + table["verdict"] + ": " + table["reason"])[table["reason"] != ""])
    counted = rows.loc[claimed & rows["counted"], "verdict"].value_counts()
    counts = ", ".join(f"{verdict} {counted.get(verdict, 0)}" for verdict in VERDICTS)
    rest = rows.loc[~claimed, "figure"].nunique()
    lines = [*reasons, READ, f"{plural(counted.sum(), 'claim')}: {counts}."]
    lines += [f"{rest} published figures are not predicted"] if rest and not everything else []
    parts: list[RenderableType] = [grid(table.drop(columns="reason"), folded=True)] if len(table) else []
    return Group("predicted from public inputs, nothing was measured here", *parts, "", *map(Text, lines))


def verdict_of_figures(rows: pd.DataFrame) -> pd.Series:
    """Figure -> verdict: disagreement if ours or published values contradict; agreement only if all agree."""

    def verdict(own: pd.Series) -> str:
        found = set(own)
        if found & {DISAGREES, INCONSISTENT}:
            return DISAGREES
        return next((it for it in (OPEN, AGREES) if it in found), UNKNOWN)

    return rows.groupby("figure", sort=False)["verdict"].agg(verdict)


def checks_screen(
    rows: pd.DataFrame, reasons: Mapping[str, Sequence[str]], *, everything: bool
) -> RenderableType:
    """The verdict on each figure and each comparison; figures without a comparison are counted, or shown."""
    of_figures = verdict_of_figures(rows)
    shown = of_figures if everything else of_figures[of_figures != UNKNOWN]
    good = rows["verdict"].isin([AGREES, CONSISTENT])
    table = pd.DataFrame({"figure": shown.index, "verdict": shown.to_numpy()}, dtype=object)
    kinds = {"compared": "compared", "shapes": "shape", "consistent": "derived consistency"}
    for heading, kind in kinds.items():
        own = good[rows["kind"] == kind].groupby(rows["figure"]).agg(["sum", "size"]).astype(str)
        table[heading] = (own["sum"] + "/" + own["size"]).reindex(shown.index).fillna("-").to_numpy()
    table["not compared, because"] = ["; ".join(reasons[name]) for name in shown.index]
    some = rows["kind"].isin(["compared", "shape"]).groupby(rows["figure"]).any()
    counts, hidden = of_figures.value_counts(), len(of_figures) - len(shown)
    agree, disagree = counts.get(AGREES, 0), counts.get(DISAGREES, 0)
    lines = [
        f"{agree} of {len(of_figures)} figures agree, {disagree} disagree; in {(~some).sum()} nothing was compared."
    ]
    have = "figure has" if hidden == 1 else "figures have"
    lines += [f"{hidden} published {have} no counterpart here"] if hidden else []
    details = pd.DataFrame(_details(rows), columns=["value", "published", "ours", "verdict"], dtype=object)
    return Group(*(grid(it, folded=True) for it in (table, details) if len(it)), *map(Text, lines))


def _details(rows: pd.DataFrame) -> Iterator[tuple[str, str, str, str]]:
    """A row per comparison, and per published value that contradicts others."""
    for row in rows[(rows["kind"] != UNKNOWN) & (rows["verdict"] != CONSISTENT)].to_dict("records"):
        quantity, inf = row["quantity"].replace("_", " "), float("inf")
        published = range_text(row["published_low"], row["published_high"])
        ends = [float("nan") if row[name] == inf else row[name] for name in ("ours", "ours_low", "ours_high")]
        ours, whose = with_limits(*ends), f"({row['curve']}, {row['evidence']})"
        value = f"{row['series']}: {quantity} [{row['unit']}] at {row['x'] or 0:g} {row['x_unit']}"
        if row["kind"] == "shape":
            value = f"{row['claim']}: {quantity}"
            ours = f"{ours} up to {row['up_to']:g} {row['x_unit']} {whose}"
        elif row["kind"] == "compared":
            over = with_limits(row["ratio"], row["ratio_low"], row["ratio_high"])
            ours = f"{ours} {whose}; ratio {over}"
        else:
            ours = f"{range_text(row['least'], row['most'])} by {row['relation']}"
        yield f"{row['figure']}, {value}", published, ours, row["verdict"]


def write_index(
    published: Published, rows: pd.DataFrame, drawn: Collection[str], assumed: Mapping[str, str], folder: Path
) -> Path:
    """Write the page of the drawn figures, and of all claims, into their folder; returns its path."""
    path = folder / PAGE
    write_atomically(path, index_page(published, rows, drawn, assumed).encode(), mode=0o644)
    return path


def index_page(
    published: Published, rows: pd.DataFrame, drawn: Collection[str], assumed: Mapping[str, str]
) -> str:
    """The page; `assumed` says what stands in predictions of a figure for what is not public."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    table = claims_table(rows)
    values = published.values
    unchecked = values[values["statement"].ne("") & ~values["statement"].isin(rows["claim"])]
    counted = rows.loc[rows["check"].notna() & rows["counted"], "verdict"].value_counts()
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        figures=[figure for name, figure in published.figures.items() if name in drawn],
        assumed=assumed,
        said=unchecked.groupby("figure")["statement"].agg("; ".join).to_dict(),
        claims=table.to_dict("records"),
        counts=[(verdict, counted.get(verdict, 0)) for verdict in VERDICTS],
    )
