"""expectations.toml: what cells of a system should measure, from baseline studies, for `dlscale accept`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import tomlkit
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from dlscale.base.definitions import Frozen, load_file
from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.base.strings import Moment, Name, Text
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Evidence

EXPECTATIONS_FILE = "expectations.toml"
HEAD = "Written by dlscale accept --record. `values` are the medians of each baseline, in the order of baselines."


class ExpectedNumber(Frozen):
    """A metric of a cell: the median over baselines, their spread, and each baseline's own median over launches."""

    median: PositiveFloat
    spread: NonNegativeFloat  # standard deviation between studies, as a share
    values: list[PositiveFloat]
    launches: list[PositiveInt]
    within: NonNegativeFloat  # variance of one launch's logarithm


class ExpectedCell(Frozen):
    """A cell with its metrics by name."""

    cell: Cell
    evidence: Evidence
    numbers: dict[Text, ExpectedNumber]


class Baseline(Frozen):
    """A study that expectations are from: where it was, when, and what it was measured with."""

    name: Name
    place: Text
    begun: Moment
    data_hash: Text
    facts: dict[Text, Text]  # versions, kernel, driver, code


class Expectations(Frozen):
    """What a machine should measure. `key` is what must agree with it; `study` is study.json's study, as JSON."""

    schema_version: Literal[1] = 1
    system: Name
    key: dict[Text, Text]
    study: Text
    environment: Text
    data: Text | None = None
    baselines: list[Baseline] = Field(min_length=3)
    cells: list[ExpectedCell] = Field(min_length=1)


def read_expectations(path: Path) -> Expectations:
    """The expectations in a file. Raises UsageError."""
    if not path.is_file():
        raise UsageError(
            f"no expectations in {path}; record them from three studies or more: dlscale accept --record"
        )
    return load_file(Expectations, path)


def write_expectations(expectations: Expectations, path: Path) -> None:
    """Write them so that `read_expectations` reads them. Raises UsageError."""
    document = tomlkit.document()
    document.add(tomlkit.comment(HEAD))
    document.update(expectations.model_dump(mode="json", exclude_none=True))
    write_atomically(path, tomlkit.dumps(document), mode=0o644, remedy="choose another --expectations")
