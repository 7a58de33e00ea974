"""Cells as a frame: what was run, its family and curve, and the cells that each one is compared with.

A family is everything that a point has in common with its base case: all of a cell but backend, ranks and control. A
curve is a backend with its algorithm and options over ranks, within a family and a kind of evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis.text import CONTROL_NAMES, settings_text, workload_title
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Cell, curve_names, options_place
from dlscale.collectives.algorithms import SYNC
from dlscale.collectives.capabilities import CONTROL
from dlscale.collectives.sharding import NONE

CONTROLS = tuple(CONTROL_NAMES)  # in the order of tables
APART = ("exchange", "halos", "profile")  # controls without a throughput
FAMILY = [
    *("system", "workload", "preset", "framework", "environment", "scaling_mode", "precision", "compiled"),
    *("device", "data", "cores_per_rank", "threads_per_rank", "batch"),
]
RESOURCES = ("cores_per_rank", "threads_per_rank", "batch")  # in which a reference differs from its family
# What belongs to a curve, next to its split.
OWN = ["backend", "backend_options", "algorithm", "algorithm_options", "shard"]
ORDER = [
    *("family", "is_exchanging", "backend", "is_other_algorithm", "algorithm", "is_sharded", "shard"),
    *("split", "options_place", "learning_rate", "control_place", "num_ranks", "num_servers"),
    *("num_nodes", "evidence"),
]


def cell_frame(
    cells: Mapping[str, Cell], facts: pd.DataFrame, *, base: str, settings: Sequence[str]
) -> pd.DataFrame:
    """One row per cell and kind of evidence, in the order of tables, indexed by `cell`.

    `facts` has `cell`, the `id` of its cell, `system`, `evidence` and `fingerprint`. The columns are the fields of the
    cell, options as text; `family` (a number), `training` and `curve` (texts); and cells that it is compared with.
    """
    names = curve_names(cells, settings=settings)
    rows = [{"id": key, "curve": names.get(key, ""), **_fields(cell)} for key, cell in cells.items()]
    known = pd.DataFrame(rows, columns=["id", "curve", *_FIELDS])
    frame = facts.merge(known, on="id").set_index("cell")
    for name in ("num_servers", "num_nodes", "split"):
        frame[name] = frame[name].astype(int)
    frame["is_exchanging"] = frame["backend"] != CONTROL
    frame["is_other_algorithm"] = frame["algorithm"] != SYNC
    frame["is_sharded"] = frame["shard"] != NONE
    frame["control_place"] = frame["control"].map(CONTROLS.index).astype(int)
    frame = frame.join(_families(frame))
    frame = frame.join(_relatives(frame, base=base))
    return frame.sort_values(ORDER)


# The fields of a cell, in the order in which programs read them.
FIELDS = (
    *("workload", "preset", "framework", "backend", "backend_options", "algorithm", "algorithm_options"),
    *("shard", "split", "environment", "scaling_mode", "num_ranks", "num_servers", "num_nodes"),
    *("cores_per_rank", "threads_per_rank", "local_batch", "global_batch", "precision", "compiled", "device"),
    *("control", "data"),
)
_FIELDS = (
    *FIELDS,
    *("batch", "rank_work", "tokens_per_sample", "workload_title", "target", "learning_rate"),
    *("options_place", "twin_text"),
)


def _fields(cell: Cell) -> dict[str, Any]:
    fields = {name: getattr(cell, name) for name in FIELDS}
    variables = [f"{name}={value}" for name, value in sorted(cell.variables.items())]
    target = cell.target and f"{cell.target.metric} {cell.target.threshold:g}"
    return fields | {
        "backend_options": settings_text(cell.backend_options),
        "algorithm_options": settings_text(cell.algorithm_options),
        "environment": ", ".join([cell.environment, *variables]),
        "batch": cell.batch,
        "rank_work": cell.local_batch / cell.split,
        "tokens_per_sample": tokens_per_sample(cell),
        "workload_title": workload_title(cell.workload),
        "target": target or "",
        "learning_rate": cell.target.learning_rate if cell.target else 0.0,
        "options_place": options_place(cell),
        "twin_text": cell.model_dump_json(exclude={"control"}),
    }


def tokens_per_sample(trained: Any) -> int:
    """The tokens of a cell's sample; 0 where it is no sequence, or its workload is not known here."""
    try:
        tokens: int = trained.preset_facts.tokens_per_sample
    except (UsageError, ImportError):  # of another version's records
        return 0
    return tokens


# Families, and who is compared with whom


