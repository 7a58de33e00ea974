"""Cells as a frame: what was run, its family and curve, and the cells that each one is compared with.

A family is everything that a point has in common with its base case: all of a cell but backend, ranks and control. A
curve is a backend with its algorithm and options over ranks, within a family and a kind of evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis.frames.text import settings_text, workload_title
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import AUTO, Cell, Setting
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.sharding import NONE

CONTROLS = (
    "train",
    "synthetic",
    "loader",
    "alone",
    "whole_machine",
    "exchange",
    "halos",
    "profile",
    "canary",
)
APART = ("canary", "exchange", "halos", "profile")  # controls without a throughput
FAMILY = [
    *("system", "workload", "preset", "framework", "environment", "scaling_mode", "precision", "compiled"),
    *("device", "data", "cores_per_rank", "threads_per_rank", "batch"),
]
RESOURCES = ("cores_per_rank", "threads_per_rank", "batch")  # in which a reference differs from its family
OWN = [
    "backend",
    "backend_options",
    "algorithm",
    "algorithm_options",
    "shard",
]  # of a curve, beside its split
ORDER = [
    *(
        "family",
        "is_exchanging",
        "backend",
        "is_other_algorithm",
        "algorithm",
        "is_sharded",
        "shard",
        "split",
    ),
    *("options_place", "learning_rate", "control_place", "num_ranks", "num_servers", "num_nodes", "evidence"),
]
# Settings of a cell that separate families, beside the options of backends.
SETTINGS = ("batch", "precision", "compiled")
OF_METHOD = ("shard", "split")  # those that a cell's method says


def cell_frame(
    cells: Mapping[str, Cell], facts: pd.DataFrame, *, base: str, settings: Sequence[str]
) -> pd.DataFrame:
    """One row per cell and kind of evidence, in the order of tables, indexed by `cell`.

    `facts` has `cell`, the `id` of its cell, `system`, `evidence` and `fingerprint`. The columns are the fields of the
    cell, options as text; `family` (a number), `training` and `curve` (texts); and cells that it is compared with.
    """
    names = curve_names(cells, settings=settings)
    rows = [
        {"id": cell_id, "curve": names.get(cell_id, ""), **_fields(cell)} for cell_id, cell in cells.items()
    ]
    known = pd.DataFrame(rows, columns=["id", "curve", *_FIELDS])
    frame = facts.merge(known, on="id").set_index("cell")
    for name in ("num_servers", "num_nodes", "split"):
        frame[name] = frame[name].astype(int)
    frame["is_exchanging"] = frame["backend"] != "none"
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
        "rank_work": cell.rank_work,
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


def options_place(cell: Cell) -> tuple[tuple[str, bool, float, str], ...]:
    """The sort key of options and variables: by name, numbers by size."""

    def key(name: str, value: Setting) -> tuple[str, bool, float, str]:
        try:
            return name, False, float(value), ""
        except ValueError:
            return name, True, 0.0, str(value)

    return tuple(key(name, value) for name, value in sorted({**cell.options, **cell.variables}.items()))


# Curves' names


def setting_of(cell: Cell, name: str) -> Setting | None:
    """The cell's value of a setting: batch along its curve, `horovod.cycle_time_ms`, a variable, or None."""
    if name == "learning_rate":
        return cell.target.learning_rate if cell.target else None
    if name in (*SETTINGS, *OF_METHOD):
        value: Setting | None = getattr(cell, name)
        return value
    owner, dot, option = name.partition(".")
    if not dot:
        return cell.variables.get(name)
    if owner == cell.algorithm:
        return cell.algorithm_options.get(option)
    return cell.backend_options.get(option) if owner == cell.backend else None


def setting_text(name: str, value: object) -> str:
    """`cycle_time_ms=5`, `batch 32`, `compiled`, `optimizer sharded`: a value in a curve's name."""
    texts = {
        "compiled": "compiled" if value else "not compiled",
        "precision": str(value),
        "shard": "not sharded" if value == NONE else f"{value} sharded",
        "learning_rate": f"learning rate {value:g}" if isinstance(value, float) else "",
    }
    if name in ("batch", "split"):
        return f"{name} {value}"
    return texts.get(name) or f"{name.partition('.')[2] or name}={value}"


