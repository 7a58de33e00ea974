"""Verdicts in words: on a terminal, and with the figures on one page that needs no network."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from dlscale.analysis.frames.render.screen import grid
from dlscale.analysis.frames.text import number, plural, with_limits
from dlscale.analysis.published.catalogue import Published, load_published, select
from dlscale.analysis.published.checks import CONSISTENT, INCONSISTENT, OPEN, UNKNOWN
from dlscale.analysis.published.verdicts import (
    AGREES,
    DISAGREES,
    VERDICTS,
    load_publications,
    verdicts,
)
from dlscale.base.files import write_atomically

PAGE, TEMPLATE = "index.html", Path(__file__).with_name("index.html.j2")
READ = (
    "published: within rounding and what repeated runs differ by, 2 points or 2 % where nobody says it; a fact that "
    "several figures have counts once."
)
SMALLEST = 1e-3  # below that a gain of efficiency is none


def range_text(low: Any, high: Any) -> str:
    """What is published, as a range."""
    if pd.isna(low) or pd.isna(high):
        ends = [
            f"from {number(low)}" if pd.notna(low) else "",
            f"up to {number(high)}" if pd.notna(high) else "",
        ]
        return "".join(ends) or "-"
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def claims_table(rows: pd.DataFrame) -> pd.DataFrame:
    """The claims as texts, with reason and reading."""
    numbers = [
        with_limits(*ends, write=lambda it: number(it) if abs(it) >= SMALLEST else "0") or "-"
        for ends in rows[["predicted", "predicted_low", "predicted_high"]]
        .astype(float)
        .itertuples(index=False)
    ]
    ends = rows[["published_low", "published_high"]].itertuples(index=False)
    claims = [": ".join(filter(None, it)) for it in zip(rows["claim"], rows["text"], strict=True)]
    readings = ["" if pd.isna(it) else f"read: {it}" for it in rows["reading"]]
    why = ["; ".join(filter(None, it)) for it in zip(rows["reason"].fillna(""), readings, strict=True)]
    columns = {"claim": claims, "published": [range_text(*it) for it in ends], "predicted": numbers}
    return pd.DataFrame(
        columns | {"verdict": rows["verdict"].to_numpy(), "reason": why}, index=rows.index, dtype=object
    )


def claims_screen(rows: pd.DataFrame, *, everything: bool) -> RenderableType:
    """The claims of each figure, then the reasons, each once; figures that nothing predicts are counted, or shown."""
    claimed = rows["check"].notna()
    shown = rows if everything else rows[claimed]
    table = claims_table(shown)
    heads = pd.DataFrame({"claim": [""]}).reindex(columns=table.columns, fill_value="").drop(columns="reason")
    parts: list[pd.DataFrame] = []
    for name, own in table.groupby(shown["figure"], sort=False):
        parts += [
            heads.assign(claim=f"{name}:"),
            own.drop(columns="reason").assign(claim="  " + own["claim"]),
        ]
    names = shown["figure"] + [", ".join(["", *curves]) if curves else "" for curves in shown["curves"]]
    reasons = dict.fromkeys((names + ", " + table["verdict"] + ": " + table["reason"])[table["reason"] != ""])
    counted = rows.loc[claimed & rows["counted"], "verdict"].value_counts()
    counts = ", ".join(f"{verdict} {counted.get(verdict, 0)}" for verdict in VERDICTS)
    rest = rows.loc[~claimed, "figure"].nunique()
    lines = [*reasons, READ, f"{plural(counted.sum(), 'claim')}: {counts}."]
    lines += [f"{rest} published figures are not predicted; add --all"] if rest and not everything else []
    return Group(
        "predicted from public inputs, nothing was measured here",
        *([grid(pd.concat(parts))] if parts else []),
        "",
        *map(Text, lines),
    )


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
    for heading, kind in (
        ("compared", "compared"),
        ("shapes", "shape"),
        ("consistent", "derived consistency"),
    ):
        own = good[rows["kind"] == kind].groupby(rows["figure"]).agg(["sum", "size"])
        texts = own["sum"].astype(str) + "/" + own["size"].astype(str)
        table[heading] = texts.reindex(shown.index).fillna("-").to_numpy()
    table["not compared, because"] = ["; ".join(reasons[name]) for name in shown.index]
    nothing = (~rows.groupby("figure")["kind"].agg(lambda own: own.isin(["compared", "shape"]).any())).sum()
    counts = of_figures.value_counts()
    last = (
        f"{counts.get(AGREES, 0)} of {len(of_figures)} figures agree, {counts.get(DISAGREES, 0)} disagree; "
        f"in {nothing} nothing was compared."
    )
    hidden = len(of_figures) - len(shown)
    have = "figure has" if hidden == 1 else "figures have"
    rest = [f"{hidden} published {have} no counterpart here; add --all"] if hidden else []
    details = pd.DataFrame(_details(rows), columns=["value", "published", "ours", "verdict"], dtype=object)
    parts = [grid(table)] if len(table) else []
    return Group(*parts, *(["", grid(details)] if len(details) else []), *map(Text, [last, *rest]))


def _details(rows: pd.DataFrame) -> Iterator[tuple[str, str, str, str]]:
    """A row per comparison, and per published value that contradicts others."""
    for row in rows[(rows["kind"] != UNKNOWN) & (rows["verdict"] != CONSISTENT)].to_dict("records"):
        quantity = row["quantity"].replace("_", " ")
        published = range_text(row["published_low"], row["published_high"])
        if row["kind"] == "shape":
            ends = [
                it if it < float("inf") else float("nan")
                for it in (row["ours"], row["ours_low"], row["ours_high"])
            ]
            value = f"{row['figure']}, {row['claim']}: {quantity}"
            ours = f"{with_limits(*ends)} up to {row['up_to']:g} {row['x_unit']} ({row['curve']}, {row['evidence']})"
        else:
            value = f"{row['figure']}, {row['series']}: {quantity} [{row['unit']}] at {row['x']:g} {row['x_unit']}"
            over = with_limits(row["ratio"], row["ratio_low"], row["ratio_high"])
            ours = with_limits(row["ours"], row["ours_low"], row["ours_high"])
            ours = f"{ours} ({row['curve']}, {row['evidence']}); ratio {over}"
        if row["kind"] == "derived consistency":
            ours = f"{range_text(row['least'], row['most'])} by {row['relation']}"
        yield value, published, ours, row["verdict"]


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
    table = claims_table(rows).assign(figure=rows["figure"])
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


def said_of(system: str, workload: str, scaling_mode: str) -> Iterator[str]:
    """A line per published statement on a training's scaling on a system, and whether predictions agree with it.

    Verdicts are those of `figures --published --check --claims`, on the publication's own backends, options and sizes.
    """
    published = load_published()
    wanted = (system, workload, scaling_mode)
    names = [
        name
        for name, figure in published.figures.items()
        if figure.own and (figure.own.system, figure.own.workload, figure.own.scaling_mode) == wanted
    ]
    rows = (
        verdicts(published, load_publications(published), names)
        if names
        else pd.DataFrame(columns=["claim", "figure"])
    )
    values = published.values
    for name in names:
        for one in values[(values["figure"] == name) & values["statement"].ne("")].to_dict("records"):
            own = select(rows, figure=name, claim=one["statement"])
            own = own[own["check"].notna()]
            texts = [f"{one['statement']} ({one['kind']}; {one['source']})"]
            for row, words in zip(own.to_dict("records"), claims_table(own).to_dict("records"), strict=True):
                numbers = f"predicted {words['predicted']}, published {words['published']}"
                disagrees = f"PREDICTION DISAGREES ({row['text']}: {numbers}): {row['reason']}"
                texts.append(disagrees if row["verdict"] == DISAGREES else f"prediction {row['verdict']}")
            yield "; ".join(dict.fromkeys(texts))
