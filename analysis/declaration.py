"""The declaration of comparisons: which pairs are compared, by rule, before any number is looked at.

The values of one factor of a study are compared with one reference wherever all else is equal. In a study with axes
each curve is compared with one other that differs from it in one setting (docs/comparing.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from dlscale.analysis.load import Study
from dlscale.analysis.record_fields import factor_names, field_table
from dlscale.analysis.text import plural
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import AUTO, OF_METHOD, Cell, setting_of
from dlscale.collectives import capabilities
from dlscale.collectives.algorithms import SYNC

CURVE = "curve"  # the factor of a study whose axes separate families
PAIR = ("cell", "reference_cell", "contender", "reference", "factor", "over")  # columns of what is declared
# Fields of a cell. Cells that differ in any other field do different work or have another size.
FACTORS = (
    *("backend", "algorithm", "shard", "split", "framework", "environment", "precision", "compiled"),
    *("device", "data", "batch", "num_servers", "cores_per_rank", "threads_per_rank"),
)
SHORT = {"servers": "num_servers", "local_batch": "batch", "global_batch": "batch"}
SIZE = ("num_ranks", "num_nodes", "local_batch", "global_batch")  # what differs along a curve


def declared(
    study: Study,
    *,
    factor: str | None = None,
    reference: str | None = None,
    ranks: Sequence[int] = (),
) -> tuple[pd.DataFrame, list[str]]:
    """The pairs that are compared, a row each, and what has no reference, in words.

    Each value of a factor versus one reference, wherever all else is equal. By default what the axes of the study
    declare, if it has any; else the factor is the backend, or the framework if there is only one backend, and the
    reference in each training the first of the study's order. `ranks` restrict what is compared, and so keep the
    correction small. Raises UsageError if there is nothing to compare.
    """
    sides = _sides(study)
    if missing := [count for count in ranks if count not in set(sides["num_ranks"])]:
        present = ", ".join(map(str, sorted(set(sides["num_ranks"]))))
        raise UsageError(f"no ranks {missing[0]} in these records; choose from: {present}")
    by_axes = bool(study.axes) and not (factor or reference)
    if by_axes:
        is_one_family = all("." in name or name in OF_METHOD for name in study.axes)
        factor = "backend" if is_one_family else CURVE
        pairs, left_out = _along_axes(study, sides)
        why = "no two curves on the same number of ranks, more than 1, in these records"
    else:
        num_backends = sides.loc[sides["is_exchanging"], "side"].nunique()
        usual = "framework" if sides["framework"].nunique() > 1 and num_backends < 2 else "backend"
        factor = SHORT.get(factor, factor) if factor else usual
        if factor not in FACTORS:
            known = ", ".join(FACTORS)
            raise UsageError(f"no factor {factor!r} to compare inside a study; choose one of: {known}")
        pairs, left_out = _of_factor(sides, factor, reference, study.order)
        why = "; ".join(left_out) or f"no two values of {factor} where all else, ranks among it, is equal"
    pairs = pairs[pairs["num_ranks"].isin(ranks)] if ranks else pairs
    if pairs.empty:
        raise UsageError(f"nothing to compare: {why}")
    rows = zip(pairs["contender"], pairs["backend"], pairs["curve"], strict=True)
    over = ["" if name.startswith(backend) else curve for name, backend, curve in rows]
    return pairs.assign(factor=factor, over=over)[list(PAIR)].reset_index(drop=True), left_out


def _sides(study: Study) -> pd.DataFrame:
    """The measured trainings, failed ones too, each with its `Cell` and its place in the study's order."""
    numbers = study.launches.drop_duplicates("cell").set_index("cell")["number"]
    cells = study.trained
    sides = cells[(cells["control"] == "train") & cells.index.isin(numbers.index)].reset_index()
    order = {name: place for place, name in reversed(list(enumerate(study.order)))}
    return sides.assign(
        whole=[study.records[numbers[cell]].case.cell for cell in sides["cell"]],
        place=[order.get(name, len(order)) for name in sides["backend"]],
        side=[level_of(row, "backend") for row in sides.to_dict("records")],
    )


def level_of(cell: Mapping[str, Any], factor: str) -> str:
    """The factor's value of a row of cells, in words: `ring`, `grpc_ps, 2 servers`, `tensorflow`, `16 per rank`."""
    if factor == "backend":
        servers = f", {plural(cell['num_servers'], 'server')}" if cell["num_servers"] else ""
        return f"{cell['curve']}{servers}"
    if factor == "algorithm" and cell["algorithm_options"]:
        return f"{cell['algorithm']} ({cell['algorithm_options']})"
    if factor == "batch":
        return f"{cell['batch']} {'per rank' if cell['scaling_mode'] == 'weak' else 'in all'}"
    if factor == "compiled":
        return "compiled" if cell["compiled"] else "not compiled"
    return str(cell[factor])


def _alike(sides: pd.DataFrame, without: Iterable[str]) -> list[str]:
    """A text per side; equal texts are equal in system, evidence and all fields of the cell but `without`."""
    ignored = set(without)
    cells = zip(sides["system"], sides["evidence"], sides["whole"], strict=True)
    return [f"{system} {kind} {cell.model_dump_json(exclude=ignored)}" for system, kind, cell in cells]


