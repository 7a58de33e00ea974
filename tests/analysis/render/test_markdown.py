"""The table as markdown: the report's numbers, and nothing in records becomes markup."""

import re
from pathlib import Path

import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.measured import measure
from dlscale.analysis.render.markdown import escape_markdown, markdown_table, study_markdown
from dlscale.analysis.text import percent, rate
from dlscale.benchmarks.records.files import BadFile


def rows_of(text):
    """The cells of every row of every table."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_rows_hold_the_table_s_numbers_with_intervals_and_n(make_study):
    table = measure(make_study())
    header, *rows = rows_of(study_markdown(table))
    assert header[:4] == ["backend", "ranks", "nodes", "throughput [samples/s]"]
    assert len(rows) == len(scaling.FINDING.of(table))
    for cells, row in zip(rows, scaling.FINDING.of(table), strict=True):
        assert cells[:3] == [row.cell.backend, str(row.cell.num_ranks), "1"]
        assert cells[3] == rate(row.throughput)
        assert cells[4] == rate(row.speed_up)
        assert cells[5] == percent(row.efficiency_none, unit="")
        assert cells[9] == "6/6"


def test_every_row_has_as_many_cells_as_the_header(make_study, make_record):
    records = [*make_study(), make_record(block=3, control="whole_machine", cores_per_rank=2)]
    header, *rows = rows_of(study_markdown(measure(records)))
    assert all(len(cells) == len(header) for cells in rows)


def test_sentences_notes_and_origin_are_there(make_study):
    table = measure(make_study(num_blocks=3))
    text = study_markdown(table)
    assert "* ring: scaling efficiency 9" in text
    assert "1. fewer than 6 launches: no 95 % interval of samples/s" in text
    assert table.provenance.data_hash in text


def test_failures_and_bad_files_are_told(make_study, make_record):
    records = [*make_study(), make_record(block=9, failure="out of memory")]
    bad = BadFile(path=Path("records/x.json"), reason="not complete JSON")
    text = study_markdown(measure(records), bad_files=[bad])
    assert "### Failed launches" in text
    assert "out of memory" in text
    assert "* x.json: not complete JSON" in text


@pytest.mark.parametrize(
    "evil",
    [
        "<img src=x onerror=alert(1)>",
        "a | b",
        "*bold* and _thin_",
        "[here](http://x)",
        "`code`",
        "&lt;b&gt;",
        "$x$",
    ],
)
def test_text_from_records_is_no_markup(evil):
    shown = escape_markdown(evil)
    for mark in "<|*`$":
        assert not re.search(rf"(?<!\\){re.escape(mark)}", shown)
    assert "](" not in shown.replace("\\](", "")
    assert "&lt;" not in shown.replace("\\&lt;", "")
    assert not re.search(r"(?<!\\)\b_|_\b(?<!\\_)", " " + shown.replace("\\_", ""))


def test_ordinary_names_and_intervals_stay_readable():
    assert escape_markdown("hep_cnn 93 % [91, 95]\n(a) [%]") == "hep_cnn 93 % [91, 95] (a) [%]"


def test_cells_of_failures_stay_in_one_row(make_record):
    records = [make_record(system="a|b", failure="x\n| y |"), make_record(system="a|b", block=1)]
    text = study_markdown(measure(records))
    header, *rows = rows_of(text)
    assert all(len(cells) == len(header) for cells in rows)
    assert "a\\|b" in text


def test_columns_of_numbers_stand_to_the_right():
    assert markdown_table(("backend", "ranks"), [("ring", "2")]) == [
        "| backend | ranks |",
        "| --- | ---: |",
        "| ring | 2 |",
    ]


def test_nothing_measured_says_so():
    assert "nothing has been measured" in study_markdown(measure([]))


def test_frameworks_that_differ_are_told_in_bold(make_study):
    from dlscale.benchmarks.records.record import Gate, Parity

    gate = Gate(name="gradient", passed=False, value=0.1, tolerance=0.01, detail="d")
    parity = Parity(workload="hep_cnn", preset="tiny", precision="fp32", num_parameters={}, checks=[gate])
    records = [one for name in ("torch", "tensorflow") for one in make_study(framework=name, num_blocks=3)]
    assert re.search(
        r"^\*\*.*parity gate failed.*\*\*$", study_markdown(measure(records, parities=[parity])), re.M
    )
