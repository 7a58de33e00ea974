"""The page as a file: whole, alone, the same every time, and safe whatever is in the records."""

import json
import re
from dataclasses import fields, is_dataclass, replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plotly.offline import get_plotlyjs

from dlscale.analysis.declare import Datum, Sentence, Value, flat
from dlscale.analysis.plots import Block
from dlscale.analysis.render.html.content import Section
from dlscale.analysis.render.html.document import HERE, TEMPLATE, packed, payload, render, to_json, write_page
from dlscale.base.errors import UsageError

NASTY = "</script><script>alert(1)</script><!-- & \" ' \u2028 <img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def records(made):
    return [*made.study(), made.record(backend="gloo", num_ranks=8, block=6, failure=NASTY, host=NASTY)]


@pytest.fixture(scope="module")
def page(made, records):
    return made.page(records)


def everywhere(value, text):
    """The page with `text` wherever it has text of its own that may come from a record."""
    if isinstance(value, str):
        return text
    if isinstance(value, tuple):
        return tuple(everywhere(one, text) for one in value)
    if isinstance(value, Value):
        return replace(value, text=text)
    if is_dataclass(value) and not isinstance(value, type):
        kept = {"name", "look", "looks", "evidence", "verdict", "kind", "tags"}
        return replace(
            value,
            **{
                one.name: everywhere(getattr(value, one.name), text)
                for one in fields(value)
                if one.name not in kept
            },
        )
    return value


def test_text_from_records_is_never_markup(page):
    text = render(everywhere(page, NASTY))
    assert text.count("<script") == text.count("</script>") == 8  # the data, Plotly, six of ours
    assert "<img" not in text.replace("plotly", "")[: text.index("<script>")]
    assert "alert(1)</script><script>" not in text
    body = text[: text.index('<script type="application/json"')]
    assert "onerror=alert(1)>" not in body  # the bracket is always escaped


@settings(max_examples=25, deadline=None)
@given(text=st.text())
def test_any_text_survives_inside_the_data(page, text):
    changed = everywhere(page, text)
    data = to_json(changed)
    assert json.loads(data) == payload(changed)
    assert "<" not in data


def test_the_same_records_give_the_same_bytes(made, records, page):
    assert render(made.page([*records[1::2], *records[::2]])) == render(page)


def test_the_file_is_small_and_needs_nothing_else(page, tmp_path):
    path = tmp_path / "report.html"
    write_page(page, path)
    text = path.read_text()
    assert path.stat().st_size < 3e6
    library = packed(get_plotlyjs()).text
    assert len(library) < 1.8e6  # so that the page of a study on 2 ranks has 2 MB
    ours = text.replace(library, "")
    assert not re.search(r"""(?:src|href|action)\s*=\s*["'](?!#)""", ours)
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|WebSocket", ours)
    assert "Licensed under the MIT license" in text  # Plotly's, which asks for that


def test_the_page_allows_its_own_scripts_alone(page):
    text = render(page)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.replace("&#39;", "'").split(";"))
    assert rules["default-src"] == "'none'"
    assert all(word.startswith("'sha256-") for word in rules["script-src"].split())
    assert "unsafe" not in rules["script-src"] + rules["style-src-elem"]
    assert " style=" not in text[: text.index('<script type="application/json"')]


def test_what_is_no_number_is_empty():
    row: dict[str, Datum] = flat({"a": float("nan"), "b": float("inf"), "c": 0.5, "d": ["x", "y"], "e": None})
    assert row == {"a": None, "b": None, "c": 0.5, "d": "x; y", "e": None}


def test_an_unwritable_place_is_told_in_one_line(made, tmp_path):
    with pytest.raises(UsageError, match="cannot write"):
        write_page(made.page([]), tmp_path / "missing" / "report.html")


def test_waterfalls_and_heat_maps_are_in_the_data(made, records):
    data = payload(made.page(records, losses=made.losses(made.TRAININGS[:1]), heat_maps=[made.heat_map()]))
    ring = data["losses"]["loss-plots-0"]
    assert [part["center"] for part in ring["parts"]] == [2.0, 3.5, 1.0]
    assert [part["largest"] for part in ring["parts"]] == [False, True, False]
    assert ring["total"]["center"] == 6.5
    assert "paired t, n = 6" in ring["parts"][1]["text"]
    assert len(data["heatMaps"]["ranks"]["values"]) == 8


def test_every_kind_of_block_is_shown(page):
    template = (HERE / TEMPLATE).read_text()
    for kind in get_args(Block):
        assert f'kind == "{kind.__name__}"' in template
    sentence = Sentence(text="a sentence that only this section has")
    section = Section(name="x", title="X", blocks=(sentence,))
    assert sentence.text in render(replace(page, sections=(section,)))
