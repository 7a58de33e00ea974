"""The report in a terminal: marks where the numbers are, ASCII into pipes, colours on a terminal alone."""

import io
import math
from itertools import pairwise

import pytest
from rich.console import Console

from dlscale.analysis.findings.scaling import scaling_table
from dlscale.analysis.findings.waterfall_table import causes_of
from dlscale.analysis.render.charts import HEIGHT, Chart, Waterfalls, render_report

ONE = (("hep_cnn", "torch"),)


def printed(what, *, width=96, **options):
    console = Console(file=io.StringIO(), width=width, **options)
    console.print(what)
    return console.file.getvalue()


def canvas(text):
    """The rows between the frame's upper and lower edge, without what stands left of them."""
    lines = text.splitlines()
    top, bottom = (index for index, line in enumerate(lines) if line.strip().startswith("+"))
    return [line[line.index("|") + 1 :] for line in lines[top + 1 : bottom]]


@pytest.fixture(scope="module")
def page(made):
    records = made.study(trainings=ONE)
    return made.page(records, causes=causes_of(scaling_table(records)))


def test_every_point_is_where_its_value_is(page):
    (plot,) = page.first
    text = printed(Chart(plot, page.looks))
    assert "o none   x gloo   + mpi   * ring" in text
    rows = canvas(text)
    height = plot.y.high - plot.y.low
    for mark, series in zip("ox+*", plot.series, strict=True):
        found = {x: y for y, row in enumerate(rows) for x, character in enumerate(row) if character == mark}
        assert len(found) == len(series.points) == 4
        for (_, y), point in zip(sorted(found.items()), series.points, strict=True):
            share = 1 - (y + 0.5) / len(rows)
            assert share * height == pytest.approx(point.y, abs=1.1 * height / len(rows))


def test_throughput_is_on_a_logarithmic_axis(page):
    plot = next(
        block for section in page.sections if section.name == "throughput" for block in section.blocks
    )
    rows = canvas(printed(Chart(plot, page.looks)))
    marks = sorted((row.index("*"), y) for y, row in enumerate(rows) for _ in [0] if "*" in row)
    steps = [below - above for (_, below), (_, above) in pairwise(marks)]
    assert len(marks) == 4
    assert max(steps) - min(steps) <= 1  # doubling is a step of one height


@pytest.mark.parametrize("options", [{}, {"force_terminal": True, "no_color": True}])
def test_plain_where_nothing_else_is_safe(page, options):
    (plot,) = page.first
    text = printed(Chart(plot, page.looks), **options)
    loss = printed(
        Waterfalls(next(section for section in page.sections if section.name == "losses").blocks[0].losses),
        **options,
    )
    bare = text.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert bare.isascii()
    assert "\x1b[3" not in text + loss


def test_colours_and_lines_on_a_terminal(page):
    (plot,) = page.first
    text = printed(Chart(plot, page.looks), force_terminal=True, color_system="truecolor")
    assert "┌" in text
    assert "38;2;0;114;178" in text  # the ring's blue


def test_parts_of_a_waterfall_begin_where_the_last_one_ended(made):
    losses = [loss for loss in made.losses(ONE) if loss.name == "mpi"]
    lines = [line for line in printed(Waterfalls(losses)).splitlines() if "#" in line]
    spans = [(line.index("#"), line.rindex("#") + 1) for line in lines]
    begin = spans[-1][0]
    character = 0.14 / (spans[-1][1] - begin)
    at = 0.0
    for (first, last), share in zip(spans, (0.02, 0.03, 0.09), strict=False):
        assert (first - begin) * character == pytest.approx(at, abs=character)
        assert (last - first) * character == pytest.approx(share, abs=character)
        at += share
    assert "9.0 % [8.4, 9.6]" in lines[2]


def test_the_whole_report_has_plots_table_and_rules(made, page):
    text = printed(render_report(page, scaling_table(made.study(trainings=ONE))))
    for words in (
        "How HEP-CNN scales",
        "the largest loss is",
        "Where the speed goes",
        "efficiency",
        "12 rules",
        "6/6",
    ):
        assert words in text
    assert text.isascii() or "─" in text  # the table's own lines


def test_comparisons_are_told(made):
    records = made.study(trainings=ONE, rank_counts=(1, 8), num_blocks=7)
    text = " ".join(printed(render_report(made.whole(records), scaling_table(records))).split())
    assert "Significant differences 2 comparisons of backend, declared together" in text
    assert "slower than ring on 8 ranks (corrected p 0.03" in text


def test_nothing_measured_is_said(made):
    page = made.page([])
    assert "Nothing has been measured yet." in printed(render_report(page, scaling_table([])))


@pytest.mark.parametrize("width", [40, 60, 200])
def test_it_fits_any_terminal(page, width):
    (plot,) = page.first
    lines = printed(Chart(plot, page.looks), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < HEIGHT + 12
    assert math.isfinite(plot.y.high)
