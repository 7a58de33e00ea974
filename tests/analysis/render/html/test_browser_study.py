"""What the page says of whole studies in Chromium: causes at a glance, comparisons, rings, and many points."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from dlscale.analysis.declare import Plot, Point, Series, Tags
from dlscale.analysis.render.html.document import write_page

pytest.importorskip("selenium")

pytestmark = [pytest.mark.slow, pytest.mark.requires("chromium"), pytest.mark.requires("selenium")]

EXCHANGES = ("none", "ring", "mpi", "gloo")


@pytest.fixture(scope="module")
def path(made, tmp_path_factory) -> Path:
    """Three trainings over four backends, held against the ring; one launch of mpi is late."""
    records = made.study()
    late = next(one for one in records if (one.case.cell.backend, one.case.block) == ("mpi", 3))
    records[records.index(late)] = made.record(backend="mpi", block=3, samples_per_second=20.0, minute=200.0)
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(made.page(records, losses=made.losses(made.TRAININGS)), path)
    return path


@pytest.fixture
def page(browser, path):
    browser.open(path)
    return browser


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_largest_cause_is_seen_at_a_glance(browser, path, width, height):
    browser.open(path, width=width, height=height)
    assert len(browser.texts(".strips li")) == 3  # the best backend of each training
    assert {text.split(":")[0] for text in browser.texts(".strips .certain")} == {"stragglers"}
    places = browser.run(
        "return [...document.querySelectorAll('.strips .largest')].map((one) => one.getBoundingClientRect().toJSON())"
    )
    assert all(place["bottom"] < height and place["width"] >= 4 for place in places)
    browser.find("input[value=cosmogan]").click()
    assert browser.texts(".strips .name") == ["CosmoGAN, torch: ring, 8 ranks"]


def test_comparisons_are_filtered_by_both_sides_sorted_and_downloaded(page):
    shown = "#table-contrasts tbody tr"
    assert len(page.texts(shown)) == 18  # 3 trainings, 2 backends against the ring, 3 numbers of ranks
    page.find("input[value=ring]").click()
    assert len(page.texts(shown)) == 18
    page.find("input[value=ring]").click()
    page.find("input[value=mpi]").click()
    assert len(page.texts(shown)) == 9
    assert all("mpi : ring" in text for text in page.texts(shown))
    headings = page.driver.find_elements("css selector", "#table-contrasts th button")
    next(one for one in headings if one.text.startswith("throughput")).click()
    page.find("#table-contrasts .download").click()
    rows = page.downloaded("contrasts.csv")
    ratios = [float(row["ratio"]) for row in rows]
    assert ratios == sorted(ratios)
    assert {(row["contender"], row["reference"]) for row in rows} == {("mpi", "ring")}
    assert all(row["verdict"] == "cannot be shown" and "--launches 10 can" in row["reason"] for row in rows)


def test_a_launch_that_stands_out_has_a_ring(page):
    page.drawn("every-launch")
    rings = "return document.getElementById('every-launch').data.filter((one) => one.marker?.symbol === 'circle-open')"
    (ring,) = page.run(rings)
    assert len(ring["x"]) == 1
    assert "stands out, and counts" in page.texts("#launches .legend li")
    page.find("input[value=gloo]").click()
    page.until(f"return (() => {{ {rings} }})().length === 0")


def test_many_points(browser, made, tmp_path):
    """10,000 points are drawn, and filtered."""
    path = tmp_path / "many.html"
    write_page(with_launches(made.page(), 10_000), path)
    assert path.stat().st_size < 8e6
    browser.open(path)
    browser.drawn("every-launch")
    assert browser.run("return document.querySelectorAll('#every-launch .point').length") == 10_000
    browser.find("input[value=ring]").click()
    browser.until("return document.querySelectorAll('#every-launch .point').length === 2500")
    assert browser.said() == []


def with_launches(page, number):
    """The page with as many launches, four backends' in turn."""
    plots = [block for section in page.sections for block in section.blocks if isinstance(block, Plot)]
    plot = next(plot for plot in plots if plot.name == "every-launch")
    each = number // len(EXCHANGES)
    series = tuple(
        Series(
            name=name,
            look=name,
            evidence="measured",
            tags=Tags(workload="hep_cnn", framework="torch", backend=name),
            points=tuple(
                Point(
                    x=1.8e12 + 60_000 * (4 * index + which),
                    y=1 + 0.05 * math.sin(index / 50 + which),
                    lines=(
                        f"{name}, 8 ranks, block {index}",
                        "HEP-CNN, torch",
                        "381 samples/s, +1.2 % (1 launch)",
                    ),
                )
                for index in range(each)
            ),
        )
        for which, name in enumerate(EXCHANGES)
    )
    many = replace(plot, series=series)
    sections = tuple(
        replace(section, blocks=tuple(many if block is plot else block for block in section.blocks))
        for section in page.sections
    )
    return replace(page, sections=sections)
