"""The scaling section of a proposal for compute time: text, tables and figures of the fastest curve of each training.

    speed-up      = E(p) p / b                       b: ranks of the base case
    per doubling  = (T(p) / T(q)) ^ (1 / log2(p/q))  q: the next smaller size; paired; ideally 2
    node-hours    = nodes x samples / T(p) / 3600    whole nodes

The study's cautions are its first lines and in its captions, and what they refuse is not claimed here either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from dlscale.analysis import text as words
from dlscale.analysis import theme
from dlscale.analysis.finding import COUNT, Column, Drawing, Finding, frame_of
from dlscale.analysis.findings import cautions, predicted, scaling
from dlscale.analysis.load import Study
from dlscale.analysis.render import figures, text
from dlscale.analysis.statistics import NONE, Interval, ratio
from dlscale.base.files import make_folder, write_atomically

NAME = "proposal"
Facts = dict[str, Any]  # what is said of a curve
STEM = ("workload", "preset", "framework", "scaling_mode", "precision", "backend")  # of files' names
WIDTH = 3.5  # inches, of a figure: a column of a page
ENDS = ("", "_low", "_high", "_n", "_method")  # of an interval's columns
CURVE = ["family", "curve", "num_servers", "evidence"]
GRAVE = ("running", "few_launches", "evidence", "systems", "drift")  # cautions that forbid a section
VERDICTS = ("surely", "not", "possibly", "unknown")
SENTENCES = ("measured", "machine", "evidence", "result", "threshold", "request")
COST = "node_hours_per_million_samples"


def sizes(study: Study, *, threshold: float = 0.75, backends: Sequence[str] = ()) -> pd.DataFrame:
    """One row per size of the curves to show: of each family those over `backends`, else the fastest on most ranks."""
    rows = scaling.FINDING.of(study)
    rows = rows[rows["control"] == "train"]
    # A planned size without a record has the kind of evidence of its curve's other sizes.
    known = rows["evidence"].where(rows["evidence"] != "")
    of_curve = known.groupby([rows[name] for name in CURVE[:3]]).transform("first")
    rows = rows.assign(evidence=known.fillna(of_curve).fillna("measured"))
    rows = rows.sort_values([*CURVE, "num_ranks", "num_nodes"], kind="stable")
    has_number = rows.groupby(CURVE)["samples_per_second"].transform("max").notna()
    parts = [_with_base(own, rows, study) for _, own in rows[has_number].groupby(CURVE)]
    if not parts:
        return frame_of([], *rows, *TABLE.columns, "others")
    every = pd.concat(parts, ignore_index=True)
    low, high = every["efficiency_low"], every["efficiency_high"]
    is_base = every["efficiency_method"] == scaling.BASE_CASE
    choices = [is_base | (low >= threshold), high < threshold, low <= high]
    verdicts = np.select(choices, VERDICTS[:3], VERDICTS[3])
    every["keeps_threshold"] = VERDICTS[3] if cautions.is_busy(study) else verdicts
    kept = [_shown(own, backends) for _, own in every.groupby("family")]
    return pd.concat(kept, ignore_index=True)


def _with_base(own: pd.DataFrame, rows: pd.DataFrame, study: Study) -> pd.DataFrame:
    """The sizes of a curve with the efficiency against its base case, and what follows from their rates."""
    base = next((name for name in ("none", "backend") if own[f"efficiency_{name}"].notna().any()), "")
    servers = own["num_servers"].map(lambda count: f" with {words.plural(count, 'server')}" if count else "")
    own = own.assign(base_case=base, name=own["curve"] + servers)
    is_base = (rows["family"] == own["family"].iloc[0]) & (rows["num_ranks"] == rows["base_ranks"])
    alike = ~rows["is_exchanging"] if base == "none" else rows["curve"] == own["curve"].iloc[0]
    alone = rows[is_base & alike & rows["samples_per_second"].notna()].to_dict("records") if base else []
    rates, found = study.wide("samples_per_second"), []
    for row in own.to_dict("records"):
        efficiency, rate, doubling = _interval(row, f"efficiency_{base or 'none'}"), _rate(row), NONE
        smaller = own[own["samples_per_second"].notna() & (own["num_ranks"] < row["num_ranks"])]
        if len(smaller) and row["samples_per_second"] > 0:
            before = smaller.iloc[-1]
            power = 1 / np.log2(row["num_ranks"] / before["num_ranks"])
            doubling = ratio(rates[row["cell"]], rates[before["cell"]]).mapped(
                lambda one, power=power: one**power
            )
        found.append(
            efficiency.columns("efficiency")
            | efficiency.times(row["num_ranks"] / row["base_ranks"]).columns("speed_up")
            | doubling.columns("speed_up_per_doubling")
            | rate.rate(row["num_nodes"] * 1e6 / 3600).columns(COST)
            | (_rate(alone[0]) if alone else NONE).columns("base_rate")
        )
    new = pd.DataFrame(found, own.index)
    return own.drop(columns=own.columns.intersection(new.columns)).join(new)


def _interval(row: Mapping[str, Any], name: str) -> Interval:
    return Interval(*(row[f"{name}{end}"] for end in ENDS))


def _rate(row: Mapping[str, Any]) -> Interval:
    return _interval(row, "samples_per_second")


def _shown(own: pd.DataFrame, backends: Sequence[str]) -> pd.DataFrame:
    """The rows of a family's curves to show, with the names of other backends on several ranks."""
    exchanging = own[own["is_exchanging"]]
    among = (exchanging if len(exchanging) else own).dropna(subset="samples_per_second")
    fastest = among.sort_values(["num_ranks", "samples_per_second", "name"]).iloc[-1]
    several = among.loc[among["is_exchanging"] & (among["num_ranks"] != among["base_ranks"]), "name"].unique()
    is_shown = own["backend"].isin(backends) if backends else (own[CURVE] == fastest[CURVE]).all(axis=1)
    others = own["name"].map(lambda name: ", ".join(other for other in several if other != name))
    return own.assign(others=others)[is_shown].sort_values(["name", "evidence", "num_ranks"], kind="stable")


