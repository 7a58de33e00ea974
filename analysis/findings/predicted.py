"""Predictions next to what a study measured: which belong to it, and how wrong they are.

A prediction belongs to the family that trains what it states: system, workload, preset, framework, scaling mode and
batch. It is compared with the training over the same backend, with the same of the options that predictions model, on
the same number of ranks, nodes and servers. No measured number contains a prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis import theme
from dlscale.analysis.finding import COUNT, ENDS, PLACE, SHARE, Column, Drawing, Finding, frame_of
from dlscale.analysis.findings import scaling
from dlscale.analysis.load import Study
from dlscale.analysis.text import digits, listed, plural, settings_text
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.prediction import HARMLESS, PredictionRecord
from dlscale.collectives.algorithms import SYNC
from dlscale.collectives.capabilities import CONTROL

STATED = ("system", "workload", "preset", "framework", "scaling_mode", "batch")  # what a family must share
SIZE = ("num_ranks", "num_nodes", "num_servers")


def predicted(study: Study) -> pd.DataFrame:
    """One row per prediction that belongs to the study, by training, backend and size."""
    rows = [row for record in study.predictions if (row := _placed(study, record))]
    ends = (f"{name}{end}" for name in BANDS for end in ENDS)
    frame = frame_of(rows, "family", "is_exchanging", *COLUMNS, *ends)
    frame = frame.sort_values(["family", "is_exchanging", "curve", *SIZE]).reset_index(drop=True)
    twice = frame[frame.duplicated(["family", "curve", *SIZE])]
    if len(twice):
        row = twice.iloc[0]
        raise UsageError(
            f"two predictions of {_where(row)}, {row['training']}; give the files of one with --predicted"
        )
    return frame


def not_shown(study: Study) -> list[str]:
    """A sentence for each training whose predictions belong to no training of the study, or to several."""
    left: dict[tuple[str, int], int] = {}
    for record in study.predictions:
        count = len(_families(study, record))
        if count != 1:
            left[stated(record), count] = left.get((stated(record), count), 0) + 1
    several = (
        "such trainings, which differ in what predictions do not state (precision, compilation, data ...)"
    )
    return [
        f"{plural(count, 'prediction')} of {text}: the study has {f'{num} {several}' if num else 'no such training'}"
        for (text, num), count in left.items()
    ]


def stated(record: PredictionRecord) -> str:
    """`hep_cnn paper in torch, weak scaling on cori, batch 128`: what has to be equal to what a study trains."""
    what = f"{record.workload} {record.preset} in {record.framework}"
    return f"{what}, {record.scaling_mode} scaling on {record.system}, batch {record.batch}"


def _families(study: Study, record: PredictionRecord) -> list[pd.DataFrame]:
    """The trainings of each family that the prediction may belong to."""
    rows = scaling.FINDING.of(study)
    rows = rows[rows["control"] == "train"]
    for name in STATED:
        rows = rows[rows[name] == getattr(record, name)]
    return [own for _, own in rows.groupby("base_family")]


def _placed(study: Study, record: PredictionRecord) -> dict[str, Any]:
    """The prediction as a row, with what was measured at its size; empty if it belongs to no family."""
    families = _families(study, record)
    if len(families) != 1:
        return {}
    (own,) = families
    same = own[[_is_same(record, row) for row in own.to_dict("records")]]
    at = same[same["samples_per_second"].notna()]
    for name, value in zip(SIZE, (record.num_ranks, record.num_all_nodes, record.num_servers), strict=True):
        at = at[at[name] == value]
    measured = at.sort_values("evidence", ascending=False).to_dict("records")  # measured before emulated
    options = settings_text(record.backend_options)
    curve = f"{record.carrier} ({options})" if options else record.carrier
    row: dict[str, Any] = {name: own[name].iloc[0] for name in ("family", "training", *STATED[:-1])}
    row |= {
        "backend": record.backend,
        "is_exchanging": record.backend != CONTROL,
        "curve": same["curve"].iloc[0] if len(same) else curve,
        "num_ranks": record.num_ranks,
        "num_nodes": record.num_all_nodes,
        "num_servers": record.num_servers,
        "evidence": record.evidence,
        "engine": f"{record.engine} {record.engine_version}",
        "doubts": "; ".join(record.doubts),
    }
    for name, band in zip(BANDS, (record.samples_per_second, record.efficiency), strict=False):
        known = name == "samples_per_second" or own["base_ranks"].iloc[0] == 1
        ends = zip(ENDS, (band.center, band.low, band.high, record.num_replicates), strict=True)
        row |= {f"{name}{end}": value if known else np.nan for end, value in ends}
    if measured:
        found, rate = measured[0], record.samples_per_second
        center = found["samples_per_second"]
        row |= {f"measured_samples_per_second{end}": found[f"samples_per_second{end}"] for end in ENDS}
        row |= {"measured_evidence": found["evidence"], "error": rate.center / center - 1}
        row["inside_band"] = rate.low <= center <= rate.high
    return row


BANDS = ("samples_per_second", "efficiency_none", "measured_samples_per_second")


def _is_same(record: PredictionRecord, row: Mapping[str, Any]) -> bool:
    """Whether a training is over the same backend, in what predictions model."""

    def modelled(text: str) -> set[str]:
        return {part for part in text.split(", ") if part.partition("=")[0] not in HARMLESS | {""}}

    is_usual = row["algorithm"] == SYNC and row["split"] == 1
    same = row["backend"] == record.backend and row["shard"] == record.shard
    options = settings_text(record.backend_options)
    return is_usual and same and modelled(row["backend_options"]) == modelled(options)


def _where(row: Mapping[str, Any]) -> str:
    return f"{row['curve']} on {plural(row['num_ranks'], 'rank')} ({plural(row['num_nodes'], 'node')})"


def sentence(frame: pd.DataFrame) -> str:
    """How wrong the predictions are where something is measured, and why not to trust them."""
    doubted = frame[frame["doubts"] != ""]
    lines = []
    if len(doubted):
        names, doubts = (listed(dict.fromkeys(doubted[name])) for name in ("curve", "doubts"))
        lines.append(f"Predictions over {names} are not to be trusted: {doubts}.")
    compared = frame[frame["error"].notna()]
    if len(compared):
        worst = compared.loc[compared["error"].abs().idxmax()]
        typical, most = 100 * compared["error"].abs().median(), 100 * worst["error"]
        lines.append(
            f"Predictions (simulated) of {plural(len(compared), 'measured size')}: {compared['inside_band'].sum()} "
            f"inside the band; off by {typical:.1f} % in the median, by {most:+.1f} % at worst ({_where(worst)})."
        )
    else:
        lines.append("Predictions (simulated): nothing was measured at their sizes.")
    return "\n".join(lines)


def draw(rows: pd.DataFrame, axes: theme.Axes) -> None:
    """Predicted throughput as bands, measured throughput as filled points: no line joins the two."""
    for curve, own, look in theme.curves(rows):
        x, points = own["num_ranks"], own[own["measured_samples_per_second"].notna()]
        low, high = (own[f"samples_per_second_{end}"] for end in ("low", "high"))
        axes.fill_between(x, low, high, color=look["color"], alpha=0.12, linewidth=0)
        axes.plot(x, own["samples_per_second"], label=curve, **look)
        center, *limits = (points[f"measured_samples_per_second{end}"] for end in ENDS[:3])
        style = {"yerr": theme.lengths(center, *limits), "fmt": look["marker"], "color": look["color"]}
        axes.errorbar(points["num_ranks"], center, capsize=2, **style)
    theme.rank_axis(axes, rows)
    theme.log_axis(axes.yaxis)
    axes.set_ylabel("throughput [samples/s]")
    axes.legend()


COLUMNS = {
    "training": PLACE["training"],
    **{name: Column(name.replace("_", " ")) for name in (*STATED[:-1], "backend")},
    "curve": Column("backend with its options", "backend"),
    "num_ranks": PLACE["num_ranks"],
    "num_nodes": Column("nodes of ranks and servers", "nodes", write=COUNT),
    "num_servers": Column("parameter servers"),
    "samples_per_second": Column(
        "predicted throughput and what 90 % of the replicates lie between", "predicted", "samples/s"
    ),
    "efficiency_none": Column(
        "predicted efficiency against 1 rank without communication", "vs 1 rank", **SHARE
    ),
    "measured_samples_per_second": Column("measured throughput at this size", "measured", "samples/s"),
    "measured_evidence": Column("measured or emulated"),
    "error": Column("predicted / measured throughput - 1", "error", **SHARE | {"write": digits(1, sign="+")}),
    "inside_band": Column("whether the measured throughput is inside the band", "inside"),
    "evidence": Column("simulated: nothing was run"),
    "engine": Column("what computes exchanges"),
    "doubts": Column("why it is not to be trusted", "doubts", is_detail=True),
}
FINDING = Finding(
    name="predicted",
    title="Predicted, not measured",
    compute=predicted,
    columns=COLUMNS,
    sentence=sentence,
    drawings=(
        Drawing(
            name="predicted",
            draw=draw,
            about="Predicted throughput (bands, open marks) and measured throughput (filled).",
        ),
    ),
    on_screen=True,
    is_answer=True,
)
