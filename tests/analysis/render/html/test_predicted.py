"""Predictions on the page: marks of their own, a section of their own, and nothing without any."""

from dataclasses import replace

import pytest

from dlscale.analysis.declare import Sentence
from dlscale.analysis.measured import measure
from dlscale.analysis.plots import Plot
from dlscale.analysis.render.html.document import payload, render, write_page
from tests.analysis.made_predictions import predictions
from tests.analysis.reading import blocks_of, page_for
from tests.made_records import make_study


@pytest.fixture
def pages():
    """The page without predictions, and with them."""
    records = make_study()
    table = measure(records)
    asked = [*predictions(doubts=("too far",)), *predictions("horovod", (4,))]
    both = replace(table, predictions=tuple(asked))
    return [page_for(study) for study in (table, both)]


def plots(page):
    return {one.name: one for one in blocks_of(page, Plot)}


def section(page, name):
    return [one for one in page.sections if one.name == name]


@pytest.mark.parametrize(
    ("name", "field"), [("efficiency-0", "efficiency"), ("throughput-0", "samples_per_second")]
)
def test_predictions_are_series_of_their_own_without_a_line(pages, name, field):
    plain, both = (plots(page)[name] for page in pages)
    assert both.series[: len(plain.series)] == plain.series
    ours = both.series[len(plain.series) :]
    assert [(one.name, one.evidence, one.joined, one.band) for one in ours] == [
        ("horovod, predicted", "simulated", False, True),
        ("ring, predicted", "simulated", False, True),
    ]
    wanted = [getattr(record, field) for record in predictions()]
    found = [(point.low, point.y, point.high) for point in ours[1].points]
    assert found == [pytest.approx((band.low, band.center, band.high)) for band in wanted]
    assert "ring on 16 ranks (8 nodes), simulated: nothing was run" in ours[1].points[-1].lines
    assert any("%" in line and "of what was measured" in line for line in ours[1].points[0].lines)
    assert "of what was measured" not in " ".join(ours[1].points[-1].lines)
    assert [place for place, _ in both.x.ticks] == [1, 2, 4, 8, 16]
    assert both.y.high >= max(point.high for one in ours for point in one.points)
    assert any("Nothing of it was run." in note for note in both.notes)
    assert {one.look for one in ours} <= set(pages[1].looks)


def test_the_same_backend_is_not_predicted_against_itself(pages):
    assert plots(pages[1])["own-0"] == plots(pages[0])["own-0"]


def test_a_section_says_what_they_are(pages):
    plain, both = pages
    assert section(plain, "predicted") == []
    (found,) = section(both, "predicted")
    sentences = [block for block in found.blocks if isinstance(block, Sentence)]
    assert sentences[0].text == "Predictions over ring are not to be trusted: too far."
    assert sentences[0].strong
    assert found.blocks[-1].name == "predicted"
    assert len(found.blocks[-1].rows) == 6
    assert "simulated: predicted by a model, nothing was run" in both.evidence
    assert ("Evidence is measured and simulated: never joined by a line.", "rows") in both.warnings
    assert both.summary == plain.summary


def test_only_their_series_are_bands_to_the_scripts(pages):
    series = payload(pages[1])["plots"]["efficiency-0"]["series"]
    assert [one["name"] for one in series if one.get("band")] == ["horovod, predicted", "ring, predicted"]
    assert not any("band" in one for one in payload(pages[0])["plots"]["efficiency-0"]["series"])
    assert "ring, predicted</li>" in render(pages[1])


@pytest.mark.slow
@pytest.mark.requires("chromium")
@pytest.mark.requires("selenium")
def test_a_browser_draws_the_bands(browser, pages, tmp_path):
    path = tmp_path / "report.html"
    write_page(pages[1], path)
    browser.open(path)
    browser.run("canvases.forEach(draw)")
    filled = "document.getElementById('efficiency-0').data.filter((one) => one.fill === 'toself').length"
    assert browser.run(f"return {filled}") == 2
    assert browser.said() == []
