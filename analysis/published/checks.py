"""Published values compared with our cells and with each other, and what is said of a curve's shape with our curves.

Ratio = ours / published, which is 1 anywhere within the rounding or range of the published number; verdicts are in
docs/published-figures.md. A figure without a matching cell of ours is `unknown`, never a pass.

If a publication gives two quantities of a series, one follows from the other (T throughput, S speed-up, E efficiency,
at x; b where S and E are 1): E(x) = S(x) b / x, E(x) = T(x) b / (T(b) x), S(x) = T(x) / T(b). Both sides are ranges by
their rounding: they agree if they touch. Approximate numbers are not checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis.findings import scaling
from dlscale.analysis.load import Study
from dlscale.analysis.published import verdicts
from dlscale.analysis.published.catalogue import RATIOS, Figure, Own, Published, select
from dlscale.analysis.published.claims import Claim, Publication, x_of
from dlscale.analysis.published.predictions import Floats
from dlscale.analysis.published.values import HALF_WIDTH
from dlscale.analysis.statistics import NONE, Interval, ratio

OPEN, UNKNOWN, CONSISTENT, INCONSISTENT = "open", "unknown", "consistent", "not within rounding"
COMPARED = ("measured", "emulated", "simulated")  # kinds of evidence of our cells
NO_NUMBER = "no number with a place on the axes is public"
COLUMNS = [
    *("figure", "kind", "series", "quantity", "unit", "x", "x_unit", "published_low", "published_high"),
    *("ours", "ours_low", "ours_high", "evidence", "system", "study", "ratio", "ratio_low", "ratio_high"),
    *("tolerance", "verdict", "relation", "reasons", "claim", "curve", "up_to"),
]
X_OF = {"GPUs": "num_ranks", "devices": "num_ranks", "processes": "num_ranks"}
X_OF |= {"nodes": "num_nodes", "images": "global_batch"}
VALUE = ["y", "low", "high", "n", "method"]
CELL = ["evidence", "system", "backend", "family", "cell"]


def trainings(study: Study) -> pd.DataFrame:
    """Our trainings with a throughput; backend `none` on several ranks is no distributed training."""
    rows = scaling.FINDING.of(study)
    trained = (rows["control"] == "train") & (rows["is_exchanging"] | (rows["num_ranks"] == 1))
    return rows[trained & rows["samples_per_second"].notna() & rows["evidence"].isin(COMPARED)]


def own_points(
    figure: Figure, wanted: Own, quantity: str, studies: Sequence[Study], stand_in: str | None = None
) -> pd.DataFrame:
    """A row per training that meets the requirements and has the quantity, in its base unit.

    `stand_in` is a system of ours that replaces the publication's; `at` is the place in `studies`.
    """
    where = f" on {stand_in}" if stand_in and stand_in != wanted.system else ""
    wanted = wanted.narrowed(Own(system=stand_in)) if stand_in else wanted
    parts = [pd.DataFrame(columns=[*CELL, *VALUE, "x", "name", "study", "at"])]
    for at, study in enumerate(studies if figure.x_unit in X_OF else ()):
        rows = study.once(trainings)
        rows = rows[wanted.accepts(rows)]
        values = [value_of(study, row, quantity, figure) for row in rows.to_dict("records")]
        found = rows[CELL].join(pd.DataFrame(values, rows.index, columns=VALUE))
        x, names = rows[X_OF[figure.x_unit]].astype(float), rows["curve"] + ", " + rows["framework"] + where
        study_names = ", ".join(sorted({record.study for record in study.records}))
        parts.append(found.assign(x=x, name=names, study=study_names, at=at)[found["y"].notna()])
    return pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)


def value_of(study: Study, row: dict[str, Any], quantity: str, figure: Figure) -> Interval:
    """A training's value of a published quantity; NONE if unknown."""
    rate, efficiency = (
        Interval(*(row[f"{name}{end}"] for end in ("", "_low", "_high", "_n", "_method")))
        for name in ("samples_per_second", "efficiency_none")
    )
    amounts = {"seconds_per_step": row["global_batch"], "seconds_per_sample": row["num_ranks"]}
    if quantity == "throughput":
        return rate
    if amount := (amounts | {"seconds_per_epoch": figure.images_per_epoch}).get(quantity):
        return rate.rate(amount)
    others = select(study.once(trainings), family=row["family"], evidence=row["evidence"])
    if quantity == "relative_throughput":
        base = select(others, backend=figure.relative_to, num_ranks=row["num_ranks"])
        return NONE if row["backend"] == figure.relative_to else _over(study, row["cell"], base)
    if quantity not in RATIOS:
        return NONE
    x = X_OF[figure.x_unit]
    if figure.base_x != 1:  # against our own cell at the publication's base, not 1 rank without communication
        base = select(others, curve=row["curve"], **{x: figure.base_x})
        efficiency = _over(study, row["cell"], base).times(figure.base_x / row[x])
    return efficiency.times(row[x] / figure.base_x) if quantity == "speed_up" else efficiency


