"""The table of measured coverages in docs/measurements/coverage.md is that of coverage.py beside it."""

import re
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "docs" / "measurements"
TABLE = runpy.run_path(str(FOLDER / "coverage.py"))["table"]
DOCUMENTED = [
    line for line in (FOLDER / "coverage.md").read_text(encoding="utf-8").splitlines() if line.count("|") == 6
]


def cells(line):
    return [float(number) for number in re.findall(r"([\d.]+) %", line.split(" | ", 2)[2])]


@pytest.mark.slow
def test_fewer_studies_give_the_documented_coverages():
    found = TABLE(600)
    assert [line.split(" | ")[:2] for line in found] == [line.split(" | ")[:2] for line in DOCUMENTED]
    for mine, theirs in zip(found[2:], DOCUMENTED[2:], strict=True):
        assert cells(mine) == pytest.approx(cells(theirs), abs=5.5), theirs


def test_what_is_claimed_holds_its_level_as_documented():
    assert len(DOCUMENTED) >= 11
    for line in DOCUMENTED[2:]:
        assert min(cells(line)) >= 94.5, line