def extrapolated(study: Study, own: pd.DataFrame) -> pd.DataFrame:
    """One row per predicted size of the curve of these rows: in none of their numbers."""
    points, first = predicted.FINDING.of(study), own.iloc[0]
    names = {f"efficiency_none{end}": f"efficiency{end}" for end in ENDS}
    points = points[(points["family"] == first["family"]) & (points["curve"] == first["curve"])]
    return points.rename(columns=names).assign(base_ranks=first["base_ranks"])


def factor(value: float) -> str:
    """`7.36`: two decimals, to distinguish 1.98 from 2; fewer from 10 on."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


TABLE = Finding(
    name=NAME,
    title="Scalability",
    compute=sizes,
    columns={
        "num_ranks": Column("processes that train", "ranks", write=COUNT),
        "num_nodes": Column("nodes that they are on", "nodes", write=COUNT),
        "samples_per_second": Column("throughput", "samples/s"),
        "speed_up": Column("T(p) / T(b)", "speed-up", write=factor),
        "speed_up_per_doubling": Column("since the row above, ideally 2", "per doubling", write=factor),
        "efficiency": Column("E(p)", "efficiency", "%", factor=100, write=words.digits(1)),
        COST: Column("of whole nodes", "node-hours per million samples"),
        "keeps_threshold": Column("whether the efficiency does, by its interval", "keeps threshold"),
        "launches": Column("launches that gave a number / planned", "n"),
        "base_case": Column("what efficiencies are relative to: none, or the same backend"),
        **dict.fromkeys(("num_launches", "num_planned", "base_ranks", "notes"), Column("as in scaling")),
        "doubts": Column("why a prediction is not to be trusted"),
    },
)


@cache
def _templates() -> jinja2.Environment:
    """The templates. Each escapes what records say, for its language, by the filters `md` and `tex`."""
    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    found = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True)  # noqa: S701
    found.filters |= {"md": text.escape_markdown, "md_table": text.markdown, "tex": words.escape_latex}
    found.filters |= {
        "large": lambda value: f"{value:,}".replace(",", " "),
        "rate": lambda value: words.with_limits(*value[:3]),
    }
    found.globals |= {name: getattr(words, name) for name in ("plural", "number", "percent", "interval")}
    found.globals |= {"factor": factor, "latex": text.latex}
    return found


def lines(name: str, about: Any) -> list[str]:
    """The lines that a macro of `proposal_text.j2` says about a curve, or a record."""
    said = str(getattr(_templates().get_template("proposal_text.j2").module, name)(about))
    parts = said.splitlines() if name == "limits" else [said]
    return [" ".join(part.split()) for part in parts if part.strip()]


def facts(study: Study, rows: pd.DataFrame, *, threshold: float, samples: int = 0, runs: int = 1) -> Facts:
    """What the templates say of one curve, and its sentences."""
    records, points = rows.to_dict("records"), extrapolated(study, rows)
    measured = [row for row in records if row["samples_per_second"] > 0]
    keeping = {verdict: [row for row in records if row["keeps_threshold"] == verdict] for verdict in VERDICTS}
    numbers = study.good.loc[study.good["cell"].isin(rows["cell"]), "number"]
    machine = {}
    for name in ("node", "network", "software"):
        said = dict.fromkeys(line for number in numbers for line in lines(name, study.records[number]))
        machine[name] = words.listed(said)
    found: Facts = dict(zip(("surely", "lost", "possibly", "unknown"), keeping.values(), strict=True))
    found |= {name: next(iter(found[name][::-1]), None) for name in ("surely", "possibly")}
    found["lost"] = next(iter(found["lost"]), None)
    found |= {"first": records[0], "sizes": records, "largest": measured[-1], "machine": machine}
    smaller = [row for row in measured if row["num_ranks"] < measured[-1]["num_ranks"]]
    scaled = rows[rows["num_ranks"] != rows["base_ranks"]]
    found["before"] = next(iter(smaller[::-1]), None)
    found["is_decided"] = bool((scaled["keeps_threshold"] != "unknown").any())
    found |= {"threshold": f"{100 * threshold:g} %", "is_busy": cautions.is_busy(study)}
    found |= {"samples": samples, "runs": runs, "predicted": len(points)}
    found["doubts"] = sorted({*points["doubts"]} - {""})
    found["title"] = " ".join(lines("title", found))
    if samples and found["surely"]:
        hours = _rate(found["surely"]).rate(samples / 3600)
        whole = hours.times(found["surely"]["num_nodes"])
        found["request"] = {"hours": hours, "node_hours": whole, "total": whole.times(runs)}
    return found | {"sentences": [line for name in SENTENCES for line in lines(name, found)]}


def write(
    study: Study, folder: Path, *, threshold: float, backends: Sequence[str] = (), **request: Any
) -> list[Facts]:
    """Write `proposal.md` and `.tex` with their tables and figures; returns the facts of each curve.

    `request`: the `samples` of one training, and how many `runs` to ask node-hours for.

    Nothing is written if no training has a result. Equal records give equal bytes.
    """
    rows, curves = sizes(study, threshold=threshold, backends=backends), list[Facts]()
    if not len(rows):
        return []
    make_folder(folder, option="--out")
    notes = cautions.FINDING.of(study)
    notes = notes[notes["text"] != ""]
    is_grave = notes["kind"].isin(GRAVE) | (
        notes["kind"].isin(("other_programs", "throttled")) & cautions.is_busy(study)
    )
    for _, own in rows.groupby([*CURVE, "name"], sort=False):
        curve, points = facts(study, own, threshold=threshold, **request), extrapolated(study, own)
        stem = figures.file_name("-".join(curve["first"][name] for name in STEM))
        stem += f"-{len(curves)}" if stem in {one["stem"] for one in curves} else ""
        for name, frame in ((stem, own), (f"{stem}-predicted", points)):
            if len(frame):
                table = TABLE.exported(frame).assign(study=study.name, data_hash=study.data_hash)
                write_atomically(folder / f"{name}.csv", text.as_csv(table), mode=0o644)
        shown = {"table": TABLE.table(own), "predicted_table": TABLE.table(points), "stem": stem}
        limits = lines("limits", curve) + notes.loc[~is_grave, "text"].tolist()
        pictures = _draw(study, own, points, folder / stem, threshold)
        curves.append(curve | shown | {"pictures": pictures, "limits": limits})
    commits = sorted({record.fingerprint.commit[:12] for record in study.records})
    about = {"study": study.name, "commits": commits, "hash": study.data_hash[:12]}
    for ending in ("md", "tex"):
        template = _templates().get_template(f"proposal.{ending}.j2")
        section = template.render(curves=curves, stops=notes.loc[is_grave, "text"].tolist(), about=about)
        write_atomically(
            folder / f"{NAME}.{ending}", section, mode=0o644, remedy="choose another folder with --out"
        )
    return curves


def _draw(study: Study, own: pd.DataFrame, points: pd.DataFrame, stem: Path, threshold: float) -> list[str]:
    """Write the figures of a curve, next to `none` and predictions; returns their names."""

    def efficiency(rows: pd.DataFrame, axes: Axes) -> None:
        theme.points(axes, rows, "efficiency", factor=100)
        theme.rank_axis(axes, rows)
        axes.axhline(100 * threshold, color=theme.QUIET, linestyle=":", label=f"{100 * threshold:g} %")
        axes.set(ylim=(0, None), ylabel="scaling efficiency [%]")
        axes.legend()

    rows = scaling.FINDING.of(study)
    is_own = rows["family"] == own["family"].iloc[0]
    rows = rows[is_own & (rows["control"] == "train") & ~rows["is_exchanging"]]
    versus = rows.assign(**{f"efficiency{end}": rows[f"efficiency_none{end}"] for end in ENDS})
    rows = pd.concat([one for one in (versus[~versus["cell"].isin(own["cell"])], own, points) if len(one)])
    drawn = {
        "samples_per_second": ("throughput", scaling.draw_throughput),
        "efficiency": ("efficiency", efficiency),
    }
    written = []
    for value, (name, draw) in drawn.items():
        if own[value].notna().any():
            with theme.used(figures.PAPER):
                drawing = Drawing(name=name, draw=draw)
                figure = figures.figure_of(drawing, rows[rows[value].notna()], width=WIDTH)
                figures.save(figure, stem.with_name(f"{stem.name}-{name}"), origin=study.origin)
                plt.close(figure)
            written.append(name)
    return written
