"""Communication: what the exchange adds to a step, what it takes by itself, and how much of it is overlapped.

Exposed communication: extra time per step compared with `none` on the same number of ranks; it includes waiting.
Control `exchange` averages the training's buckets one after the other, without computing. Before each bucket the ranks
rewrite it and synchronise, outside the timed region; so a step's exchange is the sum of its buckets, of the slowest
rank, and a launch's value is the median over its windows.

A step should take, with the computation of `none` in the same blocks, computation + exchange in line, and between the
longer one and the sum where they overlap. The waterfall's communication and waiting over the time of the exchange by
itself is the share that is not overlapped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis import theme
from dlscale.analysis.declaration import CURVE
from dlscale.analysis.finding import (
    COUNT,
    ENDS,
    MILLISECONDS,
    PLACE,
    SHARE,
    Column,
    Drawing,
    Finding,
    frame_of,
    on_most_ranks,
)
from dlscale.analysis.findings import comparison, waterfall
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import NONE, difference, median_interval, ratio
from dlscale.analysis.text import digits, interval, listed, number, percent, plural, size_text
from dlscale.benchmarks.records.collective_operations import BY_NAME
from dlscale.benchmarks.records.record import Record

GIGA = 1e-9
IN_LINE = "in line"  # as the exchange of attempts
MOST_NAMED = 8  # curves in words
INTERVALS = (
    *("measured_seconds", "computation_seconds", "exposed_communication", "exchange_seconds", "hidden"),
    *("measured_over_sum", "hidden_of_prediction", "algbw_gb_per_second", "busbw_gb_per_second"),
)
NUMBERS = (
    *(name + end for name in INTERVALS for end in ENDS),
    *("predicted_low_seconds", "predicted_high_seconds", "step_bytes", "bucket_bytes", "num_buckets"),
)


def communication(study: Study) -> pd.DataFrame:
    """One row per training over a backend on several ranks, and one per size of its buckets if they were measured."""
    cells = study.cells[(study.cells["num_ranks"] > 1) & study.cells["is_exchanging"]]
    buckets = dict([*study.once(_buckets).groupby("cell")])
    exchanges = {train: key for key, train in cells.loc[cells["control"] == "exchange", "train"].items()}
    modes = study.good[study.good["exchange"] != ""].groupby("cell")["exchange"].unique()
    verdicts, rows = _verdicts(study), list[dict[str, Any]]()
    good = study.trained.loc[study.trained["num_launches"] > 0].index
    for key, cell in cells[(cells["control"] == "train") & cells.index.isin(good)].iterrows():
        mode = modes.get(key, [""])
        row = {"cell": key, "exchange": mode[0] if len(mode) == 1 else "mixed"}
        row["verdict"] = verdicts.get(key, "cannot be shown")
        alone = buckets.get(exchanges.get(key), pd.DataFrame())
        rows.append(row | _step(study, key, cell["own_none"], alone, row["exchange"]))
        rows += ({"cell": key, **one} for one in _sizes(alone, cell["num_ranks"]))
    texts = ("exchange", "verdict", "notes")
    frame = frame_of(rows, "cell", *NUMBERS, *texts).astype(dict.fromkeys(NUMBERS, float))
    return frame.astype(dict.fromkeys(texts, object)).fillna(dict.fromkeys(texts, ""))


def _verdicts(study: Study) -> dict[str, str]:
    """The verdict on each training versus another backend, or that it is a reference."""
    pairs = comparison.FINDING.of(study)
    alike = pairs["reference_cell"].map(study.cells["family"]) == pairs["cell"].map(study.cells["family"])
    pairs = pairs[pairs["factor"].isin(["backend", CURVE]) & alike]
    own = dict(zip(pairs["cell"], pairs["verdict"], strict=True))
    return dict.fromkeys(pairs["reference_cell"], "reference") | own


# The exchange by itself


def _buckets(study: Study) -> pd.DataFrame:
    """One row per launch of control `exchange` and size of bucket; `cut` are the sizes of a step's buckets."""

    def make(record: Record) -> Iterator[dict[str, Any]]:
        sizes, each = record.bucket_bytes, record.counted.bucket_seconds  # [W, P, buckets], over all steps
        if each is None or each.shape[2] != len(sizes) or not (each > 0).all():
            return
        times = each / record.counted.num_steps[:, None, None]
        common = {"cut": str(sizes), "step_bytes": sum(sizes)}
        common["step_seconds"] = np.median(times.sum(axis=2).max(axis=1))
        for size, count in sorted(Counter(sizes).items()):
            own = times[:, :, np.array(sizes) == size].mean(axis=2).max(axis=1)
            yield {**common, "bucket_bytes": size, "num_buckets": count, "bucket_seconds": np.median(own)}

    numbers = ("step_bytes", "step_seconds", "bucket_bytes", "num_buckets", "bucket_seconds")
    found = study.rows(make, {"cut": str, **dict.fromkeys(numbers, float)}, controls=("exchange",))
    # Launches whose training cut other buckets than most are left out.
    launches = found.drop_duplicates("number").groupby("cell")["cut"]
    usual = launches.agg(lambda cuts: cuts.value_counts().index[0]) if len(found) else {}
    return found[found["cut"] == found["cell"].map(usual)]


