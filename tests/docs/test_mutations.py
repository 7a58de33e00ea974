"""The table of mutations: as many as promised, killed as often as promised, and counted as the page says."""

import csv
import runpy
from pathlib import Path

TOP = Path(__file__).parents[2]
TOOL = runpy.run_path(str(TOP / "tests" / "mutation" / "mutations.py"))
PAGE = TOP / "docs" / "measurements" / "mutations.md"
with (TOP / "docs" / "measurements" / "mutations.csv").open(encoding="utf-8", newline="") as table:
    ROWS = list(csv.DictReader(table))


def test_two_hundred_mutations_of_all_modules_and_nine_in_ten_killed():
    assert len(ROWS) == 200
    known = TOOL["_settings"]()["tests"]
    assert {row["module"] for row in ROWS if (TOP / row["module"]).exists()} <= known.keys()
    named = [*known, *(path for stages in known.values() for stage in stages for path in stage.split())]
    assert [path for path in named if not (TOP / path).exists()] == []
    assert TOOL["killed_share"](ROWS) >= 0.9


def test_the_page_counts_the_rows_of_the_table():
    page = PAGE.read_text(encoding="utf-8")
    assert TOOL["with_summary"](page, ROWS) == page


def test_every_equivalent_mutation_has_a_reason():
    for row in ROWS:
        assert (row["result"] == "equivalent") == bool(row["reason"]), row


def test_what_is_called_equivalent_can_still_be_drawn():
    for entry in TOOL["_settings"]().get("equivalent", []):
        changes = {(mutation.was, mutation.became) for mutation in TOOL["places"](entry["module"])}
        assert (entry["was"], entry["became"]) in changes, "remove it from mutations.toml"
