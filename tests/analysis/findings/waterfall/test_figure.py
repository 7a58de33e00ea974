"""The waterfall's figure: its numbers, its words, and equal bytes on a redraw."""

import numpy as np
import pytest
from matplotlib.container import BarContainer, ErrorbarContainer

from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw as draw_figure
from dlscale.analysis.findings.waterfall import FINDING, waterfall_rows
from dlscale.analysis.findings.waterfall_parts import waterfalls_of
from dlscale.analysis.form import SCREEN
from dlscale.analysis.launches import launches_of
from dlscale.analysis.measured import measure
from tests.analysis.reading import assert_inside

from .conftest import Planted, plant

MS = 1e-3
BACKENDS = {"gloo": 1.6 * MS, "mpi": 0.4 * MS, "ring": 0.9 * MS}
BASE = {"co_running": 0.3 * MS, "input": 0.2 * MS, "delays": (0.4 * MS,)}


def study(backends=BACKENDS, noise=0.004, **fields):
    """Four ranks over some backends that expose differently much; `none` is the first one's."""
    records = []
    for seed, (backend, exposed) in enumerate(backends.items()):
        truth = Planted(**BASE, exposed=exposed, backend=backend)
        found = plant(truth, noise=noise, num_windows=2, seed=seed, **fields)
        records += [one for one in found if not records or one.case.cell.backend == backend]
    return records


def declared(records):
    study = measure(records)
    found = (FINDING.figures["waterfall"](study, family, SCREEN) for family in study.families)
    return next(filter(None, found), None)


def draw(records):
    with drawing():
        return draw_figure(declared(records))


def bars(axes):
    """(begin, length) of each bar, from top to bottom."""
    patches = [bar.patches[0] for bar in axes.containers if isinstance(bar, BarContainer)]
    return [(patch.get_x(), patch.get_width()) for patch in patches]


def test_bars_whiskers_and_numbers_are_those_of_the_parts_and_each_begins_where_the_last_one_ends():
    records = study()
    figure = draw(records)
    for axes, one in zip(figure.axes, waterfalls_of(launches_of(records)), strict=True):
        losses = [part.loss for part in one.parts]
        ends = np.cumsum([0.0, *(loss.center for loss in losses)])
        drawn = bars(axes)
        assert drawn[:-1] == [pytest.approx(pair) for pair in zip(ends, np.diff(ends), strict=False)]
        assert drawn[-1] == pytest.approx((0.0, one.loss.center))
        whiskers = [bar for bar in axes.containers if isinstance(bar, ErrorbarContainer)]
        for loss, begin, whisker in zip(losses, ends, whiskers, strict=False):
            (segments,) = whisker.lines[2]
            ((low, _), (high, _)) = segments.get_segments()[0]
            assert (low, high) == pytest.approx((begin + loss.low, begin + loss.high))
        for loss, text in zip(losses, axes.texts, strict=False):
            assert text.get_text().startswith(f"{100 * loss.center:.1f} % [{100 * loss.low:.1f}, ")
            assert text.get_text().endswith(" ms")


def test_the_largest_loss_has_a_colour_of_its_own_and_a_gain_too():
    truth = Planted(co_running=-0.5 * MS, exposed=2 * MS, delays=(0.2 * MS,), reads=False)
    figure = draw(plant(truth, noise=0.001))
    (axes,) = figure.axes
    colors = [bar.patches[0].get_facecolor() for bar in axes.containers if isinstance(bar, BarContainer)]
    assert len({*colors}) == 4  # gain, loss, largest loss, all together
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["largest loss", "loss", "gain", "95 % interval"]
    assert axes.get_xlim()[0] < -0.5 * MS / truth.measured


def test_losses_that_are_not_told_apart_have_one_colour():
    figure = draw(plant(Planted(co_running=0.5 * MS, exposed=0.5 * MS, reads=False), noise=0.01))
    (axes,) = figure.axes
    colors = [bar.patches[0].get_facecolor() for bar in axes.containers if isinstance(bar, BarContainer)]
    assert colors[0] == colors[2]
    assert figure.legends[0].get_texts()[0].get_text() == "largest loss, or not separable from it"


def test_other_evidence_is_hatched_and_few_blocks_have_no_whisker():
    figure = draw(study({"ring": MS}, evidence="emulated", num_blocks=2))
    (axes,) = figure.axes
    assert {patch.get_hatch() for patch in axes.patches} == {"//////"}
    assert not [bar for bar in axes.containers if isinstance(bar, ErrorbarContainer)]
    small_print = " ".join(figure.texts[-1].get_text().split())
    assert "No whisker: too few blocks." in small_print
    assert "ring, 4 ranks, emulated" in axes.get_title(loc="left")


def test_of_many_backends_those_that_keep_most_are_shown():
    backends = BACKENDS | {"horovod": 3 * MS, "tf_collective": 0.1 * MS}
    figure = draw(study(backends))
    rows = declared(study(backends)).rows
    assert [row["backend"] for row in rows[::4]] == ["mpi", "ring", "tf_collective"]
    small_print = " ".join(figure.texts[-1].get_text().split())
    assert "Not shown: gloo, horovod (see --json)." in small_print
    assert "n = 6 blocks of launches" in small_print
    assert "fingerprint ffffffffffff" in small_print


def test_the_rows_behind_it_are_those_of_json_and_without_parts_there_is_none():
    records = study()
    assert declared(records).rows == waterfall_rows(waterfalls_of(launches_of(records)))
    assert declared([one for one in records if one.case.cell.num_ranks > 1]) is None


@pytest.mark.parametrize("controls", [("synthetic",), ()])
def test_nothing_is_cut_off_at_the_edges(controls):
    figure = draw(study(BACKENDS, controls=controls, stamps=bool(controls), evidence="emulated"))
    with drawing():
        figure.draw_without_rendering()
    for axes in figure.axes:
        assert_inside(figure, *axes.texts, axes._left_title, *axes.get_yticklabels())
    for axes, after in zip(figure.axes, figure.axes[1:], strict=False):
        for text in (*axes.texts, axes._left_title):
            assert text.get_window_extent().x1 <= after.get_window_extent().x0 + 1