def _sizes(alone: pd.DataFrame, num_ranks: int) -> Iterator[dict[str, Any]]:
    """A row per size of bucket: the slowest rank's mean time of one, the median over launches."""
    bus_factor = BY_NAME["allreduce"].bus_factor(num_ranks)
    for size, own in alone.groupby("bucket_bytes") if len(alone) else ():
        seconds = median_interval(own["bucket_seconds"])
        yield {
            "bucket_bytes": size,
            "num_buckets": own["num_buckets"].iloc[0],
            **seconds.columns("exchange_seconds"),
            **seconds.rate(size * GIGA).columns("algbw_gb_per_second"),
            **seconds.rate(size * GIGA * bus_factor).columns("busbw_gb_per_second"),
        }


# The step


def _step(study: Study, key: str, own_none: str | None, alone: pd.DataFrame, mode: str) -> dict[str, Any]:
    """The time that the exchange adds to the step, and, where it was measured by itself, the predicted step."""
    steps = study.wide("step_seconds")
    own, none = steps[key], steps.get(own_none, pd.Series(np.nan, steps.index))
    exposed = ratio(own, none).mapped(lambda value: value - 1) if (own.notna() & none.notna()).any() else NONE
    row = {
        **median_interval(own).columns("measured_seconds"),
        **median_interval(none).columns("computation_seconds"),
        **exposed.columns("exposed_communication"),
    }
    if alone.empty:
        return row
    launches = alone.drop_duplicates("block").set_index("block")["step_seconds"]
    seconds, num_bytes = median_interval(launches), alone["step_bytes"].iloc[0]
    rate = seconds.rate(num_bytes * GIGA)
    bus_factor = BY_NAME["allreduce"].bus_factor(study.cells.at[key, "num_ranks"])
    row |= {
        "step_bytes": num_bytes,
        **seconds.columns("exchange_seconds"),
        **rate.columns("algbw_gb_per_second"),
        **rate.times(bus_factor).columns("busbw_gb_per_second"),
    }
    shares, hidden = study.once(waterfall.waiting_shares), NONE
    if mode != IN_LINE and key in shares:
        exchange = launches.reindex(own.index)
        hidden = difference(own, own * (1 - shares[key].reindex(own.index)), exchange).complement()
    return row | hidden.columns("hidden") | _prediction(own, none, launches, mode)


def _prediction(own: pd.Series, none: pd.Series, alone: pd.Series, mode: str) -> dict[str, Any]:
    """The predicted and the measured step, over the blocks common to training, computation and exchange."""
    steps = pd.DataFrame({"measured": own, "computation": none, "exchange": alone}).dropna()
    if steps.empty:
        return {
            "notes": "no block in common with none on the same number of ranks and with communication only"
        }
    computation, exchange = np.exp(np.log(steps[["computation", "exchange"]]).mean())
    longer, shorter = ("computation", "exchange") if exchange <= computation else ("exchange", "computation")
    hidden = NONE
    if mode != IN_LINE:  # (computation + exchange - measured) / shorter
        hidden = difference(steps["measured"], steps[longer], steps[shorter]).complement()
    return {
        "predicted_low_seconds": computation + exchange if mode == IN_LINE else max(computation, exchange),
        "predicted_high_seconds": computation + exchange,
        **ratio(steps["measured"], steps["computation"] + steps["exchange"]).columns("measured_over_sum"),
        **hidden.columns("hidden_of_prediction"),
    }


# In words and drawn