def _families(cells: pd.DataFrame) -> pd.DataFrame:
    """The number of each cell's family, what it trains and what is constant along its curve, in words."""
    keys = cells[FAMILY].copy()
    # References, of other resources or batches, are shown with the scaling family that they belong to.
    apart = cells["control"].isin(["alone", "whole_machine"])
    shared = [name for name in FAMILY if name not in RESOURCES]
    scaling = keys[~apart].drop_duplicates(shared).set_index(shared)
    for cell_id in cells.index[apart]:
        own = tuple(keys.loc[cell_id, shared])
        same = (keys.loc[~apart] == keys.loc[cell_id]).all(axis=1).any()
        if not same and own in scaling.index:
            keys.loc[cell_id, list(RESOURCES)] = scaling.loc[own, list(RESOURCES)].to_numpy().ravel()
    found = pd.DataFrame({"family": keys.groupby(FAMILY, dropna=False).ngroup()}, cells.index)
    found["base_family"] = cells.groupby(FAMILY, dropna=False).ngroup()
    compiled = np.where(cells["compiled"].astype(bool), " compiled", "")
    device = np.where(cells["device"] == "cpu", "", " " + cells["device"])
    goal = np.where(cells["target"] == "", cells["scaling_mode"] + " scaling", "time to " + cells["target"])
    found["training"] = (
        cells["workload_title"] + " " + cells["preset"] + ", " + cells["framework"] + compiled + device + ", " + goal
        + " on " + cells["system"]
    )  # fmt: skip
    sample = np.where(
        cells["tokens_per_sample"] > 0,
        " sequences of " + cells["tokens_per_sample"].astype(str) + " tokens",
        " samples",
    )
    whose = np.where(keys["scaling_mode"] == "strong", " per step over all ranks", " per rank and step")
    found["constants"] = (
        keys["batch"].astype(str) + sample + whose + ", " + cells["precision"] + ", "
        + keys["cores_per_rank"].astype(str) + " cores per rank"
    )  # fmt: skip
    found["constants"] = found["constants"].str.replace(r"\b1 (sample|sequence|core)s", r"1 \1", regex=True)
    # Trainings of one name differ in what is constant along them.
    alike = found.groupby("training")["family"].transform("nunique") > 1
    found["training"] += np.where(alike, " (" + found["constants"] + ")", "")
    return found


def _relatives(cells: pd.DataFrame, *, base: str) -> pd.DataFrame:
    """For each cell those that it is compared with; missing where the study has none.

    `base_none`, `base_own`: the base case without communication, and of the same backend and options, on `base_ranks`
    ranks. `own_none`: none on the same number of ranks. `train`, `loader`, `synthetic`: the cell that differs in its
    control alone. If several differ in servers or in ranks per sample, the one that has as many, else the fewest; of
    several kinds of evidence the same one, if there is one.
    """
    rows = cells.reset_index().to_dict("records")
    twins = {(row["system"], row["evidence"], row["control"], row["twin_text"]): row["cell"] for row in rows}
    trained: dict[int, list[dict[str, Any]]] = {row["base_family"]: [] for row in rows}
    for row in rows:
        if row["control"] == "train":
            trained[row["base_family"]].append(row)
    fewest = {family: _base_ranks(own, base) for family, own in trained.items()}
    found = []
    for row in rows:
        family, ranks = trained[row["base_family"]], fewest[row["base_family"]]
        none = [one for one in family if not one["is_exchanging"]]
        own = [one for one in family if all(one[name] == row[name] for name in OWN)]
        relatives = {
            "base_none": _closest(row, (one for one in none if one["num_ranks"] == ranks)),
            "base_own": _closest(row, (one for one in own if one["num_ranks"] == ranks)),
            "own_none": _closest(
                row,
                (one for one in none if (one["num_ranks"], one["split"]) == (row["num_ranks"], row["split"])),
                alike=("evidence", "num_nodes"),  # it has no servers, so it may need fewer nodes
            ),
        }
        for control in ("train", "loader", "synthetic"):
            relatives[control] = twins.get((row["system"], row["evidence"], control, row["twin_text"]))
        found.append({"base_ranks": ranks, **relatives})
    names = ["base_ranks", "base_none", "base_own", "own_none", "train", "loader", "synthetic"]
    return pd.DataFrame(found, cells.index, columns=names).astype({"base_ranks": int})


def _closest(
    row: Mapping[str, Any],
    among: Iterable[Mapping[str, Any]],
    *,
    alike: Sequence[str] = ("num_servers", "split", "evidence"),
) -> Any:
    """The cell that has the same values, the first ones first; among numbers that differ the fewest."""

    def unlike(one: Mapping[str, Any]) -> list[Any]:
        return [(one[name] != row[name], 0 if name == "evidence" else one[name]) for name in alike]

    nearest = min(among, key=unlike, default=None)
    return nearest and nearest["cell"]


def _base_ranks(trained: Sequence[Mapping[str, Any]], base: str) -> int:
    """The number of ranks of a family's base cases: 1, the most on one node, or the smallest."""
    if base == "node":
        return max((one["num_ranks"] for one in trained if one["num_nodes"] == 1), default=1)
    return min((one["num_ranks"] for one in trained), default=1) if base == "smallest" else 1
