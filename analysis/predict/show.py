"""Predictions shown: two frames, of predictions and of what they rest on, on screen, page, figure, in JSON and CSV.

A study without a record, whose `predictions` these are, goes through the renderers of findings as any study does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.text import Text

from dlscale.analysis import theme
from dlscale.analysis.finding import (
    COUNT,
    MILLISECONDS,
    PLACE,
    SHARE,
    Column,
    Drawing,
    Finding,
    frame_of,
    of_trainings,
)
from dlscale.analysis.load import Study
from dlscale.analysis.predict.network import ASSUMED
from dlscale.analysis.render import figures, screen
from dlscale.analysis.text import EVIDENCE, listed, percent, plural, settings_text, workload_title
from dlscale.base.files import make_folder, write_atomically
from dlscale.benchmarks.records.prediction import ENDING, PredictionRecord, write_predictions
from dlscale.collectives.sharding import NONE, PARAMETERS
from dlscale.models import load_workload

BANDS = ("samples_per_second", "efficiency", "step_seconds")
FLOAT32_BYTES = 4
WIDEST = 120  # columns of a table


def prediction_row(record: PredictionRecord) -> dict[str, Any]:
    """A prediction as a flat row, its bands with `_low`, `_high` and the number of replicates as `_n`."""
    row: dict[str, Any] = {name: getattr(record, name) for name in COLUMNS if hasattr(record, name)}
    for name in BANDS:
        band = getattr(record, name)
        ends = {"": band.center, "_low": band.low, "_high": band.high, "_n": record.num_replicates}
        row |= {f"{name}{end}": value for end, value in ends.items()}
    tokens = load_workload(record.workload).preset(record.preset).tokens_per_sample
    options = settings_text(record.backend_options)
    per_node = plural(record.num_ranks / record.num_nodes, "rank")
    batch = f"{record.batch} samples per {'rank' if record.scaling_mode == 'weak' else 'step'}"
    return row | {
        "backend_options": options,
        "curve": f"{record.carrier} ({options})" if options else record.carrier,
        "training": f"{record.workload} {record.preset} in {record.framework}, {record.scaling_mode} scaling on "
        f"{record.system}, {batch}, {per_node} per node",
        "tokens_per_second": record.samples_per_second.center * tokens if tokens else np.nan,
        "state_bytes": _state_bytes(record),
        **{f"{name.replace(' ', '_')}_loss": share for name, share in record.parts.items()},
        "doubts": "; ".join(record.doubts),
    }


def _state_bytes(record: PredictionRecord) -> float:
    """What a rank keeps of weights, gradients and the optimizer, without activations; NaN where nobody states it."""
    facts = load_workload(record.workload)
    if facts.num_slots is None:
        return np.nan
    whole = FLOAT32_BYTES * facts.preset(record.preset).num_parameters
    weights = whole / record.num_ranks if record.shard == PARAMETERS else whole
    return 2 * weights + facts.num_slots * (whole if record.shard == NONE else whole / record.num_ranks)


def predicted(study: Study) -> pd.DataFrame:
    """One row per prediction, in their order."""
    frame = frame_of([prediction_row(record) for record in study.predictions], *COLUMNS)
    frame["family"] = frame.groupby("training", sort=False).ngroup() if len(frame) else []
    if not (frame["shard"] != NONE).any():
        frame["state_bytes"] = np.nan
    frame["num_servers"] = frame["num_servers"].astype(float).replace(0.0, np.nan)
    return frame


def origins(study: Study) -> pd.DataFrame:
    """One row per input of the predictions, with the backends that it counts for."""
    rows: dict[Any, list[str]] = {}
    for record in study.predictions:
        for origin in record.origins:
            backends = rows.setdefault(origin, [])
            backends += [record.carrier] * (record.carrier not in backends)
    every = {record.carrier for record in study.predictions}
    found = [
        {**origin.model_dump(), "backends": "all" if len(own) == len(every) else listed(own)}
        for origin, own in rows.items()
    ]
    return frame_of(found, *ORIGIN_COLUMNS)


def answer(frame: pd.DataFrame) -> str:
    """What is predicted on the most nodes of each training, and whether it is known which backend is fastest."""
    return "\n".join(_answer(rows, several=frame["family"].nunique() > 1) for _, rows in of_trainings(frame))


def _answer(rows: pd.DataFrame, *, several: bool) -> str:
    most = rows.groupby("curve")["num_nodes"].max().min()  # that all have
    last = rows[rows["num_nodes"] == most].to_dict("records")
    first = last[0]
    best = max(last, key=lambda row: row["samples_per_second"])
    what = f"{workload_title(first['workload'])} ({first['framework']}): " if several else ""
    said = (
        f"{what}Predicted, not measured on {first['system']}: on {plural(first['num_nodes'], 'node')} "
        f"{best['curve']} keeps {percent(best, 'efficiency')} of ideal scaling"
    )
    rivals = [row["curve"] for row in last if row["may_be_fastest"] and row is not best]
    if rivals:
        said += f"; {listed(rivals)} may be as fast"
    elif len(last) > 1:
        said += ", more than any other"
    doubts = "; ".join(filter(None, dict.fromkeys(rows["doubts"])))
    return f"{said}." + f" Not to be trusted: {doubts}." * bool(doubts)


def draw_efficiency(rows: pd.DataFrame, axes: theme.Axes, *, tips: bool = True) -> None:
    """Efficiency over nodes, a band per backend; `tips` are the texts of points, which pages show when hovering."""
    for curve, own, look in theme.curves(rows):
        own = own.sort_values("num_nodes")
        low, center, high = (100 * own[f"efficiency{end}"] for end in ("_low", "", "_high"))
        axes.fill_between(own["num_nodes"], low, high, color=look["color"], alpha=0.12, linewidth=0)
        axes.plot(own["num_nodes"], center, label=curve.removesuffix(", simulated"), **look)
    theme.rank_axis(axes, rows, x="num_nodes", label="nodes")
    axes.axhline(100, color="grey", linestyle=":", linewidth=0.8)
    axes.set_ylim(0, None)
    axes.set_ylabel("predicted efficiency [%]")
    axes.legend()
    for row in rows.to_dict("records") if tips else ():
        tip = f"{row['curve']}, {row['num_nodes']} nodes: {percent(row, 'efficiency')}, predicted"
        axes.scatter(row["num_nodes"], 100 * row["efficiency"], s=150, alpha=0).set_gid(f"tip:{tip}")


PARTS = {
    "stragglers": "the slowest rank beyond the mean",
    "exposed_communication": "communication and waiting",
    "batch_effect": "the update, which does not shrink with the batch",
    "update_of_a_part": "saved, as each rank updates a part of the weights",
}
COLUMNS = {
    **{name: Column(name) for name in ("system", "workload", "preset", "framework")},
    "scaling_mode": Column("weak: samples per rank are constant; strong: those of a step"),
    "backend": Column("backend"),
    "backend_options": Column("its options"),
    "shard": Column("what of the training's state each rank has only its part of"),
    "training": PLACE["training"],
    "curve": Column("backend with its options", "backend"),
    "num_nodes": Column("nodes of the ranks; servers are on further ones", "nodes", write=COUNT),
    "num_ranks": Column("ranks that train", "ranks", write=COUNT, is_detail=True),
    "num_servers": Column("parameter servers", "servers", write=COUNT, is_detail=True),
    "samples_per_second": Column(
        "median, and what 90 % of replicates lie between", "throughput", "samples/s"
    ),
    "tokens_per_second": Column("throughput in tokens of sequences", "tokens/s", is_detail=True),
    "efficiency": Column("against one rank without communication", "efficiency", **SHARE),
    "step_seconds": Column("a step", "step", "s", is_detail=True),
    "wire_seconds": Column(
        "gradients on the fullest link of a node, and nothing else", "wire", **MILLISECONDS
    ),
    "state_bytes": Column(
        "weights, gradients, optimizer of a rank, no activations", "state", "MiB", factor=1 / 2**20
    ),
    "may_be_fastest": Column("as fast as any in 5 % or more of replicates", "may be fastest", is_detail=True),
    **{
        f"{name}_loss": Column(f"share of a step: {about}", name.replace("_", " "), is_detail=True, **SHARE)
        for name, about in PARTS.items()
    },
    "local_batch": Column("samples of a rank"),
    "global_batch": Column("samples of a step"),
    "evidence": Column("simulated: nothing was run"),
    "engine": Column("what computes exchanges"),
    "engine_version": Column("its version"),
    "doubts": Column("why it is not to be trusted", "doubts", is_detail=True),
}
ORIGIN_COLUMNS = {
    "input": Column("what predictions follow from", "input"),
    "value": Column("its value, and between which ones it is drawn", "value"),
    "kind": Column("how it is known", "known"),
    "source": Column("where it is from", "source"),
    "backends": Column("the backends that it counts for", "for"),
}
EFFICIENCY = Drawing(
    name="efficiency",
    draw=draw_efficiency,
    size=(5.2, 3.2),
    about="Predicted efficiency over nodes: medians, and what 90 % of the replicates lie between.",
)
PREDICTION = Finding(
    name="prediction",
    title="Predicted efficiency",
    compute=predicted,
    columns=COLUMNS,
    sentence=answer,
    drawings=(EFFICIENCY,),
    on_screen=True,
    is_answer=True,
)
ORIGINS = Finding(
    name="assumptions", title="What it rests on", compute=origins, columns=ORIGIN_COLUMNS, is_answer=True
)


def jobs(facts: Sequence[Mapping[str, Any]]) -> Finding:
    """The jobs of a rehearsal, as rehearsal.json has them."""
    columns = {
        "job": Column("name of its script", "job"),
        "num_nodes": Column("nodes", "nodes", write=COUNT),
        "num_launches": Column("launches", "launches", write=COUNT),
        "seconds": Column("expected", "time", unit="min", factor=1 / 60),
        "billed_node_hours": Column("billed", "billed", unit="node-hours"),
    }
    frame = frame_of(facts, *columns)
    return Finding(name="jobs", title="Jobs", compute=lambda _: frame, columns=columns, is_answer=True)


def study_of(records: Sequence[PredictionRecord]) -> Study:
    """The study of these predictions, of which nothing was run."""
    return Study([], predictions=records)


def show(study: Study, console: Console) -> None:
    """Print one sentence that answers, the table, and what the predictions rest on in two lines."""
    frame = PREDICTION.of(study)
    console.print(Text(answer(frame)), soft_wrap=True)
    for training, rows in of_trainings(frame):
        table = PREDICTION.table(rows, brief=True)
        console.print(Text(table.attrs["caption"] or training, style="bold"), soft_wrap=True)
        console.print(screen.grid(table), width=WIDEST, crop=False)
    inputs = ORIGINS.of(study)
    for kind in (ASSUMED, "not modelled"):
        if own := list(dict.fromkeys(inputs.loc[inputs["kind"] == kind, "input"])):
            console.print(Text(f"{kind}: {listed(own)}"), soft_wrap=True)


def write(study: Study, stem: Path) -> None:
    """Write `<stem>.png`, `.pdf`, `.svg`, `.csv`, and the records as `.jsonl`, of one training's predictions."""
    frame, first = PREDICTION.of(study), study.predictions[0]
    make_folder(stem.parent)
    write_predictions(study.predictions, Path(f"{stem}{ENDING}"))
    theme.use()
    drawing = replace(EFFICIENCY, draw=partial(draw_efficiency, tips=False))  # they are slow to draw
    figure = figures.figure_of(drawing, frame, title=f"predicted: {frame['training'].iloc[0]}")
    figures.save(figure, stem, origin=f"simulated; commit {first.commit}; {first.command}")
    table = PREDICTION.exported(frame)
    write_atomically(Path(f"{stem}.csv"), table.to_csv(index=False).encode(), mode=0o644)


def write_page(
    study: Study, path: Path, *, name: str, facts: Mapping[str, str], more: Sequence[Finding] = ()
) -> None:
    """Write the page of predictions, with `more` after the answer; every source is in one table."""
    from dlscale.analysis.render import page  # and templates, which tables need not

    frame = PREDICTION.of(study)
    workloads = [workload_title(name) for name in dict.fromkeys(frame["workload"])]
    systems = list(dict.fromkeys(frame["system"]))
    nodes = ", ".join(f"{count}" for count in sorted(set(frame["num_nodes"])))
    first = study.predictions[0] if study.predictions else None
    page.write(
        path,
        title=f"How {listed(workloads) or 'a study'} would scale on {listed(systems) or name}",
        facts={**facts, "Nodes": nodes, "Evidence": EVIDENCE["simulated"]},
        sections=page.sections_of(study, [PREDICTION, *more, ORIGINS]),
        origin=f"{first.command}; commit {first.commit}" if first else name,
    )
