"""Energy on the page: joules per sample with their source and parts, or why they are not known."""

import pytest

from dlscale.benchmarks.records.record import NodeEnergy

ONE = (("hep_cnn", "torch"),)
SAMPLES = 10 * 5 * 8  # of a rank: windows, steps, local batch


def powered(record, joules, *, source="rapl", parts="1 package, 1 dram", reason=None):
    reading = NodeEnergy(
        rank=0, node="nid00001", source=source, parts=parts if joules else "", joules=joules,
        seconds=20.0 if joules else None, reason=reason,
    )  # fmt: skip
    return record.model_copy(update={"energy": [reading]})


def blocks(page):
    section = next(one for one in page.sections if one.name == "energy")
    return section.blocks


@pytest.fixture(scope="module")
def records(made):
    return made.study(trainings=ONE, rank_counts=(1, 2), efficiency={"none": 1.0, "ring": 0.9})


def test_where_some_are_known_the_others_are_counted(made, records):
    mixed = [
        powered(one, 900.0) if one.case.cell.backend == "ring" else powered(one, None, reason="no counter")
        for one in records
    ]
    said, table = blocks(made.page(mixed))
    assert {row.data["backend"] for row in table.rows} == {"ring"}
    assert said.text == "Energy per sample of 2 cells of 4 is not known: rapl: no counter."


def test_nodes_that_count_different_parts_are_told(made, records):
    other = [
        powered(one, 900.0, parts="2 packages" if one.case.block % 2 else "1 package") for one in records
    ]
    (table,) = blocks(made.page(other))
    assert {row.data["parts"] for row in table.rows} == {"1 package | 2 packages"}