def _fields_of(factor: str) -> set[str]:
    """The fields of a cell that may differ with the factor: its own, and those that follow from it."""
    own, follows = factor_names([factor]), field_table()["follows"]
    return own.union(*(follows.get(name, ()) for name in own)) & Cell.model_fields.keys()


def _of_factor(
    sides: pd.DataFrame, factor: str, reference: str | None, order: Sequence[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Each value of the factor versus the reference of its training; backends only where they exchange gradients."""
    if factor == "backend":
        sides = sides[(sides["num_ranks"] > 1) & sides["is_exchanging"]]
    sides = sides.assign(side=[level_of(row, factor) for row in sides.to_dict("records")])
    words = [name.split(" ")[0].rstrip(",") for name in sides["side"]]
    sides["place"] = [order.index(word) if word in order else len(order) for word in words]
    sides["is_other"] = sides["side"] != SYNC
    sides = sides.sort_values(["place", "is_other", "side"], kind="stable")
    levels = list(sides["side"].unique())
    if len(levels) < 2:
        several = " on several ranks" if factor == "backend" else ""
        present = f"only {levels[0]}{several}" if levels else f"no training{several}"
        raise UsageError(
            f"nothing to compare: of {factor} there is {present} in these records; choose another --by, or "
            "measure another value of it in the same study"
        )
    sides["training"] = _alike(sides, _fields_of(factor) | {*SIZE})
    sides["alike"] = _alike(sides, _fields_of(factor))
    firsts = sides.groupby("training")["side"].transform("first")
    sides["reference"] = _known_level(reference, levels, factor) if reference else firsts
    is_reference = sides["side"] == sides["reference"]
    lacking = sides[~is_reference.groupby(sides["training"]).transform("any")].sort_index()
    left_out = [
        " ".join([row["workload"], *(row[name] for name in ("framework", "backend") if name != factor)])
        + f" has no {row['reference']}"
        for row in lacking.to_dict("records")
    ]
    references = sides[is_reference].drop_duplicates("alike").set_index("alike")["cell"]
    sides["reference_cell"] = sides["alike"].map(references)
    pairs = sides[~is_reference & sides["reference_cell"].notna()].sort_index()
    return pairs.rename(columns={"side": "contender"}), list(dict.fromkeys(left_out))


def _known_level(word: str, levels: Sequence[str], factor: str) -> str:
    """The level with this name or unique prefix. Raises UsageError, listing all levels, if there is none."""
    matching = [level for level in levels if level.startswith(word)]
    if word in levels or len(matching) == 1:
        return word if word in levels else matching[0]
    what = "several values begin with" if matching else "no"
    raise UsageError(f"{what} {word!r} of {factor} in these records; choose one of: {'; '.join(levels)}")


def _along_axes(study: Study, sides: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Each curve versus the one with the first value of the last setting in which it has another one.

    Curves of all first values are compared with that of the study's first backend. What neither an axis nor a backend
    changes is equal.
    """
    sides = sides[(sides["num_ranks"] > 1) & sides["is_exchanging"]].copy()
    varied = {"local_batch", "global_batch", "split", "precision", "compiled", "variables"}
    sides["alike"] = _alike(sides, varied | _fields_of("backend"))
    sides["key"] = [_key_on(study.axes, row) for row in sides.to_dict("records")]
    sides["reference_cell"] = None
    for _, group in sides.groupby("alike", sort=False):
        known_sides = {key: row for row, key in group["key"].items() if key}
        first = next((key for key in sorted(known_sides) if not any(key[-1])), None)
        for key, row in known_sides.items():
            axis = max((axis for axis, value in enumerate(key[-1]) if value), default=None)
            base = first if axis is None else (*key[:-1], (*key[-1][:axis], 0, *key[-1][axis + 1 :]))
            if base in known_sides and base != key:
                sides.loc[row, "reference_cell"] = group.loc[known_sides[base], "cell"]
    is_pair = sides["reference_cell"].notna()
    compared = {*sides.loc[is_pair, "cell"], *sides.loc[is_pair, "reference_cell"]}
    left_out = [f"{name}: without its reference" for name in sides.loc[~sides["cell"].isin(compared), "side"]]
    names = sides.set_index("cell")["side"]
    pairs = sides[is_pair].rename(columns={"side": "contender"})
    return pairs.assign(reference=pairs["reference_cell"].map(names)), list(dict.fromkeys(left_out))


def _key_on(axes: Mapping[str, Sequence[Any]], side: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """What a side is, by the study's order, and its place on each axis, 0 on those of other backends.

    None if the study does not have a value of it.
    """
    cell, places = side["whole"], []
    for name, values in axes.items():
        value = setting_of(cell, name)
        if name == "split" and AUTO in values and value not in values:
            value = AUTO
        owner, dot, _ = name.partition(".")
        concerned = owner in (cell.backend, cell.algorithm) if dot else True
        if name in OF_METHOD:
            concerned = capabilities(cell.backend).exchanges
        # Variables are text in a cell.
        same = [value == other or (isinstance(value, str) and value == str(other)) for other in values]
        if concerned and not any(same):
            return None
        places.append(same.index(True) if concerned else 0)
    is_other = cell.algorithm != SYNC
    return side["place"], cell.backend, is_other, cell.algorithm, cell.num_servers, tuple(places)
