"""The waterfall's figure: its numbers, its words, and equal bytes on a redraw."""

import numpy as np
import pytest
from matplotlib.container import BarContainer, ErrorbarContainer

from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw as draw_figure
from dlscale.analysis.findings.waterfall import FINDING, waterfall_rows
from dlscale.analysis.findings.waterfall_parts import waterfalls
from dlscale.analysis.form import SCREEN
from dlscale.analysis.launches import launches_of
from dlscale.analysis.measured import measure

from .conftest import Planted

MS = 1e-3
BACKENDS = {"gloo": 1.6 * MS, "mpi": 0.4 * MS, "ring": 0.9 * MS}
BASE = {"co_running": 0.3 * MS, "input": 0.2 * MS, "delays": (0.4 * MS,)}


@pytest.fixture
def study(plant):
    """Four ranks over some backends that expose differently much; `none` is the first one's."""

    def make(backends=BACKENDS, noise=0.004, **fields):
        records = []
        for seed, (backend, exposed) in enumerate(backends.items()):
            truth = Planted(**BASE, exposed=exposed, backend=backend)
            found = plant(truth, noise=noise, num_windows=2, seed=seed, **fields)
            records += [one for one in found if not records or one.case.cell.backend == backend]
        return records

    return make


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


def test_bars_are_the_parts_and_each_begins_where_the_last_one_ends(study):
    records = study()
    figure = draw(records)
    for axes, one in zip(figure.axes, waterfalls(launches_of(records)), strict=True):
        drawn = bars(axes)
        assert [length for _, length in drawn[:-1]] == pytest.approx([part.loss.center for part in one.parts])
        ends = np.cumsum([0.0, *(part.loss.center for part in one.parts)])
        assert [begin for begin, _ in drawn[:-1]] == pytest.approx(ends[:-1])
        assert drawn[-1] == pytest.approx((0.0, one.loss.center))
        assert ends[-1] == pytest.approx(one.loss.center)


def test_whiskers_are_the_intervals_at_the_end_of_their_bar(study):
    records = study()
    figure = draw(records)
    for axes, one in zip(figure.axes, waterfalls(launches_of(records)), strict=True):
        whiskers = [bar for bar in axes.containers if isinstance(bar, ErrorbarContainer)]
        begin = 0.0
        for part, whisker in zip(one.parts, whiskers[:-1], strict=True):
            (segments,) = whisker.lines[2]
            ((low, _), (high, _)) = segments.get_segments()[0]
            assert (low, high) == pytest.approx((begin + part.loss.low, begin + part.loss.high))
            begin += part.loss.center


def test_numbers_stand_beside_the_bars(study):
    records = study()
    figure = draw(records)
    texts = [text.get_text() for text in figure.axes[0].texts]
    (gloo, *_) = waterfalls(launches_of(records))
    assert len(texts) == len(gloo.parts) + 1
    for part, text in zip(gloo.parts, texts, strict=False):
        assert text.startswith(f"{100 * part.loss.center:.1f} % [{100 * part.loss.low:.1f}, ")
        assert text.endswith(" ms")


def test_the_largest_loss_has_a_colour_of_its_own_and_a_gain_too(plant):
    truth = Planted(co_running=-0.5 * MS, exposed=2 * MS, delays=(0.2 * MS,), reads=False)
    figure = draw(plant(truth, noise=0.001))
    (axes,) = figure.axes
    colors = [bar.patches[0].get_facecolor() for bar in axes.containers if isinstance(bar, BarContainer)]
    assert len({*colors}) == 4  # gain, loss, largest loss, all together
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["largest loss", "loss", "gain", "95 % interval"]
    assert axes.get_xlim()[0] < -0.5 * MS / truth.measured


def test_losses_that_are_not_told_apart_have_one_colour(plant):
    truth = Planted(co_running=0.5 * MS, exposed=0.5 * MS, reads=False)
    figure = draw(plant(truth, noise=0.01))
    (axes,) = figure.axes
    colors = [bar.patches[0].get_facecolor() for bar in axes.containers if isinstance(bar, BarContainer)]
    assert colors[0] == colors[2]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend[0] == "largest loss, or not separable from it"


def test_labels_have_units_and_names_stand_once(study):
    figure = draw(study())
    figure.draw_without_rendering()
    assert {axes.get_xlabel() for axes in figure.axes} == {"of the ideal speed lost [%]"}
    names = [label.get_text().replace("\n", " ") for label in figure.axes[0].get_yticklabels()]
    assert names == ["co-running", "input stall", "stragglers", "exposed communication", "together"]
    assert [axes.get_title(loc="left").split(",")[0] for axes in figure.axes] == ["gloo", "mpi", "ring"]


def test_other_evidence_is_hatched_and_few_blocks_have_no_whisker(study):
    figure = draw(study({"ring": MS}, evidence="emulated", num_blocks=2))
    (axes,) = figure.axes
    patches = [bar.patches[0] for bar in axes.containers if isinstance(bar, BarContainer)]
    assert {patch.get_hatch() for patch in patches} == {"//////"}
    assert not [bar for bar in axes.containers if isinstance(bar, ErrorbarContainer)]
    small_print = " ".join(figure.texts[-1].get_text().split())
    assert "No whisker: too few blocks." in small_print
    assert "ring, 4 ranks, emulated" in axes.get_title(loc="left")


def test_of_many_backends_those_that_keep_most_are_shown(study):
    backends = BACKENDS | {"horovod": 3 * MS, "tf_collective": 0.1 * MS}
    figure = draw(study(backends))
    rows = declared(study(backends)).rows
    assert [row["backend"] for row in rows[::4]] == ["mpi", "ring", "tf_collective"]
    small_print = " ".join(figure.texts[-1].get_text().split())
    assert "Not shown: gloo, horovod (see --json)." in small_print
    assert "n = 6 blocks of launches" in small_print
    assert "fingerprint ffffffffffff" in small_print


def test_the_rows_behind_it_are_those_of_json_and_without_parts_there_is_none(study):
    records = study()
    assert declared(records).rows == waterfall_rows(waterfalls(launches_of(records)))
    assert declared([one for one in records if one.case.cell.num_ranks > 1]) is None


@pytest.mark.parametrize("num_backends", [1, 2, 3])
@pytest.mark.parametrize("controls", [("synthetic",), ()])
def test_nothing_is_cut_off_at_the_edges(study, num_backends, controls):
    backends = dict(list(BACKENDS.items())[:num_backends])
    options = {"chunk_bytes": 65536, "threads": 2}
    figure = draw(study(backends, controls=controls, stamps=bool(controls), system="frontera-rtx"))
    longer = draw(
        [
            one.model_copy(
                update={
                    "case": one.case.model_copy(
                        update={"cell": one.case.cell.model_copy(update={"backend_options": options})}
                    )
                }
            )
            if one.case.cell.backend != "none"
            else one
            for one in study(backends, controls=controls, evidence="emulated")
        ]
    )
    for one in (figure, longer):
        with drawing():
            one.draw_without_rendering()
        inside = [*one.texts, *one.legends, *one.axes]
        inside += [
            text for axes in one.axes for text in (*axes.texts, axes._left_title, *axes.get_yticklabels())
        ]
        for box in (item.get_window_extent() for item in inside):
            assert box.x0 >= -0.5
            assert box.x1 <= one.bbox.x1 + 0.5
            assert box.y0 >= 0
            assert box.y1 <= one.bbox.y1
        for axes, after in zip(one.axes, one.axes[1:], strict=False):
            for text in (*axes.texts, axes._left_title):
                assert text.get_window_extent().x1 <= after.get_window_extent().x0 + 1
