"""The table as markdown: the report's numbers, and nothing in records becomes markup."""

import re

import pytest

from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all
from dlscale.analysis.measured import measure
from dlscale.analysis.render.markdown import escape_markdown, study_markdown
from tests.made_records import make_record, make_study


def test_notes_failures_and_the_origin_are_there():
    records = [*make_study(num_blocks=3), make_record(block=9, failure="x\n| y |")]
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
