"""What a study varies beside its backends: axes of settings (docs/comparing.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlscale.analysis.curves import OF_METHOD, SETTINGS, setting_of
from dlscale.benchmarks.records.cell import AUTO, Cell, Setting
from dlscale.collectives import capabilities

CURVE = "curve"  # the factor of a declaration of any setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """The axes of a study: setting -> values, the first of which is the reference."""

    axes: Mapping[str, Sequence[Setting]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.axes)

    @property
    def factor(self) -> str:
        """What is compared: backends with what belongs to them, in one family; or curves of several families."""
        return "backend" if all("." in name or name in OF_METHOD for name in self.axes) else CURVE

    @property
    def settings(self) -> Sequence[str]:
        """The settings beside backends' options that tell curves apart; none where all are of one family."""
        return () if self.factor == "backend" else SETTINGS

    def place(self, cell: Cell) -> tuple[int, ...] | None:
        """The place of a cell's value on each axis, 0 on those of other backends; None if it is not of the study."""
        place = []
        for name, values in self.axes.items():
            value = setting_of(cell, name)
            if name == "split" and AUTO in values and value not in values:
                value = AUTO
            if not concerns(name, cell):
                place.append(0)
            elif (known := position(values, value)) is None:
                return None
            else:
                place.append(known)
        return tuple(place)


def concerns(name: str, cell: Cell) -> bool:
    """Whether a setting is one of this cell: any but the options of others, and what `none` cannot shard or split."""
    if name in OF_METHOD:
        return capabilities(cell.backend).exchanges
    return "." not in name or name.partition(".")[0] in (cell.backend, cell.algorithm)


def position(values: Sequence[Setting], value: Setting | None) -> int | None:
    """The place of a value among those of an axis; None where it is not there."""
    return next((index for index, known in enumerate(values) if _same(value, known)), None)


def _same(value: Setting | None, known: Setting | None) -> bool:
    """Variables are text in a cell."""
    return value == known or (isinstance(value, str) and value == str(known))
