"""The heat-map: the matrix handed to the plot, lines between hosts, marks at stragglers, equal bytes on a redraw."""

import numpy as np
import pytest

from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw as draw_figure
from dlscale.analysis.findings.heat_maps import heat_map_figure, rank_times, to_heat_rows
from dlscale.analysis.form import SCREEN
from dlscale.analysis.launches import launches_of
from dlscale.analysis.measured import measure
from tests.analysis.reading import assert_inside

from .conftest import cluster

NESTED = [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")] * 2


def draw(records):
    table = measure(records)
    (family,) = table.families
    declared = heat_map_figure(table, family, SCREEN)
    with drawing():
        return draw_figure(declared), declared.rows


def panels(figure):
    """All axes but the colour bar's."""
    return [axes for axes in figure.axes if axes.images]


def marks(axes):
    return [
        (round(line.get_ydata()[0]), line.get_marker()) for line in axes.lines if line.get_marker() != "None"
    ]


def test_the_image_is_the_matrix_in_percent():
    records = cluster(slow={"c": 1.1}, noise=0.01)
    figure, rows = draw(records)
    found = rank_times(launches_of(records))
    for axes, heat in zip(panels(figure), found, strict=True):
        drawn = np.concatenate([np.asarray(image.get_array()) for image in axes.images], axis=1)
        np.testing.assert_allclose(drawn, 100 * heat.values)
        assert {image.get_clim() for image in axes.images} == {(-20, 20)}
        assert {image.get_cmap().name for image in axes.images} == {"PuOr_r"}
    assert rows == [row for heat in found for row in to_heat_rows(heat)]


def test_colours_reach_beyond_nearly_all_values_and_are_centred_at_0():
    for slow, limit in ((1.0, 2), (1.04, 5), (1.09, 10), (1.4, 50), (5.0, 100)):
        figure, _ = draw(cluster(slow={"a": slow}, noise=0.001))
        assert panels(figure)[0].images[0].get_clim() == (-limit, limit)


def test_blocks_stand_in_line_whichever_is_missing():
    records = [one for one in cluster() if (one.case.cell.backend, one.case.block) != ("ring", 2)]
    none, ring = panels(draw(records)[0])
    assert [image.get_extent()[0] for image in none.images] == [0, 1, 2, 3, 4, 5]
    assert [image.get_extent()[0] for image in ring.images] == [0, 1, 3, 4, 5]
    assert none.get_xlim() == ring.get_xlim() == (0, 6)


def test_nobody_is_marked_for_what_is_not_known():
    figure, _ = draw(cluster(hosts=("a",), slow_ranks={1: 1.2}, num_blocks=3))
    assert [marks(axes) for axes in panels(figure)] == [[]] * 2
    assert "whether it is slow is not known: 3 launches; 6 are needed" in small_print(figure)


def test_late_ranks_are_marked_in_the_panel_that_shows_it():
    none, ring = panels(draw(cluster(slow={"c": 1.1}))[0])
    assert marks(none) == [(4, "<"), (5, "<")]
    assert marks(ring) == []
    assert "Host c on 8 ranks: late, 10" in small_print(draw(cluster(slow={"c": 1.1}))[0])
    (none, _) = panels(draw(cluster(slow_ranks={5: 1.2}))[0])
    assert marks(none) == [(5, "<")]


def small_print(figure):
    return " ".join(figure.texts[-1].get_text().split())


def test_hosts_are_named_unless_they_changed_or_are_too_many():
    def names(**fields):
        figure, _ = draw(cluster(**fields))
        axes = panels(figure)[0]
        figure.draw_without_rendering()
        return [label.get_text() for label in axes.get_yticklabels()], axes.get_ylabel()

    assert names() == (["a", "b", "c", "d"], "8 ranks, by host")
    assert names(hosts=("compute-node-number-17", "b"))[0] == ["compu…ber-17", "b"]
    ticks, label = names(hosts=[f"n{index}" for index in range(20)])
    assert {"0", "20"} <= {*ticks}
    assert label == "rank, on 20 hosts"
    assert names(hosts=NESTED)[1] == "rank"
    assert "Launches ran on different hosts" in small_print(draw(cluster(hosts=NESTED))[0])


@pytest.mark.parametrize("hosts", [("a",), ("compute-node-number-17", "b"), [f"n{i}" for i in range(40)]])
def test_nothing_is_cut_off_at_the_edges(hosts):
    figure, _ = draw(cluster(hosts=hosts, slow={hosts[-1]: 1.1}))
    with drawing():
        figure.draw_without_rendering()
    for axes in figure.axes:
        assert_inside(figure, axes._left_title, axes.yaxis.label, *axes.get_yticklabels())
