"""The page with sliders: it holds the grid's own numbers, is small, cannot be broken by names, and moves."""

import json
import re
from dataclasses import replace

import pytest

from dlscale.analysis.predict.grid import grid_rows, read_axes
from dlscale.analysis.predict.published_profiles import load_stored
from dlscale.analysis.predict.scenario import scenario_of
from dlscale.analysis.render.html.content import Section
from dlscale.analysis.render.html.document import render
from dlscale.analysis.render.html.what_if import what_if, what_if_block
from dlscale.base.errors import UsageError
from dlscale.benchmarks.systems.system import load_system

GRID = re.compile(r'<script type="application/json">(.*?)</script>', re.DOTALL)


@pytest.fixture(scope="module")
def rows():
    machine = load_system("cori")
    scenarios = [
        scenario_of(
            machine, load_stored(machine, "hep_cnn"), backend, scaling_mode="weak", backend_options={}
        )
        for backend in ("ring", "grpc_ps")
    ]
    return list(grid_rows(read_axes("link_rate=0.25,latency=1,jitter=1,batch=128"), scenarios, [1, 64, 4096]))


def test_the_page_holds_the_grids_numbers_and_its_table_is_as_asked_for(rows):
    page = what_if(rows, asked_batch=128, grid_name="grid.csv")
    data = json.loads(GRID.search(page)[1])
    ring = next(backend for backend in data["backends"] if backend["name"] == "ring")
    own = [row for row in rows if row["backend"] == "ring"]
    assert ring["efficiency"] == pytest.approx([row["efficiency"] for row in own], rel=1e-4)
    assert data["asked"] == [1, 0, 0, 0, 2]
    asked = next(row for row in own if (row["link_rate_factor"], row["num_nodes"]) == (1, 4096))
    assert "<td>4,096</td><td>4,096</td>" in page
    assert f"<td>{100 * asked['efficiency']:.1f}</td>" in page
    assert len(page) < 8e6


def test_names_cannot_end_the_data_or_become_html(rows):
    evil = "</script><script>alert(1)</script>"
    page = what_if(
        [row | {"system": evil, "backend": evil} for row in rows[: len(rows) // 2]],
        asked_batch=128,
        grid_name=evil,
    )
    assert "<script>alert" not in page
    assert page.count("<script") == 2


def test_a_grid_that_lacks_points_is_refused(rows):
    with pytest.raises(UsageError, match="combinations of its axes"):
        what_if(rows[:-1], asked_batch=128, grid_name="grid.csv")
    with pytest.raises(UsageError, match="no batch 64"):
        what_if(rows, asked_batch=64, grid_name="grid.csv")


@pytest.mark.requires("chromium")
@pytest.mark.requires("selenium")
@pytest.mark.parametrize("place", ["alone", "report"])
def test_a_slider_moves_curves_and_words(browser, made, rows, tmp_path, place):
    path, asked = tmp_path / "what-if.html", {"asked_batch": 128, "grid_name": "grid.csv"}
    if place == "alone":
        path.write_text(what_if(rows, **asked))
    else:
        block = what_if_block(rows, **asked)
        section = Section(name="what-if", title="What if", blocks=(block, block))
        path.write_text(render(replace(made.page([]), sections=(section,))))
    browser.open(path)
    words = "return [...document.querySelectorAll('.what-if .says')].map((says) => says.textContent)"
    band = "return document.querySelector('.over-nodes polygon').getAttribute('points')"
    before = browser.run(words), browser.run(band)
    browser.run(
        "const links = document.querySelector('input[data-axis=link_rate_factor]'); links.value = 0;"
        "links.dispatchEvent(new Event('input', { bubbles: true }))"
    )
    after = browser.run(words), browser.run(band)
    assert before[0][0] != after[0][0]
    assert before[0][1:] == after[0][1:]  # another prediction's sliders are its own
    assert before[1] != after[1]
    slow = next(row for row in rows if (row["link_rate_factor"], row["num_nodes"]) == (0.25, 4096))
    assert f"ring {100 * slow['efficiency']:.1f} %" in after[0][0]
    assert browser.said() == []
