"""Compressed gradients against uncompressed ones: what they gain in speed and what they cost in quality.

A cell is compared with the uncompressed one that differs in nothing else. Studies of throughput measure no quality.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pandas as pd

from dlscale.analysis.attempts import plain_bytes, wire_bytes
from dlscale.analysis.finding import PLACE, Column, Finding, frame_of
from dlscale.analysis.findings import evaluations
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import NONE, Interval, ratio, t_interval
from dlscale.analysis.text import digits, listed, plural
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record
from dlscale.collectives.compression import Compression

TOLERANCE = 0.01  # of the uncompressed training's metric, after as many samples
PASSED, FAILED, UNJUDGED = "passed", "failed", "not judged"
OPTIONS = {field.name for field in fields(Compression)}


def compressions(study: Study) -> pd.DataFrame:
    """One row per cell that trains with compressed gradients on several ranks."""
    trained = study.good[study.good["control"] == "train"]
    options = {key: study.measured[key].backend_options for key in trained["cell"].unique()}
    compressed = [key for key, own in options.items() if own.get("compression", "none") != "none"]
    plain = {_rest(study, key): key for key in options if key not in compressed}
    runs, rates = study.once(evaluations.trainings), study.wide("samples_per_second")
    samples = runs.pivot(index="block", columns="cell", values="samples")
    rows = []
    for key in (key for key in compressed if study.measured[key].num_ranks > 1):
        cell, other = study.measured[key], plain.get(_rest(study, key), "")
        own, others = (runs.loc[runs["cell"] == one, "is_reached"] for one in (key, other))
        is_whole = len(own) and len(others) and own.all() and others.all()
        change = _quality_change(study, key, other, cell)
        sent = [_sent(study.records[number]) for number in trained.loc[trained["cell"] == key, "number"]]
        row = {
            "cell": key,
            **(ratio(rates[key], rates[other]) if other else NONE).columns("rate_ratio"),
            **(ratio(samples[key], samples[other]) if is_whole else NONE).columns("samples_ratio"),
            **change.columns("quality_change"),
            **pd.DataFrame(sent).mean(),
            "num_reached": int(own.sum()),
            "num_trainings": len(own),
        }
        rows.append(row | _judged(cell, own, others, change))
    return frame_of(rows, "cell", *COLUMNS)


def has_failed(study: Study) -> bool:
    """Whether a compressed training failed its accuracy gate."""
    return bool((FINDING.of(study)["accuracy_gate"] == FAILED).any())


def _rest(study: Study, key: str) -> tuple[str, ...]:
    """What a cell and its uncompressed one have in common."""
    rest = study.measured[key].model_dump_json(exclude={"backend_options": OPTIONS})
    return (*study.cells.loc[key, ["system", "evidence"]], rest)


def _sent(record: Record) -> dict[str, float]:
    """Bytes that a rank sends in a step, and their share of an uncompressed step's; NaN if not known."""
    sent = wire_bytes(record)
    return {"wire_bytes": sent, "wire_share": sent / plain_bytes(record)}


def _quality_change(study: Study, key: str, other: str, cell: Cell) -> Interval:
    """Relative, by seed, at the last evaluation that both trainings have and neither ended at; below 0 it is worse.

    A training ends where its metric is high by chance, too: there the other one would be judged by that luck.
    """
    found = evaluations.FINDING.of(study)
    before = found[found.duplicated("number", keep="last") & found["value"].notna()]
    own, base = (before.loc[before["cell"] == one, ["block", "samples", "value"]] for one in (key, other))
    both = own.merge(base, on=["block", "samples"], suffixes=("", "_base")).sort_values("samples")
    last = both.drop_duplicates("block", keep="last").query("value_base != 0")
    sign = 1 if evaluations.metric_of(cell).higher_is_better else -1
    changes = sign * (last["value"] - last["value_base"]) / last["value_base"].abs()
    return t_interval([changes]) if len(changes) else NONE


def _judged(cell: Cell, own: pd.Series, others: pd.Series, change: Interval) -> dict[str, str]:
    """The accuracy gate and why; `own` and `others` say of each training whether it reached the target."""
    worse = f"{-100 * change.center:.2f} % worse after as many samples"
    gate, why = (
        (UNJUDGED, f"{command(cell)} measures it") if cell.target is None
        else (FAILED, f"{(~own).sum()} of {plural(len(own), 'training')} missed the target") if not own.all()
        else (UNJUDGED, "the uncompressed training was not measured") if not len(others)
        else (UNJUDGED, "uncompressed trainings missed the target themselves") if not others.all()
        else (UNJUDGED, "no evaluation after as many samples before the end") if np.isnan(change.center)
        else (FAILED, f"{worse}, {100 * TOLERANCE:g} % is allowed") if change.center < -TOLERANCE
        else (PASSED, f"the target is reached, at most {100 * TOLERANCE:g} % worse after as many samples")
    )  # fmt: skip
    return {"accuracy_gate": gate, "why": why}


def command(cell: Cell) -> str:
    """The study that measures a cell's quality and the uncompressed one's."""
    asked = {**cell.backend_options, "compression": f"none|{cell.backend_options['compression']}"}
    options = ",".join(f"{cell.backend}.{key}={value}" for key, value in sorted(asked.items()))
    return (
        f"dlscale run time-to-solution --workloads {cell.workload} --frameworks {cell.framework} --backends none,"
        f"{cell.backend} --set backend_options='{options}' --ranks {cell.num_ranks} --preset {cell.preset}"
    )


def sentence(frame: pd.DataFrame) -> str:
    """The verdicts of the accuracy gate, failures first."""
    texts = []
    for (gate, why), own in frame.groupby(["accuracy_gate", "why"]):
        names = listed(f"{row.name} on {plural(row.num_ranks, 'rank')}" for row in own.itertuples())
        texts.append(f"Accuracy gate {gate}: {names} ({why}).")
    return " ".join(texts)


COLUMNS = {
    "rate_ratio": Column("samples/s over the uncompressed cell's", "rate ratio", write=digits(2)),
    "wire_bytes": Column("bytes that a rank sends per step", "sent", "kB", factor=1e-3),
    "wire_share": Column("the same over an uncompressed step's", "of plain", "%", factor=100),
    "samples_ratio": Column("samples to the target likewise", "samples ratio", write=digits(2)),
    "quality_change": Column("metric after as many samples", "quality", "%", factor=100),
    "num_reached": Column("trainings that reached the target"),
    "num_trainings": Column("trainings to a target"),
    "accuracy_gate": Column("whether all reach the target, at most 1 % worse", "accuracy gate"),
    "why": Column("why", "why", is_detail=True),
}
FINDING = Finding(
    name="compression",
    title="Compressed gradients",
    compute=compressions,
    columns={**PLACE, **COLUMNS},
    sentence=sentence,
    on_screen=True,
)
