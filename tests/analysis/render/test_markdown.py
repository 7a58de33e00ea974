"""The table as markdown: the report's numbers, and nothing in records becomes markup."""

import re

import pytest

from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all, scaling
from dlscale.analysis.findings.scaling import SCALING
from dlscale.analysis.measured import measure
from dlscale.analysis.render.markdown import escape_markdown, study_markdown, table_markdown
from dlscale.analysis.text import percent, rate


def rows_of(text):
    """The cells of every row of every table."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_a_table_holds_the_numbers_with_intervals_and_n(make_study):
    found = scaling.FINDING.of(measure(make_study()))
    header, *rows = rows_of("\n".join(table_markdown(SCALING.of(found))))
    assert header[:4] == ["backend", "ranks", "nodes", "throughput [samples/s]"]
    for cells, row in zip(rows, found, strict=True):
        assert cells[:3] == [row.cell.backend, str(row.cell.num_ranks), "1"]
        assert cells[3] == rate(row.throughput)
        assert cells[4] == rate(row.speed_up)
        assert cells[5] == percent(row.efficiency_none, unit="")
        assert cells[9] == "6/6"


def test_notes_failures_and_the_origin_are_there(make_study, make_record):
    records = [*make_study(num_blocks=3), make_record(system="a|b", block=9, failure="x\n| y |")]
    study = measure(records)
    text = study_markdown(collect(load_all(), study), origin=study.provenance.short_line())
    assert ". fewer than 6 launches: no 95 % interval of samples/s" in text
    assert "hang on rank" in text or "x \\| y" in text
    assert study.provenance.data_hash[:12] in text


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
