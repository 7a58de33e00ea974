"""The renderer of declared figures: what a declaration says is drawn, on a screen and in print."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.markers import MarkerStyle

from dlscale.analysis.declare import Tags
from dlscale.analysis.figures.drawing import EVIDENCE, drawing, marker_style
from dlscale.analysis.figures.figure import draw
from dlscale.analysis.form import Form
from dlscale.analysis.plots import (
    Area,
    Axis,
    Bars,
    Figure,
    Guide,
    HeatMap,
    Plot,
    Point,
    Series,
    Stack,
    TrainingLine,
)
from dlscale.analysis.render.theme import looks_for
from dlscale.collectives import NAMES

PRINTED = Form(width=3.3)
SERIES = Series(
    name="ring",
    look="ring",
    evidence="measured",
    points=(Point(x=1.1, y=10, low=9, high=12), Point(x=2.2, y=18)),
    tags=Tags(backend="ring"),
    joined=True,
)
PLOT = Plot(
    name="speed",
    title="",
    says="nothing measured",
    x=Axis(title="ranks", kind="log", ticks=((1, "1"), (2, "2")), low=0.7, high=3),
    y=Axis(title="speed", kind="log", low=5, high=30),
    series=(SERIES,),
    guides=(Guide(label="ideal", points=((0.7, 7), (3, 30))), Guide(label="memory bound", y=20)),
)
FIGURE = Figure(
    name="speed",
    title="t",
    subtitle="s",
    warning="NOT COMPARABLE",
    small_print=("Medians.", "Origin."),
    panels=(PLOT,),
    rows=(),
)


def drawn(*panels, form=None):
    figure = replace(FIGURE, panels=panels)
    with drawing():
        captioned = draw(figure, form) if form else draw(figure)
        captioned.draw_without_rendering()
    return captioned


def test_points_intervals_and_guides_are_drawn_and_named():
    figure = drawn(PLOT)
    (axes,) = figure.axes
    line, _, (bars,) = axes.containers[0].lines
    assert np.transpose(line.get_data()).tolist() == [[1.1, 10], [2.2, 18]]
    whole, none = bars.get_segments()
    assert whole[:, 1].tolist() == [9, 12]
    assert np.isnan(none).any() or not len(none), "a point without an interval has no bar"
    assert legend(figure) == ["ring", "ideal", "memory bound"]
    words = " ".join(text.get_text() for text in figure.texts)
    assert all(word in words for word in ("NOT COMPARABLE", "Medians.", "Origin."))


def test_evidence_is_named_unless_all_is_measured():
    figure = drawn(PLOT, form=PRINTED)
    assert "measured" not in legend(figure)
    assert figure.caption.brief == ""
    simulated = drawn(replace(PLOT, series=(replace(SERIES, evidence="simulated"),)), form=PRINTED)
    assert simulated.caption.brief == "Points are simulated."
    both = replace(PLOT, series=(SERIES, replace(SERIES, evidence="simulated")))
    assert legend(drawn(both, form=PRINTED))[-2:] == ["measured", "simulated"]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_kinds_of_evidence_have_shapes_of_their_own_also_in_grey():
    """Whatever the look of a curve: published points have no face, and what is simulated is dotted."""
    for look in looks_for({name: name for name in NAMES}).values():
        styles = {kind: marker_style(replace(look, color="#000000"), kind) for kind in EVIDENCE}
        published = MarkerStyle(styles["published"]["marker"])
        assert not published.is_filled()
        assert all(
            MarkerStyle(styles[kind]["marker"]).is_filled() for kind in EVIDENCE if kind != "published"
        )
        faces = [styles[kind]["markerfacecolor"] for kind in ("measured", "emulated")]
        assert faces == ["#000000", "white"]
    both = replace(PLOT, series=(SERIES, replace(SERIES, evidence="simulated")))
    (dotted,) = [line for line in drawn(both).legends[0].get_lines() if line.get_label() == "simulated"]
    assert dotted.get_linestyle() == "--"  # what matplotlib calls any pattern


def test_a_band_is_an_area_with_marks_that_no_line_joins():
    points = tuple(replace(point, low=point.y - 1, high=point.y + 1) for point in SERIES.points)
    for own in (points, points[:1]):
        band = replace(SERIES, points=own, band=True, joined=False, evidence="simulated")
        figure = drawn(replace(PLOT, series=(band,)))
        (area,) = figure.axes[0].collections
        heights = area.get_paths()[0].vertices[:, 1]
        assert (heights.min(), heights.max()) == (9, own[-1].y + 1)
        marks = [line for line in figure.axes[0].lines if line.get_markersize() == EVIDENCE["simulated"]]
        assert [line.get_linestyle() for line in marks] == ["None"]
        assert "band of predictions" in legend(figure)


@pytest.mark.parametrize(("end", "marker"), [("reached", "o"), ("budget", "x"), ("diverged", "X")])
def test_a_training_is_a_thin_line_with_a_mark_where_it_ended(end, marker):
    series = replace(SERIES, training=TrainingLine(shade=0.4, end=end))
    axes = drawn(replace(PLOT, series=(series,), guides=())).axes[0]
    way, last = axes.lines
    assert (way.get_alpha(), len(way.get_xdata())) == (0.4, 2)
    assert (last.get_marker(), list(last.get_xdata())) == (marker, [2.2])


def test_a_panel_without_points_says_so():
    (axes,) = drawn(replace(PLOT, series=(replace(SERIES, points=()),))).axes
    assert [text.get_text() for text in axes.texts] == ["nothing measured"]


def test_points_have_limits_on_both_axes_and_names_of_their_own():
    names = Axis(title="", kind="names", ticks=((0, "ring"), (1, "gloo")))
    points = (Point(x=3, y=0, left=2, right=5, label="here"), Point(x=4, y=1, left=3))
    (axes,) = drawn(
        replace(PLOT, x=Axis(title="time"), y=names, series=(replace(SERIES, points=points),))
    ).axes
    *_, (bars, _) = axes.containers[0].lines
    assert [segment[:, 0].tolist() for segment in bars.get_segments()] == [[2, 5], [3, 4]]
    assert [text.get_text() for text in axes.texts] == ["here"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["ring", "gloo"]
    assert axes.yaxis_inverted()


def test_bars_stand_behind_the_points_at_an_axis_of_their_own():
    bars = Bars(
        title="bytes",
        label="sent",
        high=9,
        width=1.1,
        heights={"ring": ((1, 3), (2, 5))},
        asides={"ring": 1.1},
    )
    figure = drawn(replace(PLOT, bars=bars))
    front, behind = figure.axes
    assert front.get_zorder() > behind.get_zorder()
    assert behind.get_ylabel() == "bytes"
    assert [bar.get_height() for bar in behind.patches] == [3, 5]
    for bar, point in zip(behind.patches, SERIES.points, strict=True):
        assert bar.get_x() < point.x < bar.get_x() + bar.get_width()


def test_stacks_lie_on_each_other():
    stacks = (Stack(x=1, heights=(1, 2), label=">3"), Stack(x=4, heights=(2, 4)))
    figure = drawn(
        replace(PLOT, y=Axis(title="s"), series=(), guides=(), stacks=stacks, layers=("start", "connect"))
    )
    (axes,) = figure.axes
    bars = [(bar.get_y(), bar.get_height(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    assert [(low, height) for low, height, _ in bars] == [(0, 1), (1, 2), (0, 2), (2, 4)]
    assert 1 < bars[0][2] < 2 < 4 < bars[2][2]
    assert legend(figure) == ["start", "connect"]


def test_heat_maps_line_up_by_launch_and_mark_their_ranks():
    first = HeatMap(
        name="none",
        title="none",
        says="",
        values=((1.0, 1.1, 0.9), (1.0, 1.0, 1.0)),
        hosts=("a", "b"),
        ranks=(0, 1),
        late=(1,),
        launches=((0, "3", 0), (2, "5", 2)),
    )
    second = replace(first, late=(), launches=((1, "4", 0),))
    figure = drawn(first, second)
    places = [[image.get_extent()[0] for image in axes.images] for axes in figure.axes[:2]]
    assert places == [[0, 2], [1]]
    assert legend(figure) == ["straggler", "between hosts and between launches"]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["3", "4", "5"]


@pytest.mark.parametrize(
    ("x", "y", "rising", "corners"),
    [
        ((1, 2), (None, None), False, ((1, 5), (2, 30))),
        ((1, 2), (8, 9), False, ((1, 8), (2, 9))),
        ((None, None), (8, 8), False, ((0.7, 8), (3, 8))),
        ((2, 2), (8, None), False, ((2, 8), (2, 30))),
        ((1, 2), (10, 20), True, ((1, 10), (2, 20))),
    ],
)
def test_what_is_said_of_a_range_reaches_to_its_ends_or_those_of_the_axes(x, y, rising, corners):
    area = Area(x=x, y=y, text="in words", rising=rising)
    (axes,) = drawn(replace(PLOT, series=(), guides=(), areas=(area,))).axes
    shapes = [shape.get_paths()[0].vertices for shape in axes.collections]
    shapes += [np.transpose(line.get_data()) for line in axes.lines]
    (shape,) = shapes
    assert (tuple(shape.min(axis=0)), tuple(shape.max(axis=0))) == tuple(map(pytest.approx, corners))
    assert [text.get_text() for text in axes.texts] == ["in words"]


def test_points_that_are_near_each_other_have_their_texts_on_different_sides():
    points = tuple(Point(x=x, y=y, label=f"{x}, {y}") for x, y in ((1, 10), (1.1, 10), (2, 20), (2, 20.5)))
    (axes,) = drawn(replace(PLOT, series=(replace(SERIES, points=points),))).axes
    first, second, under, over = axes.texts
    assert (first.get_ha(), second.get_ha()) == ("right", "left")
    assert under.xyann[1] < 0 < over.xyann[1]


def test_an_axis_without_numbers_has_no_ticks():
    plain = replace(PLOT, x=Axis(title="x", numbers=False), y=Axis(title="y", low=0, high=1, numbers=False))
    (axes,) = drawn(replace(plain, guides=())).axes
    assert [list(axes.get_xticks()), list(axes.get_yticks())] == [[], []]