def sentence(frame: pd.DataFrame) -> str:
    """The time that each backend adds to a step on the most ranks, and a line on each exchange by itself."""
    rows, lines = on_most_ranks(frame[frame["bucket_bytes"].isna()]), []
    for training, own in rows.groupby("training", sort=False):
        added = own[own["exposed_communication"].notna()].head(MOST_NAMED)
        names = [f"{row['name']} {percent(row, 'exposed_communication')}" for row in added.to_dict("records")]
        several = f"{training}: " if rows["training"].nunique() > 1 else ""
        if names:
            ranks = plural(own["num_ranks"].iloc[0], "rank")
            lines.append(f"{several}Communication adds to a step on {ranks}: {listed(names)}.")
        measured = own[own["exchange_seconds"].notna()].head(MOST_NAMED).to_dict("records")
        lines += [f"{several}{row['name']}: {_alone(row)}" for row in measured]
    return "\n".join(lines)


def _alone(row: Mapping[str, Any]) -> str:
    took = interval(row, "exchange_seconds", factor=1e3, unit=" ms")
    size, rate = number(row["step_bytes"] / 1e6), number(row["busbw_gb_per_second"])
    text = f"the exchange of {size} MB takes {took} by itself, at {rate} GB/s (busbw)"
    if row["exchange"] == IN_LINE:
        return f"{text}; it is not overlapped."
    if np.isnan(row["hidden"]):
        return f"{text}; how much of it is overlapped is not known."
    if (hidden := row["hidden"]) < 0:
        return f"{text}; it is not overlapped, and in training it takes {1 - hidden:.2f} times as long."
    return f"{text}; {percent(row, 'hidden')} of it is overlapped with the computation."


def draw(rows: pd.DataFrame, axes: theme.Axes) -> None:
    """Bus bandwidth over the size of a bucket."""
    theme.points(axes, rows, "busbw_gb_per_second", x="bucket_bytes")
    theme.log_axis(axes.xaxis, base=4)
    axes.set_xlim(rows["bucket_bytes"].min() / 2, 2 * rows["bucket_bytes"].max())
    axes.xaxis.set_major_formatter(lambda value, _: size_text(value))
    axes.set(
        ylim=(0, None),
        xlabel=f"size of a bucket, {plural(rows['num_ranks'].iloc[0], 'rank')}",
        ylabel="bus bandwidth [GB/s]",
    )
    axes.legend()


WHOLE = SHARE | {"write": digits(0)}
FINDING = Finding(
    name="communication",
    title="Communication",
    compute=communication,
    columns={
        **PLACE,
        "exchange": Column("how the backend exchanges: in line, overlapped, or mixed", "exchange"),
        "measured_seconds": Column("a step, median launch"),
        "computation_seconds": Column("a step of none on the same number of ranks"),
        "exposed_communication": Column("extra time per step compared with none", "added", **WHOLE),
        "verdict": Column("of the declared comparison with another backend, or that it is a reference"),
        "hidden": Column("overlapped share of the exchange, stragglers excluded", "overlapped", **WHOLE),
        "predicted_low_seconds": Column("the step with all of the exchange overlapped that can be"),
        "predicted_high_seconds": Column("computation plus exchange"),
        "measured_over_sum": Column("step over computation plus exchange", "step/sum", **WHOLE),
        "hidden_of_prediction": Column(
            "0: the step takes the sum; 1: the longer of computation and exchange"
        ),
        "step_bytes": Column("bytes that a step exchanges"),
        "bucket_bytes": Column("size of a bucket; none: a row on the step", "bucket", write=size_text),
        "num_buckets": Column("buckets of that size in a step", "of them", write=COUNT),
        "exchange_seconds": Column(
            "the slowest rank's time of one bucket, or of a step's, without computation",
            "alone",
            **MILLISECONDS,
        ),
        "algbw_gb_per_second": Column("bytes over seconds of the exchange without computation"),
        "busbw_gb_per_second": Column("algbw x 2 (P - 1) / P on P ranks", "busbw", "GB/s"),
        "notes": Column("what is missing", "notes"),
    },
    sentence=sentence,
    drawings=(
        Drawing(
            name="busbw",
            draw=draw,
            rows=lambda frame: on_most_ranks(frame[frame["bucket_bytes"].notna()]),
            about="Bus bandwidth of the exchange by itself over the size of a bucket.",
        ),
    ),
)