def _over(study: Study, cell: str, others: pd.DataFrame) -> Interval:
    """The rate of a cell over that of the first of the others, paired where they ran in the same blocks."""
    rates = study.wide("samples_per_second")
    return ratio(rates[cell], rates[others["cell"].iloc[0]]) if len(others) else NONE


def targets(published: Published) -> pd.DataFrame:
    """Every published number with a place; speed-up and efficiency at the base are left out, where they are 1."""
    rows, figures = published.values, published.figures
    base = rows["figure"].map({name: figure.base_x for name, figure in figures.items()})
    unit = rows["figure"].map({name: figure.x_unit for name, figure in figures.items()})
    placed = (rows["x"] == rows["x_high"]) & (rows["x_unit"] == unit)
    first = rows["statement"].eq("") & rows["quantity"].isin(RATIOS) & (rows["x"] == base)
    known = rows[["low", "high"]].notna().any(axis=1) & ~rows["quantity"].str.endswith(HALF_WIDTH)
    return rows[placed & known & ~first]


def check(
    published: Published,
    publications: Sequence[Publication] = (),
    *,
    studies: Sequence[Study] = (),
    names: Collection[str] = (),
    stand_in: str | None = None,
) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """A row per comparison, per value that follows from others, per shape, and per figure with none of ours.

    Numbers are in base units. Also why public numbers of each figure were not compared. Raises UsageError for an
    unknown figure.
    """
    parts, reasons, public, related = [], {}, targets(published), relations(published)
    for figure in published.named(names):
        rows, why = _comparisons(figure, select(public, figure=figure.id), studies, stand_in)
        claims = [(mark, it) for mark in publications for it in mark.claims if it.figure == figure.id]
        claims = [(mark, it) for mark, it in claims if _is_of_shape(it, published)]
        shapes = [row for pair in claims for row in _shapes(published, *pair, studies, stand_in)]
        if figure.own and any(not it.reference for _, it in claims):
            system = stand_in or figure.own.system
            absent = [] if shapes else [f"no record of ours on {system} that tells the shape of its curves"]
            why = [it for it in why if it != NO_NUMBER] + absent
        nothing = [{"kind": UNKNOWN, "verdict": UNKNOWN, "reasons": why, "tolerance": figure.tolerance}]
        of_shapes = pd.DataFrame(shapes if shapes or len(rows) else nothing)
        for part in (rows, select(related, figure=figure.id), of_shapes):
            part = part.reindex(columns=[*COLUMNS, "least", "most"]).astype(object)
            parts.append(part.assign(figure=figure.id, x_unit=figure.x_unit or None))
        reasons[figure.id] = why
    rows = pd.concat(parts, ignore_index=True)
    return rows.assign(reasons=[it if isinstance(it, list) else [] for it in rows["reasons"]]), reasons


def _comparisons(
    figure: Figure, public: pd.DataFrame, studies: Sequence[Study], stand_in: str | None
) -> tuple[pd.DataFrame, list[str]]:
    """Ours over what is published, and why some of that is not compared."""
    parts, unmatched = [], []
    absent: dict[str, set[float]] = {}  # system -> x without a record of ours
    public = public.rename(columns={"low": "published_low", "high": "published_high"}).reset_index()
    names = ["index", "series", "quantity", "unit", "x", "published_low", "published_high"]
    for (series, quantity), rows in public[names].groupby(["series", "quantity"], sort=False):
        wanted = figure.comparable(series)
        if wanted.lacks(stand_in):
            unmatched.append(figure.label(series))
            continue
        joined = rows.merge(own_points(figure, wanted, quantity, studies, stand_in), on="x", how="left")
        without = joined["name"].isna()
        absent.setdefault(stand_in or wanted.system or "", set()).update(joined.loc[without, "x"])
        parts.append(joined[~without])
    reasons = [] if len(public) else [NO_NUMBER]
    if len(public) and figure.own is None:
        reasons.append("no study of ours measures this")
    elif shown := list(dict.fromkeys(filter(None, unmatched))):
        reasons.append(f"not one of our settings: {' / '.join(shown)}")
    for system, places in absent.items():
        counts = ", ".join(f"{place:g}" for place in sorted(places))
        reasons += [f"no record of ours on {system} ({figure.x_unit}: {counts})"] if counts else []
    found = pd.concat(parts).sort_values("index", kind="stable") if parts else pd.DataFrame()
    return (compared(found, figure.tolerance) if len(found) else found), reasons


