"""The page in Chromium: as a reader uses it, from a file, by mouse and by keys, on paper and on a phone."""

import base64
import io

import pandas as pd
import pytest

from tests.analysis.render.conftest import made_records, write_page
from tests.made_records import in_detail, make_record

pytest.importorskip("selenium")

pytestmark = [pytest.mark.slow, pytest.mark.requires("chromium"), pytest.mark.requires("selenium")]

HOSTILE = "<img src=x onerror=alert(1)> $\\frac{ "
FOLDED = """
return [...document.querySelectorAll('main > .details > details')].filter((one) => !one.open).map((one) => one.id)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Three trainings over four backends, a failure on a host with a name to fear, a backend's option likewise."""
    records = made_records()
    failed = make_record(
        backend="gloo",
        num_ranks=8,
        block=6,
        preset="small",
        failure=f"died: {HOSTILE}",
        study="weak-scaling-1a2b3c4d",
    )
    option = [
        make_record(
            backend="horovod", num_ranks=8, block=b, preset="small", backend_options={"x": HOSTILE}, study=s
        )
        for b in range(6)
        for s in ("weak-scaling-1a2b3c4d",)
    ]
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page([*records, in_detail(failed, host=HOSTILE), *map(in_detail, option)], path)
    return path


@pytest.fixture
def page(browser, path):
    """With all its details open."""
    browser.open(path)
    browser.run("document.querySelector('.unfold').click()")
    return browser


def test_it_asks_for_nothing_and_complains_about_nothing(page, path):
    page.run("document.querySelector('#scaling th button').click()")
    assert [url for url in page.requests() if not url.startswith("data:")] == [path.as_uri()]
    assert page.said() == []


def test_the_first_screen_has_the_verdict_and_figures(page):
    assert "Scaling efficiency" in page.find("#verdict p").text
    assert page.find("#cautions").location["y"] < 700
    assert len(page.run("return document.querySelectorAll('figure svg')")) <= 8
    assert page.find("#scaling figure").is_displayed()


def test_what_is_no_answer_is_folded_and_opened_by_a_link_to_it(browser, path):
    browser.open(path)
    folded = browser.run(FOLDED)
    assert {"launches", "failures", "environment"} <= {*folded}
    assert not {"verdict", "scaling", "waterfall"} & {*folded}
    browser.run("location.hash = 'failures'")
    browser.until(f"return !(() => {{ {FOLDED} }})().includes('failures')")
    assert browser.texts("#failures td")


def test_every_name_is_there_once(page):
    names = page.run(
        "return [...document.querySelectorAll('main section[id], details[id], h2[id]')].map((one) => one.id)"
    )
    assert len(names) == len(set(names))


def test_text_from_records_is_text(page):
    assert page.run("return document.images.length") == 0
    assert any(HOSTILE.strip() in text for text in page.texts("#failures td"))
    labels = page.run(
        "return [...document.querySelectorAll('#scaling svg text')].map((one) => one.textContent)"
    )
    assert any("<img src=x" in label for label in labels)


def test_tables_sort_by_number_and_what_is_missing_stays_at_the_end(page):
    def column(selector="#scaling", heading="throughput"):
        return page.run(
            "const table = document.querySelector(arguments[0]).querySelector('table');"
            "const place = [...table.rows[0].cells].findIndex((one) => one.textContent.includes(arguments[1]));"
            "table.rows[0].cells[place].querySelector('button').click();"
            "return [...table.tBodies[0].rows].map((row) => row.cells[place].textContent)",
            selector,
            heading,
        )

    rising, falling = column(), column()
    numbers = [float(text.split(" [")[0]) for text in rising if text]
    assert numbers == sorted(numbers)
    assert [text for text in falling if text] == [text for text in rising if text][::-1]
    assert falling[len(numbers) :] == rising[len(numbers) :]


def test_a_table_downloads_with_all_columns(page):
    link = page.find("#scaling .note a").get_attribute("href")
    rows = pd.read_csv(io.BytesIO(base64.b64decode(link.partition(",")[2])))
    assert {"samples_per_second_low", "efficiency_none", "num_planned", "fingerprint"} <= {*rows}
    assert len(rows) == 49  # 3 trainings x 4 backends x 4 sizes, and horovod


@pytest.mark.parametrize("width", [360, 768, 2500])
def test_nothing_is_wider_than_the_screen(browser, path, width):
    browser.open(path, width=width)
    browser.run("document.querySelector('.unfold').click()")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    widest = browser.run(
        "return Math.max(...[...document.querySelectorAll('figure svg')].map((one) => one.clientWidth))"
    )
    assert widest <= width


def test_in_the_dark_figures_are_light(browser, path):
    browser.open(path, dark=True)
    assert browser.run("return getComputedStyle(document.querySelector('figure svg')).filter").startswith(
        "invert"
    )
    assert browser.run("return getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
