"""The page in Chromium: as a reader uses it, from a file, by mouse and by keys."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from dlscale.analysis.plots import Plot
from dlscale.analysis.render.html.document import write_page
from tests.analysis.reading import blocks_of

pytest.importorskip("selenium")
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

pytestmark = [pytest.mark.slow, pytest.mark.requires("chromium"), pytest.mark.requires("selenium")]

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def path(made, tmp_path_factory) -> Path:
    """Three trainings over four backends, a failure on a host with a name to fear, a late rank, a late launch."""
    records = made.study()
    late = next(one for one in records if (one.case.cell.backend, one.case.block) == ("mpi", 3))
    records[records.index(late)] = made.record(backend="mpi", block=3, samples_per_second=20.0, minute=200.0)
    records.append(
        made.record(backend="gloo", num_ranks=8, block=6, failure=f"died: {HOSTILE}", host=HOSTILE)
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(
        made.page(
            records,
            losses=made.losses(made.TRAININGS),
            heat_maps=(replace(made.heat_map(), hosts=(HOSTILE,) * 8),),
        ),
        path,
    )
    return path


@pytest.fixture
def page(browser, path):
    """With all its details open."""
    browser.open(path)
    unfold(browser)
    return browser


def unfold(browser):
    browser.run("document.querySelector('.unfold').click()")


def draw_all(page):
    page.run("canvases.forEach(draw)")


def test_it_asks_for_nothing_and_complains_about_nothing(page, path):
    draw_all(page)
    page.find("input[value=ring]").click()
    assert [url for url in page.requests() if not url.startswith(("data:", "blob:"))] == [path.as_uri()]
    assert page.said() == []


def test_the_first_screen_names_the_largest_cause_of_loss(page):
    lead = page.find(".summary p:nth-of-type(2)")
    assert lead.text == "The largest loss is communication and waiting in 9 of 9."
    assert lead.location["y"] + lead.size["height"] < 400
    assert page.find("#efficiency-0").location["y"] < 800


FOLDED = "return [...document.querySelectorAll('details')].filter((one) => !one.open).map((one) => one.id)"


def test_what_is_no_answer_is_folded_also_on_paper(browser, path):
    browser.open(path)
    folded = browser.run(FOLDED)
    assert {"rows", "waterfalls", "launches", "failures", "environment"} <= {*folded}
    assert not {"efficiency", "backends", "advice"} & {*folded}
    assert browser.texts("table") == browser.texts("#backends table")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run(FOLDED) == folded
    browser.run("dispatchEvent(new Event('afterprint'))")
    browser.find(".warnings a[href='#failures']").click()
    browser.until(f"return !(() => {{ {FOLDED} }})().includes('failures')")
    assert browser.texts("#table-failures td")
    assert browser.said() == []


def test_every_name_is_there_once(page):
    names = page.run("return [...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(names) == len(set(names))


def test_text_from_records_is_text(page):
    draw_all(page)
    assert page.run("return document.images.length") == 0
    assert any(HOSTILE in text for text in page.texts("#table-failures td"))
    assert any(text == HOSTILE for text in page.texts("#table-nodes td"))
    assert f"{HOSTILE}, 5 late" in page.run(
        "return document.querySelector('#ranks .yaxislayer-above').textContent"
    )


@pytest.mark.parametrize(
    ("name", "value", "num_rows", "num_plots"),
    [("workload", "cosmogan", 16, 1), ("framework", "tensorflow", 16, 1), ("backend", "ring", 12, 3)],
)
def test_filters_change_what_is_shown(page, name, value, num_rows, num_plots):
    def shown():
        rows = page.run(
            "return [...document.querySelectorAll('#table-numbers tbody tr')].filter((row) => !row.hidden)"
            f".map((row) => row.dataset.{name})"
        )
        return rows, len([text for text in page.texts("#efficiency h3") if text.startswith("Efficiency")])

    assert (len(shown()[0]), shown()[1]) == (48, 3)
    page.find(f"input[name={name}][value={value}]").send_keys(Keys.SPACE)
    rows, plots = shown()
    assert set(rows) == {value}
    assert (len(rows), plots) == (num_rows, num_plots)
    assert page.find(".filters output").text == f"{num_rows} of 48 cells"
    page.find(".filters button[type=reset]").send_keys(Keys.ENTER)
    page.until("return document.querySelector('.filters output').textContent === ''")
    assert len(shown()[0]) == 48


def test_a_backend_s_filter_leaves_its_curve_alone(page):
    page.drawn("efficiency-0")
    names = (
        "return document.getElementById('efficiency-0').data.filter((one) => one.text).map((one) => one.name)"
    )
    assert page.run(names) == ["none", "gloo", "mpi", "ring"]
    page.find("input[value=mpi]").click()
    page.until("return document.getElementById('efficiency-0').data.filter((one) => one.text).length === 1")
    assert page.run(names) == ["mpi"]


def test_tables_sort_by_keys(page):
    def column():
        return [float(text.split(" ")[0]) for text in page.texts("#table-numbers tbody td:nth-child(5)")]

    heading = page.find("#table-numbers th:nth-child(5)")
    button = page.find("#table-numbers th:nth-child(5) button")
    assert button.text.startswith("throughput")
    assert heading.get_attribute("aria-sort") == "none"
    before = column()
    button.send_keys(Keys.ENTER)
    assert heading.get_attribute("aria-sort") == "ascending"
    assert column() == sorted(before) != before
    button.send_keys(Keys.SPACE)
    assert heading.get_attribute("aria-sort") == "descending"
    assert column() == sorted(before, reverse=True)
    sorts = "return [...document.querySelectorAll('#table-numbers th')].filter((one) => one.ariaSort !== 'none').length"
    assert page.run(sorts) == 1


def test_hovering_tells_interval_and_n(page):
    page.drawn("efficiency-0")
    point = page.find("#efficiency-0 .scatterlayer .trace:last-of-type .point:last-of-type")
    ActionChains(page.driver).move_to_element(point).perform()
    told = page.until("return document.querySelector('#efficiency-0 .hoverlayer .hovertext')?.textContent")
    assert "ring, 8 ranks on 2 nodes" in told
    assert "% [" in told
    assert "95 % interval, paired t, n = 6 blocks" in told


def test_points_are_told_by_arrow_keys(page):
    canvas = page.drawn("efficiency-0")
    canvas.send_keys(Keys.ARROW_RIGHT)
    first = page.find("#told").get_attribute("textContent")
    assert first.startswith("none, 1 rank on 1 node")
    canvas.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.find("#told").get_attribute("textContent").startswith("none, 4 ranks on 1 node")
    canvas.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert page.find("#told").get_attribute("textContent") == first


def test_what_is_shown_is_downloaded_with_all_digits(page, made):
    page.find("input[name=workload][value=cosmogan]").click()
    page.find("#table-numbers th:nth-child(5) button").click()
    page.find("#table-numbers .download").click()
    rows = page.downloaded("numbers.csv")
    expected = [row for row in made.rows() if row["workload"] == "cosmogan"]
    assert len(rows) == len(expected) == 16
    rates = [float(row["samples_per_second"]) for row in rows]
    assert rates == sorted(row["samples_per_second"] for row in expected)
    by_cell = {(row["backend"], int(row["num_ranks"])): row for row in rows}
    for row in expected:
        mine = by_cell[row["backend"], row["num_ranks"]]
        for name in ("samples_per_second_low", "efficiency_none", "efficiency_backend_high"):
            assert (float(mine[name]) if mine[name] else None) == row[name]


@pytest.mark.parametrize("width", [320, 360, 768])
def test_nothing_is_wider_than_a_small_screen(browser, path, width):
    browser.open(path, width=width, height=640)
    draw_all(browser)
    unfold(browser)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    wide = browser.run("return document.querySelector('#table-numbers .scroll').scrollWidth")
    assert wide > width or width > 700  # it scrolls inside
    assert browser.said() == []


def test_dark_where_the_reader_s_system_is(browser, path):
    def colours():
        body = browser.run("return getComputedStyle(document.body).backgroundColor")
        return body, browser.run("return document.getElementById('efficiency-0').layout.font.color")

    browser.open(path)
    light = colours()
    browser.open(path, dark=True)
    dark = colours()
    assert light[0] == "rgb(255, 255, 255)"
    assert light[0] != dark[0]
    assert light[1] != dark[1]


def test_the_keyboard_alone_gets_to_the_numbers(page):
    ActionChains(page.driver).send_keys(Keys.TAB).perform()
    assert page.run("return document.activeElement.className") == "skip"
    ActionChains(page.driver).send_keys(Keys.ENTER).perform()
    assert page.run("return document.activeElement.id") == "main"
    ActionChains(page.driver).send_keys(Keys.TAB).perform()
    assert page.run("return document.activeElement.id") == "efficiency-0"
    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_on_paper_it_is_dark_on_white(browser, path):
    browser.open(path, dark=True)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("return document.getElementById('efficiency-0').layout.font.color") == "#444"
    assert browser.run("return canvases.every((one) => one.data || one.closest('details'))")
    browser.run("dispatchEvent(new Event('afterprint'))")
    # While it is drawn anew a plot has no font.
    color = "document.getElementById('efficiency-0').layout?.font?.color"
    browser.until(f"return !['#444', undefined].includes({color})")
    assert browser.said() == []


PAPER = 794  # pixels of A4's width; 680 are between the margins


def test_on_paper_nothing_is_cut_or_overlaps(browser, path):
    browser.open(path)
    unfold(browser)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    metrics = {"width": PAPER, "height": 1123, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    boxes = "return [...document.querySelectorAll(arguments[0])].map((one) => one.getBoundingClientRect().toJSON())"
    for kind in ("table", ".canvas", ".canvas svg", ".canvas text"):
        assert max(box["right"] for box in browser.run(boxes, kind)) <= 681, kind
    plots = browser.run(boxes, ".plot")
    assert len(plots) > 9
    assert all(
        one["bottom"] <= other["top"] or one["right"] <= other["left"] or other["right"] <= one["left"]
        for one, other in pairwise(plots)
    )
    heads = browser.run(
        "return [...document.querySelectorAll('th button')].map((one) => getComputedStyle(one).display)"
    )
    assert {*heads} == {"contents"}  # else they are missing on a table's further pages
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.said() == []


def test_on_paper_a_table_tells_what_is_not_shown(browser, made, tmp_path):
    path = tmp_path / "long.html"
    write_page(made.page(made.study(rank_counts=range(1, 10), num_blocks=1)), path)  # 108 cells
    browser.open(path)
    left = "return document.querySelector('#table-numbers .more').dataset.paper"
    assert browser.run(left).startswith("100 of 108 rows")


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


def test_many_points(browser, made, tmp_path):
    """10,000 points are drawn, and filtered."""
    path = tmp_path / "many.html"
    write_page(with_launches(made.page(made.study(trainings=made.TRAININGS[:1])), 10_000), path)
    assert path.stat().st_size < 8e6
    browser.open(path)
    unfold(browser)
    browser.drawn("every-launch")
    assert browser.run("return document.querySelectorAll('#every-launch .point').length") == 10_000
    browser.find("input[value=ring]").click()
    browser.until("return document.querySelectorAll('#every-launch .point').length === 2500")
    assert browser.said() == []


def with_launches(page, number):
    """The page with as many launches, four backends' in turn."""
    plot = next(plot for plot in blocks_of(page, Plot) if plot.name == "every-launch")
    each = number // len(plot.series)
    series = tuple(
        replace(
            one,
            points=tuple(
                replace(
                    one.points[index % len(one.points)],
                    x=1.8e12 + 60_000 * (4 * index + which),
                )
                for index in range(each)
            ),
        )
        for which, one in enumerate(plot.series)
    )
    many = replace(plot, series=series)
    sections = tuple(
        replace(section, blocks=tuple(many if block is plot else block for block in section.blocks))
        for section in page.sections
    )
    return replace(page, sections=sections)
