"""The table of mutations: as many as promised, killed as often as promised, and counted as the page says."""

from tests.mutation.mutations import PAGE, TOP, killed_share, settings, table_rows, with_summary
from tests.mutation.places import places

ROWS = table_rows()


def test_two_hundred_mutations_of_all_modules_and_nine_in_ten_killed():
    assert len(ROWS) >= 200
    known = settings()["tests"]
    assert {row["module"] for row in ROWS} == known.keys()
    named = [*known, *(path for stages in known.values() for stage in stages for path in stage.split())]
    assert [path for path in named if not (TOP / path).exists()] == []
    assert killed_share(ROWS) >= 0.9


def test_the_page_counts_the_rows_of_the_table():
    page = PAGE.read_text(encoding="utf-8")
    assert with_summary(page, ROWS) == page


def test_every_equivalent_mutation_has_a_reason():
    for row in ROWS:
        assert (row["result"] == "equivalent") == bool(row["reason"]), row


def test_what_is_called_equivalent_can_still_be_drawn():
    for entry in settings().get("equivalent", []):
        changes = {(mutation.was, mutation.became) for mutation in places(entry["module"])}
        assert (entry["was"], entry["became"]) in changes, "remove it from mutations.toml"
