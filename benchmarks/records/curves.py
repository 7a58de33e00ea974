"""Names of curves: backend, algorithm, what is sharded, and of the options those that differ.

Cells are named together, because what differs is known only of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dlscale.benchmarks.records.cell import AUTO, Cell, Setting
from dlscale.collectives.sharding import NONE

# Settings of a cell that separate families, other than the options of backends.
SETTINGS = ("batch", "precision", "compiled")
OF_METHOD = ("shard", "split")  # those that a cell's method says


def options_place(cell: Cell) -> tuple[tuple[str, bool, float, str], ...]:
    """The sort key of options and variables: by name, numbers by size."""

    def key(name: str, value: Setting) -> tuple[str, bool, float, str]:
        try:
            return name, False, float(value), ""
        except ValueError:
            return name, True, 0.0, str(value)

    return tuple(key(name, value) for name, value in sorted({**cell.options, **cell.variables}.items()))


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
    variables = sorted({name for cell in cells.values() for name in cell.variables}) if settings else []
    shared = _differing(cells.values(), [*settings, *variables])
    if rates_are_tried(cells.values()):
        shared.append("learning_rate")
    by_method: dict[str, dict[str, Cell]] = {}
    for cell_id, method in _methods(cells).items():
        by_method.setdefault(method, {})[cell_id] = cells[cell_id]
    names = {}
    for method, own in by_method.items():
        options = sorted(
            {f"{cell.backend}.{name}" for cell in own.values() for name in cell.backend_options}
            | {f"{cell.algorithm}.{name}" for cell in own.values() for name in cell.algorithm_options}
        )
        shown = _differing(own.values(), options) or options
        for cell_id, cell in own.items():
            inner, outer = (
                [setting_text(name, value) for name in part if (value := setting_of(cell, name)) is not None]
                for part in (shown, shared)
            )
            names[cell_id] = ", ".join([f"{method} ({', '.join(inner)})" if inner else method, *outer])
    return names


def _methods(members: Mapping[str, Cell]) -> dict[str, str]:
    """Cell id -> its method and how samples are split: `ring, split 2`.

    Where each number of ranks has one split, they are one curve, and 1 rank, which has whole samples, belongs to it.
    """
    along = {"num_ranks", "num_nodes", "split", "local_batch", "global_batch", "control", "data"}
    curves: dict[str, dict[str, Cell]] = {}
    for cell_id, cell in members.items():
        curves.setdefault(f"{cell.batch} {cell.model_dump_json(exclude=along)}", {})[cell_id] = cell
    methods = {}
    for own in curves.values():
        forms = {(cell.num_ranks, cell.split) for cell in own.values() if cell.control == "train"}
        beyond = {split for num_ranks, split in forms if num_ranks > 1}
        is_one = max(beyond, default=1) > 1 and len({num_ranks for num_ranks, _ in forms}) == len(forms)
        shared = AUTO if len(beyond) > 1 else max(beyond, default=1)
        for cell_id, cell in own.items():
            split = shared if is_one else cell.split
            methods[cell_id] = cell.method if split == 1 else f"{cell.method}, split {split}"
    return methods


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
