"""The verdict: what a study found about scaling, in a few sentences for the head of every output.

A backend is called the best only if the declared comparisons put it before every other one; of a busy machine and of a
single launch nothing is claimed. Trainings to a target have a separate verdict (`solution`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from dlscale.analysis.finding import Column, Finding
from dlscale.analysis.findings import cautions, comparison, scaling
from dlscale.analysis.load import Study
from dlscale.analysis.text import interval, number, percent, plural

MOST_TRAININGS = 3  # each with a sentence; of more the range
ENOUGH = 0.8  # of the ideal speed


def verdict(study: Study) -> pd.DataFrame:
    """One row per sentence."""
    return pd.DataFrame({"text": list(_sentences(study))}, columns=["text"], dtype=object)


def _sentences(study: Study) -> Iterator[str]:
    rows = scaling.FINDING.of(study)
    trained = rows[(rows["control"] == "train") & (rows["target"] == "")]
    if trained.empty:
        return
    measured = trained[trained["samples_per_second"].notna()]
    if measured.empty:
        yield f"No case gave a number so far; {trained['num_planned'].sum()} are planned."
        return
    compared = comparison.FINDING.of(study)
    trainings = [own for _, own in measured.groupby("family", sort=True)]
    if len(trainings) > MOST_TRAININGS:
        yield from _range(trainings)
    else:
        for own in trainings:
            start = f"{own['training'].iloc[0]}: " if len(trainings) > 1 else ""
            yield start + _of_training(own, compared[compared["family"] == own["family"].iloc[0]])
    if len(compared) and not cautions.is_busy(study):
        yield from comparison.FINDING.sentence(compared).splitlines()[:MOST_TRAININGS]


def _last(own: pd.DataFrame) -> pd.DataFrame:
    """The rows with a throughput that exchange, or else all, on their largest number of ranks."""
    exchanging = own[own["is_exchanging"]] if own["is_exchanging"].any() else own
    return exchanging[exchanging["num_ranks"] == exchanging["num_ranks"].max()]


def _range(trainings: list[pd.DataFrame]) -> Iterator[str]:
    """The range of efficiencies of several trainings, which no comparison ranks."""
    rated = pd.concat([_last(own) for own in trainings])
    rated = rated[rated["efficiency_none"].notna() & (rated["num_ranks"] > rated["base_ranks"])]
    if len(rated):
        ends = rated.sort_values("efficiency_none").iloc[[0, -1]].to_dict("records")
        between = " to ".join(percent(row, "efficiency_none") for row in ends)
        yield f"Scaling efficiency of {plural(len(rated), 'curve')}: {between}; they are not compared with each other."


def _of_training(own: pd.DataFrame, compared: pd.DataFrame) -> str:
    last = _last(own)
    if own["num_ranks"].max() == 1:
        return "Only 1 rank gave numbers: scaling needs a second number of ranks."
    return _ranking(last, compared) + _tokens(last) + _strong(last) + _reach(own)


def _ranking(last: pd.DataFrame, compared: pd.DataFrame) -> str:
    """The range of efficiencies on the most ranks, and the one that leads if the comparisons together say so."""
    ranks = plural(last["num_ranks"].iloc[0], "rank")
    name = "efficiency_none" if last["efficiency_none"].notna().any() else "efficiency_backend"
    base = plural(last["base_ranks"].iloc[0], "rank")
    against = "" if name == "efficiency_none" else f" against {base} of the same backend"
    rated = last[last[name].notna()].sort_values(name, ascending=False).to_dict("records")
    if not rated:
        rates = last.sort_values("samples_per_second").iloc[[0, -1]].to_dict("records")
        between = " to ".join(dict.fromkeys(interval(row, "samples_per_second") for row in rates))
        return f"Throughput on {ranks}: {between} samples/s; no efficiency: no base case."
    best, worst = rated[0], rated[-1]
    if len(rated) == 1:
        against = against if best["is_exchanging"] else ", without communication"
        return f"{best['name']} has a scaling efficiency of {percent(best, name)} on {ranks}{against}."
    if not against and _leads(best["cell"], {row["cell"] for row in rated[1:]}, compared):
        rest = percent(rated[1], name)
        others = (
            f"{worst['name']}: {rest}" if len(rated) == 2 else f"the others: {percent(worst, name)} to {rest}"
        )
        first = f"{best['name']} has the highest scaling efficiency on {ranks}: {percent(best, name)}"
        return f"{first}; {others}."
    between = f"{percent(worst, name)} to {percent(best, name)}"
    return f"Scaling efficiency on {ranks}{against}: {between}; no backend is shown to lead."


def _leads(best: str, others: set[str], compared: pd.DataFrame) -> bool:
    """Whether `best` is the reference or faster than it, and all others are the reference or slower.

    All comparisons are against one reference, and all claims hold jointly.
    """
    compared = compared[compared["cell"].isin({best, *others}) & (compared["factor"] == "backend")]
    references = set(compared["reference_cell"])
    faster, slower = (set(compared.loc[compared["verdict"] == name, "cell"]) for name in ("faster", "slower"))
    return len(references) == 1 and best in faster | references and others <= slower | (references - {best})


def _tokens(last: pd.DataFrame) -> str:
    """The range of throughputs in tokens; empty where samples are no sequences."""
    rates = sorted(last["tokens_per_second"].dropna())
    ends = dict.fromkeys(number(rate) for rate in (rates[0], rates[-1])) if rates else ()
    return f" Throughput: {' to '.join(ends)} tokens/s." if ends else ""


def _strong(last: pd.DataFrame) -> str:
    """How many times as fast strong scaling is; whether it pays at all."""
    rated = last[(last["scaling_mode"] == "strong") & last["is_exchanging"]]
    efficiency = rated["efficiency_none"].fillna(rated["efficiency_backend"])
    times = (efficiency * rated["num_ranks"] / rated["base_ranks"]).dropna().sort_values()
    if times.empty:
        return ""
    ends = " to ".join(dict.fromkeys(number(each) for each in times.iloc[[0, -1]]))
    split = " or ".join(f"{split:g}" for split in sorted(set(rated["split"])))
    shared = f", {split} ranks per sample," if rated["split"].max() > 1 else ""
    pays = "" if times.iloc[-1] > 1 else ": more ranks do not pay here"
    base = plural(rated["base_ranks"].iloc[0], "rank")
    ranks = plural(rated["num_ranks"].iloc[0], "rank")
    return f" A step on {ranks}{shared} is {ends} times as fast as on {base}{pays}."


def _reach(own: pd.DataFrame) -> str:
    """The most ranks that keep 80 % of the ideal speed for certain; where three sizes or more were measured."""
    rows = own[own["is_exchanging"] & own["efficiency_none"].notna() & (own["num_ranks"] > own["base_ranks"])]
    if rows["num_ranks"].nunique() < 3:
        return ""
    kept = rows[rows["efficiency_none_low"] >= ENOUGH]
    if kept.empty:
        return f" No backend is shown to keep {100 * ENOUGH:.0f} %."
    row = kept.sort_values("num_ranks").iloc[-1]
    return f" {row['name']} keeps {100 * ENOUGH:.0f} % up to {plural(row['num_ranks'], 'rank')}."


FINDING = Finding(
    name="verdict",
    title="Verdict",
    compute=verdict,
    columns={"text": Column("a sentence of the verdict")},
    sentence=lambda frame: "\n".join(frame["text"]),
    on_screen=True,
    is_answer=True,
)
