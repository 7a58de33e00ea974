"""The table of mutations: as many as promised, killed as often as promised, and counted as the page says."""

import csv
import runpy
from pathlib import Path

TOP = Path(__file__).parents[2]
TOOL = runpy.run_path(str(TOP / "tests" / "mutation" / "mutations.py"))
PAGE = TOP / "docs" / "mutations.md"
with (TOP / "docs" / "mutations.csv").open(encoding="utf-8", newline="") as table:
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


SOURCE = b'''"""1 + 2"""
from x import y

LIMIT: dict[str, 3] = {"a": 0.0}


def f(a: 5, b=2, *, strict=True) -> 7:
    """3 < 4"""
    if a <= b and not a:
        raise ValueError(f"{a + b}", 1)
    a += 1
    return min(zip(a, b, strict=True), key=-a)
'''


def test_what_can_change_a_result_is_mutated_and_nothing_else():
    places = TOOL["Places"]("x.py", SOURCE)
    places.visit(TOOL["ast"].parse(SOURCE))
    changed = {(mutation.line, mutation.became) for mutation in places.mutations}
    assert changed == {
        (4, 'LIMIT: dict[str, 3] = {"a": 1.0}'),
        (7, "def f(a: 5, b=3, *, strict=True) -> 7:"),
        (7, "def f(a: 5, b=2, *, strict=False) -> 7:"),
        (9, "if a < b and not a:"),
        (9, "if a <= b or not a:"),
        (9, "if a <= b and a:"),
        (11, "a -= 1"),
        (11, "a += 2"),
        (12, "return max(zip(a, b, strict=True), key=-a)"),
        (12, "return min(zip(a, b, strict=True), key=a)"),
    }
    for mutation in places.mutations:
        lines = mutation.applied_to(SOURCE).splitlines()
        assert lines[mutation.line - 1].decode().strip() == mutation.became


def test_a_seed_draws_the_same_mutations_in_proportion_to_places():
    modules = ["benchmarks/rank/gates.py", "benchmarks/records/store.py"]
    drawn = TOOL["draw"](modules, 30, 1)
    assert drawn == TOOL["draw"](modules, 30, 1)
    assert drawn != TOOL["draw"](modules, 30, 2)
    sizes = {module: len(TOOL["places"](module)) for module in modules}
    for module in modules:
        assert len(drawn[module]) == round(30 * sizes[module] / sum(sizes.values()))
    everything = TOOL["draw"](modules, 10_000, 1)
    assert {module: len(mutations) for module, mutations in everything.items()} == sizes