def curve_names(cells: Mapping[str, Cell], *, settings: Sequence[str] = ()) -> dict[str, str]:
    """Cell id -> the name of its curve: the method, and of the options those in which the cells of its method differ.

    One set of options of a method is shown whole, as there is nothing to tell apart. With `settings`, of different
    families, the name has those of them, and the variables, in which any two trainings differ. Learning rates are in it
    where a study tries several for equal cells.
    """
    members = {cell_id: cell for cell_id, cell in cells.items() if cell.control != "canary"}
    variables = sorted({name for cell in members.values() for name in cell.variables}) if settings else []
    shared = _differing(members.values(), [*settings, *variables])
    if rates_are_tried(members.values()):
        shared.append("learning_rate")
    joined = _joined(members)
    by_method: dict[str, list[str]] = {}
    for cell_id, cell in members.items():
        by_method.setdefault(joined.get(cell_id, cell.method), []).append(cell_id)
    found = {}
    for method, ids in by_method.items():
        own = [members[cell_id] for cell_id in ids]
        options = sorted(
            {f"{cell.backend}.{name}" for cell in own for name in cell.backend_options}
            | {f"{cell.algorithm}.{name}" for cell in own for name in cell.algorithm_options}
        )
        shown = _differing(own, options) or options
        for cell_id, cell in zip(ids, own, strict=True):
            inner, outer = (
                [setting_text(name, value) for name in names if (value := setting_of(cell, name)) is not None]
                for names in (shown, shared)
            )
            found[cell_id] = ", ".join([f"{method} ({', '.join(inner)})" if inner else method, *outer])
    return found


def _joined(members: Mapping[str, Cell]) -> dict[str, str]:
    """Cell id -> the method of its curve, where ranks share samples and each number of them has one split.

    1 rank, which has whole samples, belongs to it.
    """
    if all(cell.split == 1 for cell in members.values()):
        return {}
    along = {"num_ranks", "num_nodes", "split", "local_batch", "global_batch", "control", "data"}
    curves: dict[str, dict[str, Cell]] = {}
    for cell_id, cell in members.items():
        curves.setdefault(f"{cell.batch} {cell.model_dump_json(exclude=along)}", {})[cell_id] = cell
    found: dict[str, str] = {}
    for own in curves.values():
        forms = {(cell.num_ranks, cell.split) for cell in own.values() if cell.control == "train"}
        beyond = {split for num_ranks, split in forms if num_ranks > 1}
        if max(beyond, default=1) == 1 or len({num_ranks for num_ranks, _ in forms}) < len(forms):
            continue
        split = AUTO if len(beyond) > 1 else str(*beyond)
        found |= dict.fromkeys(own, f"{next(iter(own.values())).base_method}, split {split}")
    return found


def rates_are_tried(cells: Iterable[Cell]) -> bool:
    """Whether two cells differ in their learning rate alone; those that follow the batch do not."""
    rates: dict[str, set[float]] = {}
    for cell in cells:
        if cell.target:
            rules = cell.target.model_dump_json(exclude={"learning_rate": True, "schedule": {"first_rate"}})
            alike = f"{rules} {cell.model_dump_json(exclude={'target'})}"
            rates.setdefault(alike, set()).add(cell.target.learning_rate)
    return any(len(several) > 1 for several in rates.values())


def _differing(cells: Iterable[Cell], names: Iterable[str]) -> list[str]:
    """The settings that are not the same in all trainings."""
    cells = [cell for cell in cells if cell.control == "train"]
    return [name for name in names if len({repr(setting_of(cell, name)) for cell in cells}) > 1]


# Families, and who is compared with whom


def _families(cells: pd.DataFrame) -> pd.DataFrame:
    """Of each cell the number of its family, what it trains and what is constant along its curve, in words."""
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
    ranks. `crowd`: none on the same number of ranks. `train`, `loader`, `synthetic`: the cell that differs in its
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
            "crowd": _closest(
                row,
                (one for one in none if (one["num_ranks"], one["split"]) == (row["num_ranks"], row["split"])),
                alike=("evidence", "num_nodes"),  # it has no servers, so it may need fewer nodes
            ),
        }
        for control in ("train", "loader", "synthetic"):
            relatives[control] = twins.get((row["system"], row["evidence"], control, row["twin_text"]))
        found.append({"base_ranks": ranks, **relatives})
    names = ["base_ranks", "base_none", "base_own", "crowd", "train", "loader", "synthetic"]
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
