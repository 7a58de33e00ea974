"""Comparisons: which of two is faster, all declared before a number is looked at, and corrected together.

A comparison has the ratio of throughputs from paired blocks, an exact sign-flip test, Holm's correction over all
comparisons declared together, the effect size and a verdict. A side that failed counts in the correction, too: it makes
no other claim easier. docs/metrics.md explains the method.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis import statistics
from dlscale.analysis.declaration import PAIR, declared
from dlscale.analysis.finding import COUNT, PLACE, Column, Finding, frame_of, on_most_ranks
from dlscale.analysis.findings.cautions import is_busy
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import LEVEL, NONE, Interval
from dlscale.analysis.text import digits, plural, with_limits
from dlscale.base.errors import UsageError

BAND = 0.02  # of throughput: a smaller difference does not matter in practice
BUSY = "the machine was busy"
NAMED = 3  # comparisons in one sentence


def comparison(study: Study) -> pd.DataFrame:
    """One row per comparison that the study declares; none where there are no two values to compare."""
    try:
        pairs, _ = declared(study)
    except UsageError:  # no error in a report
        pairs = frame_of([], *PAIR)
    return tested(study, pairs)


# Tests of what was declared


def tested(study: Study, pairs: pd.DataFrame) -> pd.DataFrame:
    """The pairs with their ratios of throughput, above 1 where the contender is faster, tests and verdicts."""
    return judged(pairs, study.wide("samples_per_second"), BUSY if is_busy(study) else "")


def judged(pairs: pd.DataFrame, rates: pd.DataFrame, unclaimable: str = "") -> pd.DataFrame:
    """The tests of pairs whose cells are columns of `rates`; `unclaimable` is why nothing is claimed of any."""
    sides = [(rates[pair.cell], rates[pair.reference_cell]) for pair in pairs.itertuples()]
    logs = [statistics.known(np.log(over / under)) for over, under in sides]
    p_values = [statistics.sign_flips(own) for own in logs]
    adjusted = statistics.holm([1.0 if np.isnan(p) else p for p in p_values])
    reachable = statistics.holm([statistics.smallest_p(len(own)) for own in logs])
    needed = statistics.blocks_needed(len(pairs)) if len(pairs) else 0
    rows: list[dict[str, Any]] = []
    for place, pair in enumerate(pairs.to_dict("records")):
        (over, under), own = sides[place], logs[place]
        found = statistics.ratio(over, under)
        why = _why_unpaired(pair, over, under) or unclaimable
        verdict = "cannot be shown" if why else _verdict(found, adjusted[place], reachable[place])
        if verdict == "cannot be shown" and not why:
            many = plural(len(pairs), "comparison")
            why = f"too few launches: {len(own)} cannot decide {many}, --launches {needed} can"
        rows.append(
            {
                **pair,
                **found.columns("ratio"),
                "ratio_median": statistics.block_median(over, under),
                **statistics.effect_size(own).columns("effect"),
                "p_value": p_values[place],
                "p_adjusted": adjusted[place] if len(own) else np.nan,
                "num_blocks": len(own),
                "blocks_needed": needed,
                "verdict": verdict,
                "reason": why,
            }
        )
    return frame_of(rows, *PAIR, *_NUMBERS)


_NUMBERS = (
    *NONE.columns("ratio"),
    *("ratio_median", *NONE.columns("effect")),
    *("p_value", "p_adjusted", "num_blocks", "blocks_needed", "verdict", "reason"),
)


def _why_unpaired(pair: Mapping[str, Any], over: pd.Series, under: pd.Series) -> str:
    """The reason why there is no paired test; empty if there is one."""
    for name, rates in ((pair["contender"], over), (pair["reference"], under)):
        if rates.isna().all():
            return f"every launch of {name} failed"
    if (over.notna() & under.notna()).any():
        return ""
    return "no block in common, so what changed on the machine between their launches is in the ratio"


def _verdict(found: Interval, p_adjusted: float, reachable: float) -> str:
    """The first verdict that holds: alike, faster or slower, too few blocks, not shown.

    `reachable` is the smallest adjusted probability that so many blocks can have. The band of what is alike is
    symmetric for a ratio and its inverse.
    """
    if found.low > 1 / (1 + BAND) and found.high < 1 + BAND:
        return "alike"
    if p_adjusted <= 1 - LEVEL and (found.low > 1 or found.high < 1):
        return "faster" if found.low > 1 else "slower"
    return "not shown" if reachable <= 1 - LEVEL else "cannot be shown"


# What is said of them


def sentence(frame: pd.DataFrame) -> str:
    """The results on the most ranks of each training, a line per training; a busy machine is a caution, said there."""
    most = on_most_ranks(frame[frame["reason"] != BUSY])
    several = frame["family"].nunique() > 1
    lines = []
    for training, rows in most.groupby("training", sort=False):
        said = results(rows)
        more = [f"{len(said) - NAMED} more in the table"] if len(said) > NAMED else []
        lines.append(f"{training}: " * several + "; ".join([*said[:NAMED], *more]) + ".")
    return "\n".join(lines)


def results(rows: pd.DataFrame) -> list[str]:
    """A phrase per comparison with a result, claims first, and one for all that lack the same thing."""
    found: dict[str, list[str]] = {verdict: [] for verdict in ("faster", "slower", "alike", "not shown")}
    lacking: dict[str, list[str]] = {}
    for row in rows.to_dict("records"):
        where = f" over {row['over']}" * bool(row["over"]) + f" on {plural(row['num_ranks'], 'rank')}"
        over, under = row["contender"], row["reference"]
        if row["verdict"] == "cannot be shown":
            lacking.setdefault(row["reason"], []).append(f"{over} versus {under}{where}")
        elif row["verdict"] == "alike":
            found["alike"].append(f"{over} and {under} are within {100 * BAND:.0f} % of each other{where}")
        else:
            test = f"corrected p {probability(row['p_adjusted'])}, {plural(row['num_blocks'], 'launch')}"
            limits = row["ratio_low"], row["ratio_high"]
            if statistics.disagree(row["ratio"], limits, row["ratio_median"]):
                test += f"; {change(row['ratio_median'])} % in the median block"
            if row["verdict"] == "not shown":
                span = " to ".join(f"{change(limit)} %" for limit in limits)
                text = f"no significant difference between {over} and {under}{where} ({span}, {test})"
            else:
                size = with_limits(row["ratio"], *limits, write=change, unit=" %")
                text = f"{over} is {row['verdict']} than {under}{where} ({size}, {test})"
            found[row["verdict"]].append(text)
    for reason, names in lacking.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        found[reason] = [f"{', '.join(names[:NAMED])}{more}: {reason}"]
    return [text for texts in found.values() for text in texts]


def change(value: float) -> str:
    """A ratio as a change in percent: `+8.1`."""
    return digits(1, sign="+")(100 * (value - 1))


def probability(p: float) -> str:
    """Two digits; never 0."""
    return f"{p:.2g}" if p >= 1e-4 else "< 0.0001"


FINDING = Finding(
    name="comparison",
    title="Comparisons",
    compute=comparison,
    columns={
        **{name: PLACE[name] for name in ("training", "constants")},
        "factor": Column("what is compared"),
        "contender": Column("the first of the two", "compared"),
        "reference": Column("the second", "versus"),
        "over": Column("backend, where it is not what is compared", "over"),
        "num_ranks": PLACE["num_ranks"],
        "ratio": Column(
            "throughput over that of the reference, geometric mean of paired blocks, shown as a difference",
            "throughput",
            "%",
            write=change,
        ),
        "ratio_median": Column("the same of the median block"),
        "effect": Column(
            "mean over standard deviation of the log ratio between blocks: how consistent, not how large",
            "effect",
            write=digits(1),
            is_detail=True,
        ),
        "p_value": Column("exact sign-flip test of the blocks"),
        "p_adjusted": Column("p corrected for all comparisons here (Holm)", "corrected p", write=probability),
        "num_blocks": Column("launches that both have", "launches", write=COUNT),
        "blocks_needed": Column("launches with which a difference can be significant", write=COUNT),
        "verdict": Column(
            f"faster, slower: corrected p at most 5 % and an interval without 0; alike: certainly within "
            f"{100 * BAND:.0f} %",
            "verdict",
        ),
        "reason": Column("why nothing can be shown", "why", is_detail=True),
    },
    sentence=sentence,
)
