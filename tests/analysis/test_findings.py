"""What holds for every finding, of studies of all kinds, and what one that fails leaves to the others."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dlscale.analysis.declare import Sentence, Table
from dlscale.analysis.finding import Finding, collect
from dlscale.analysis.findings import load_all
from dlscale.analysis.measured import measure
from dlscale.analysis.render.data import study_json
from dlscale.analysis.render.html.document import render
from dlscale.analysis.render.html.page import page_of
from dlscale.analysis.render.markdown import study_markdown
from dlscale.analysis.render.screen import render_full, render_screen
from dlscale.benchmarks.records.cell import Case
from tests.analysis.reading import printed
from tests.made_records import make_record, make_study

FINDINGS = load_all()
KINDS = ("empty", "planned", "one launch", "two backends", "failures", "impossible times")


@pytest.fixture(params=KINDS)
def study(request):
    one = make_record(backend="ring", num_ranks=2)
    failed = [make_record(block=block, failure="hang") for block in range(3)]
    match request.param:
        case "empty":
            return measure([])
        case "planned":
            return measure(
                [], planned=[Case(cell=one.case.cell, block=block, position=0) for block in range(3)]
            )
        case "one launch":
            return measure([one])
        case "failures":
            return measure([*make_study(num_blocks=2), *failed])
        case "impossible times":
            return measure([*make_study(num_blocks=2), make_record(block=7, samples_per_second=math.inf)])
    return measure(make_study(efficiency={"none": (1.0, 0.98), "ring": (0.99, 0.92)}), order=("ring",))


def test_no_finding_fails(study):
    assert [one.error for one in collect(FINDINGS, study) if one.error] == []


def test_what_programs_read_is_flat_and_finite(study):
    data = json.loads(json.dumps(study_json(collect(FINDINGS, study)), allow_nan=False))
    assert data["schema"] == 1
    lists = [value for value in data.values() if isinstance(value, list)]
    rows = [row for value in lists for row in value if isinstance(row, dict)]
    assert not [value for row in rows for value in row.values() if isinstance(value, dict)]


def test_tables_are_as_wide_as_their_columns_and_have_names_of_their_own(study):
    blocks = [block for one in collect(FINDINGS, study) for block in one.blocks]
    tables = [block for block in blocks if isinstance(block, Table)]
    assert len({table.name for table in tables}) == len(tables)
    for table in tables:
        assert {len(row.values) for row in table.rows} == {len(table.columns)}
        finite = [value for row in table.rows for value in row.data.values() if isinstance(value, float)]
        assert all(map(math.isfinite, finite))


def test_every_renderer_shows_it(study):
    found = collect(FINDINGS, study)
    page = page_of(study, found)
    assert render(page) == render(page_of(study, collect(FINDINGS, study))), "equal records, equal bytes"
    text = printed(render_screen(study, found), render_full(study, found), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert study_markdown(found, origin="here").endswith("Origin: here.\n")


def test_names_are_unique_and_sections_exist():
    names = [finding.name for finding in FINDINGS]
    assert len(set(names)) == len(names)
    assert {finding.under for finding in FINDINGS} - {""} <= set(names)


def odd(records: Any) -> Iterator[Sentence]:
    if any(record.attempt == 3 for record in records):
        raise ValueError("an odd record")
    yield Sentence(text=f"{len(records)} sound records")


BROKEN = Finding(name="broken", title="Broken", compute=lambda study: study.records, sentences=odd)


def test_one_that_raises_says_so_and_leaves_the_others_alone():
    records = make_study()
    (sound,) = collect([BROKEN], measure(records))
    assert [block.text for block in sound.blocks] == [f"{len(records)} sound records"]
    culprit = make_record(block=9, attempt=3)
    study = measure([*records, culprit])
    found = collect([BROKEN, *FINDINGS], study)
    assert found[0].error == (
        f"Broken could not be computed, because of the record {culprit.case.id}.3.json: ValueError: an odd record."
    )
    assert [one.finding.name for one in found if one.error] == ["broken"]
    assert study_json(found)["errors"] == {"broken": found[0].error}
    page = page_of(study, found)
    assert found[0].error in {block.text for block in page.sections[0].blocks if isinstance(block, Sentence)}
    assert len(page.sections) == 1 + len(page_of(study, found[1:]).sections)
    assert found[0].error in printed(render_screen(study, found), width=200)


def test_one_that_raises_takes_down_neither_the_head_of_the_page_nor_the_screen(monkeypatch):
    """Verdict, strips and warnings rest on findings, too."""
    study = measure(make_study(), order=("ring",))
    healthy = page_of(study, collect(FINDINGS, study))
    for broken in FINDINGS:
        failing = replace(broken, compute=_raises)
        again = measure(make_study(), order=("ring",))
        found = collect([failing if one is broken else one for one in FINDINGS], again)
        page = page_of(again, found)
        assert page.title == healthy.title
        printed(render_screen(again, found))


def _raises(_: Any) -> Any:
    raise ArithmeticError("by a test")