def compared(rows: pd.DataFrame, tolerance: float) -> pd.DataFrame:
    """Rows of ours, `y` with `low` and `high`, over the nearest value in what is published, with the verdict."""
    bottom, top = rows["published_low"].fillna(0.0), rows["published_high"].fillna(np.inf)
    ratios = {}
    for end, name in (("ratio", "y"), ("ratio_low", "low"), ("ratio_high", "high")):
        nearest = rows[name].clip(bottom, top)
        ratios[end] = (rows[name] / nearest).where(nearest != 0, np.inf).where(rows[name].notna())
    low, high = (ratios[end].fillna(ratios["ratio"]) for end in ("ratio_low", "ratio_high"))
    within = (1 - tolerance <= low) & (high <= 1 + tolerance)
    outside = (high < 1 - tolerance) | (low > 1 + tolerance)
    verdict = np.select([within, outside], [verdicts.AGREES, verdicts.DISAGREES], OPEN)
    ours = {"ours": rows["y"], "ours_low": rows["low"], "ours_high": rows["high"], "curve": rows["name"]}
    return rows.assign(kind="compared", tolerance=tolerance, verdict=verdict, **ratios, **ours)


def relations(published: Published) -> pd.DataFrame:
    """The values that follow from others of their figure, and those that another publication repeats.

    `ours` stays empty; `ratio_low` and `ratio_high` are what follows.
    """
    rows = published.values
    rows = rows[rows["statement"].eq("") & rows["x"].notna() & ~rows["about"]]
    base = rows["figure"].map({name: figure.base_x for name, figure in published.figures.items()})
    rows = rows.assign(base=base, row=np.arange(len(rows)))
    ratios, keys = rows[rows["quantity"].isin(RATIOS)], ["figure", "series"]
    wanted = [*keys, "x", "low", "high"]
    rates, ups = (rows.loc[rows["quantity"] == name, wanted] for name in ("throughput", "speed_up"))
    both = ratios.merge(rates, on=[*keys, "x"], suffixes=("", "_of")).merge(
        rates.rename(columns={"x": "base"}), on=[*keys, "base"], suffixes=("", "_base")
    )
    is_efficiency, first = both["quantity"] == "efficiency", both["x"] == both["base"]
    scale = (both["base"] / both["x"]).where(is_efficiency, 1.0)
    # A value over itself is 1, whatever it was rounded from.
    both["least"] = (both["low_of"] / both["high_base"]).where(~first, 1.0) * scale
    both["most"] = (both["high_of"] / both["low_base"]).where(~first, 1.0) * scale
    both["relation"] = np.where(is_efficiency, "T(x) b / (T(b) x)", "T(x) / T(b)")
    kept = select(ratios, quantity="efficiency").merge(ups, on=[*keys, "x"], suffixes=("", "_of"))
    kept["least"], kept["most"] = (kept[end] * kept["base"] / kept["x"] for end in ("low_of", "high_of"))
    found = [both, kept.assign(relation="S(x) b / x"), *_same(published)]
    frame = pd.concat([part.astype(object) for part in found]).sort_values("row", kind="stable")
    low, high, least, most = (frame[name].astype(float) for name in ("low", "high", "least", "most"))
    slack = 1e-9 * np.maximum(np.maximum(high.abs(), low.abs()), np.maximum(least.abs(), most.abs()))
    verdict = np.where((low <= most + slack) & (least <= high + slack), CONSISTENT, INCONSISTENT)
    ends = {"published_low": low, "published_high": high, "least": least, "most": most}
    frame = frame.drop(columns=["evidence", "system"])
    return frame.assign(kind="derived consistency", verdict=verdict, **ends)


def _same(published: Published) -> Iterator[pd.DataFrame]:
    """A row of each figure of two values that must be the same."""
    for same in published.same:
        pairs = [(same.a, same.b), (same.b, same.a)]
        for here, there in pairs if same.a.figure != same.b.figure else pairs[:1]:
            row, other = (select(published.at(place), statement="").head(1) for place in (here, there))
            spread = (same.tolerance or 0.0) * other["y"].iloc[0]
            ends = {"least": other["low"].iloc[0] - spread, "most": other["high"].iloc[0] + spread}
            text = f"{there.series} in {there.figure}: {same.note}"
            yield row.assign(relation=text, row=len(published.values), **ends)


def _is_of_shape(claim: Claim, published: Published) -> bool:
    """Whether a claim is of a shape, and not a number at a place, which is compared as such."""
    said = verdicts.statement_of(claim, published)
    number = (
        said is not None and said["x"] == said["x_high"] and not np.isnan([said["low"], said["high"]]).all()
    )
    return claim.check in ("quantity", "ratio", "scaling_ends") and not number


