"""The tables of measured coverages in docs/measurements/coverage.md are those of tests/benchmark/coverage.py."""

import re
import runpy
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
SIMULATED = runpy.run_path(str(TOP / "tests" / "benchmark" / "coverage.py"))
DOCUMENT = (TOP / "docs" / "measurements" / "coverage.md").read_text(encoding="utf-8")


def documented(name):
    """The lines of a table between its markers."""
    _, _, rest = DOCUMENT.partition(f"<!-- {name} -->\n")
    return rest.partition(f"<!-- end of {name} -->")[0].splitlines()


def heads(lines):
    """The words of each row, without its last three cells."""
    return [line.rsplit(" | ", 3)[0] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "simulate", "table", "num_studies", "points"),
    [("coverages", "coverages", "coverage_table", 600, 5.5), ("causes", "causes", "cause_table", 150, 13)],
)
def test_fewer_studies_give_the_documented_coverages(name, simulate, table, num_studies, points):
    stored = documented(name)
    found = SIMULATED[table](SIMULATED[simulate](num_studies))
    assert heads(found) == heads(stored)
    assert len(stored) > 5
    for mine, theirs in zip(found[2:], stored[2:], strict=True):
        for value, other in zip(last_cells(mine), last_cells(theirs), strict=True):
            assert value == pytest.approx(other, abs=points), theirs


def last_cells(line):
    return [float(number) for cell in line.rsplit(" | ", 3)[1:] for number in re.findall(r"([\d.]+) %", cell)]


def test_what_is_claimed_holds_its_level_as_documented():
    claimed = [line for line in documented("coverages")[2:] if "does not claim" not in line]
    assert len(claimed) >= 9
    for line in claimed:
        assert min(last_cells(line)) >= 94.5, line


def test_a_wrong_largest_loss_is_named_in_at_most_5_percent_as_documented():
    for line in documented("causes")[2:]:
        assert max(last_cells(line)[1::2]) <= 5.5, line
    first = last_cells(documented("causes")[2])
    assert first[0] >= 45  # the rule of equal shares of 5 % named it in 23 % by 6 launches
    assert first[4] >= 70  # and in 53 % by 10
