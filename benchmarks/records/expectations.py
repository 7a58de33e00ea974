"""Studies as histories and acceptance keep them, and expectations.toml: baselines that `dlscale accept` holds against.

A history reads past studies from records, an acceptance from the file; both compare the same numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import tomlkit
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from dlscale.base.definitions import Frozen, load_file
from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.base.strings import Moment, Name, Text
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Evidence

EXPECTATIONS_FILE = "expectations.toml"
HEAD = "Written by dlscale accept --record; each number is the median of a baseline's launches."
SHARED = ("key", "cells")  # that all baselines have alike, and the file once


class PastNumber(Frozen):
    """A cell's number in a study: the median of `launches`, of which one varies by `within` (variance of its log)."""

    value: PositiveFloat
    launches: PositiveInt
    within: NonNegativeFloat


class PastCell(Frozen):
    """A cell and the kind of evidence of its numbers."""

    cell: Cell
    evidence: Evidence


class PastStudy(Frozen):
    """A study with its first launch, what must agree (`key`) and what may change (`facts`), by fields of records.

    `place` is its folder, `cells` are by their ids, `numbers` by metric and cell.
    """

    name: Name
    place: Text
    begun: Moment
    data_hash: Text
    key: dict[Text, Text]
    facts: dict[Text, Text]
    cells: dict[Text, PastCell]
    numbers: dict[Text, dict[Text, PastNumber]]

    def number(self, metric: str, cell_id: str) -> PastNumber | None:
        """The number of a cell; None if the study has none."""
        return self.numbers.get(metric, {}).get(cell_id)


class Expected(Frozen):
    """What a further study should give: the median over baselines, and their standard deviation as a share."""

    median: PositiveFloat
    spread: NonNegativeFloat


class Expectations(Frozen):
    """The baselines of a system; `study` is their study as study.json has it, in JSON, `expected` is for readers."""

    schema_version: Literal[1] = 1
    system: Name
    study: Text
    environment: Text
    data: Text | None = None
    expected: dict[Text, dict[Text, Expected]]  # by metric and cell
    baselines: list[PastStudy] = Field(min_length=3)

    @model_validator(mode="before")
    @classmethod
    def _share(cls, content: Any) -> Any:
        """What the file has once, of its last baseline, is that of all."""
        if isinstance(content, dict) and isinstance(content.get("baselines"), list) and content["baselines"]:
            last = content["baselines"][-1]
            if isinstance(last, dict):
                shared = {name: last[name] for name in SHARED if name in last}
                return content | {"baselines": [shared | dict(baseline) for baseline in content["baselines"]]}
        return content


def read_expectations(path: Path) -> Expectations:
    """The expectations in a file. Raises UsageError."""
    if not path.is_file():
        raise UsageError(
            f"no expectations in {path}; record them from three studies or more: dlscale accept --record"
        )
    return load_file(Expectations, path)


def write_expectations(expectations: Expectations, path: Path) -> None:
    """Write them so that `read_expectations` reads them. Raises UsageError."""
    content = expectations.model_dump(mode="json", exclude_none=True)
    for baseline in content["baselines"][:-1]:
        for name in SHARED:
            del baseline[name]
    document = tomlkit.document()
    document.add(tomlkit.comment(HEAD))
    document.update(content)
    write_atomically(path, tomlkit.dumps(document), mode=0o644, remedy="choose another --expectations")