def _shapes(
    published: Published,
    publication: Publication,
    claim: Claim,
    studies: Sequence[Study],
    stand_in: str | None,
) -> Iterator[dict[str, Any]]:
    """A row per curve of ours, or pair of curves, that a claim is about."""
    figure, ends = published.figure(claim.figure), verdicts.published_ends(claim, published)
    if claim.reference:
        curves = _reference_curves(published, claim)
    else:
        curves = (it for study in studies for it in _own_curves(publication, claim, figure, study, stand_in))
    for name, points in curves:
        bands, reached = _bands(publication, claim, figure, points)
        if bands:
            ours, last = verdicts.worst_of(bands, ends, tolerance=0.0), points.iloc[-1]
            verdict = verdicts.verdict_of(ours, ends, tolerance=0.0)
            row: dict[str, Any] = {"kind": "shape", "claim": claim.statement, "quantity": claim.compared}
            row |= {"curve": name, "published_low": ends[0], "published_high": ends[1], "up_to": last["x"]}
            row |= dict(zip(("ours_low", "ours", "ours_high"), ours.tolist(), strict=True))
            row["verdict"] = verdict if reached and verdict != verdicts.CANNOT_TELL else OPEN
            yield row | last[["evidence", "system", "study"]].to_dict()


def _reference_curves(published: Published, claim: Claim) -> Iterator[tuple[str, pd.DataFrame]]:
    """The ratio of two series that were measured here for the figure; their intervals are independent."""
    rows = verdicts.reference_pair(claim, published)
    if len(rows) == 2 and (pair := claim.reference):
        above, below = rows[["low", "y", "high"]].to_numpy()
        ratios = dict(zip(("low", "y", "high"), above / below[::-1], strict=True))
        study = f"reference/series/{pair.file}.json"
        yield " over ".join(pair.series), rows[:1].assign(**ratios, study=study)


def _own_curves(
    publication: Publication, claim: Claim, figure: Figure, study: Study, stand_in: str | None
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Name and points, ascending, of each curve of ours that a claim is about; of a ratio, of each pair of curves."""
    quantity = {"ratio": "throughput", "scaling_ends": "efficiency"}.get(claim.check, claim.quantity)
    curves = [(it.figures.get(figure.id, ""), it.backend) for it in map(publication.curve, claim.curves)]
    pairs = [("", backend) for backend in claim.ours] or curves
    wanted = [figure.comparable(series).narrowed(Own(backend=backend)) for series, backend in pairs]
    if any(own.lacks(stand_in) for own in wanted):
        return
    points = [own_points(figure, own, quantity, [study], stand_in).sort_values("x") for own in wanted]
    sides = [list(it.groupby(["name", "evidence", "family"], sort=False)) for it in points]
    if claim.check != "ratio":
        yield from ((name, own) for side in sides for (name, *_), own in side)
        return
    for (name, *kind), above in sides[0]:
        for (other, *its_kind), below in sides[1]:
            both = above.merge(below[["x", "cell"]], on="x", suffixes=("", "_below"))
            if name != other and kind == its_kind and len(both):
                rates = study.wide("samples_per_second")
                cells = zip(both["cell"], both["cell_below"], strict=True)
                ratios = [ratio(rates[cell], rates[its]) for cell, its in cells]
                yield f"{name} over {other}", both.assign(**pd.DataFrame(ratios, columns=VALUE))


def _bands(
    publication: Publication, claim: Claim, figure: Figure, points: pd.DataFrame
) -> tuple[list[Floats], bool]:
    """What our curve has of what is claimed, at each of its sizes, and whether it goes as far."""
    places = points["x"].to_numpy()
    ends = np.array([points[end].fillna(points["y"]) for end in ("low", "y", "high")]).T
    if claim.check == "scaling_ends":
        if len(ends) < 2:
            return [], False
        low, end, high = verdicts.end_of([*zip(places, ends, strict=True)], claim.threshold or (1.0, 1.0))
        # The largest power of two that a curve keeps lies below half of the next size at which it does not.
        fallen = min(places[places > high], default=np.inf)
        return [np.array([low, end, max(high, fallen / 2)])], True
    first, last = map(float, claim.sizes)
    if claim.curves:
        curve = publication.curve(claim.curves[0])
        first, last = (x_of(figure, curve, size) for size in claim.sizes)
    begin = 0.0 if first == last else first
    inside = (places <= last) & (places >= begin) & ((places > figure.base_x) | bool(claim.reference))
    bands = list(ends[inside])
    return bands[-1:] if first == last else bands, bool(inside.any()) and places[inside][-1] == last
