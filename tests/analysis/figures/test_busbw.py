"""The figure of busbw over sizes of buckets: the numbers handed to the plot, and what it says of them."""

import numpy as np
import pytest
from matplotlib.container import BarContainer, ErrorbarContainer

from dlscale.analysis.families import family_of
from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw as draw_figure
from dlscale.analysis.findings.bandwidth_plots import busbw_figure
from dlscale.analysis.findings.communication import Communication, communication_rows
from dlscale.analysis.findings.communication_only import BucketSize, CommunicationOnly
from dlscale.analysis.provenance import provenance
from dlscale.analysis.statistics import median_interval

LAUNCHES = (0.9, 0.95, 1.0, 1.02, 1.1, 1.2)
SIZES = {1 << 20: 1, 4 << 20: 5}
SPEEDS = {"ring": 5e9, "mpi": 3e9, "gloo": 1.5e9}


@pytest.fixture
def exchange(make_record):
    def make(backend="ring", num_ranks=4, *, sizes=SIZES, launches=LAUNCHES, latency=20e-6, **fields):
        """busbw is (S + 1 MiB at most) limited by `latency` and the backend's own speed."""
        cell = make_record(backend=backend, num_ranks=num_ranks, **fields).case.cell
        seconds = {size: latency + 2 * (num_ranks - 1) / num_ranks * size / SPEEDS[backend] for size in sizes}
        alone = CommunicationOnly(
            cell=cell.model_copy(update={"control": "exchange"}),
            family=family_of(cell, system="local"),
            evidence=str(fields.get("evidence", "measured")),
            num_bytes=sum(size * count for size, count in sizes.items()),
            by_block={("s", block): factor for block, factor in enumerate(launches)},
            sizes=tuple(
                BucketSize(
                    num_bytes=size,
                    count=count,
                    num_ranks=num_ranks,
                    seconds=median_interval([factor * seconds[size] for factor in launches]),
                )
                for size, count in sorted(sizes.items())
            ),
            notes=(),
        )
        return Communication(alone=alone, cell=cell, how="")

    return make


@pytest.fixture
def draw(make_record):
    def draw_all(found):
        records = [make_record(backend="ring", num_ranks=4)]
        with drawing():
            figure, shown = busbw_figure((), found, provenance(records))
            return draw_figure(figure), communication_rows(shown)

    return draw_all


def panels(figure):
    """Of each number of ranks the axes of the points and those of the bars behind them."""
    axes = figure.axes
    return list(zip(axes[: len(axes) // 2], axes[len(axes) // 2 :], strict=True))


def points(axes):
    """Name -> x, y of the curves."""
    return {
        container.get_label(): np.array(container[0].get_data(), np.float64)
        for container in axes.containers
        if isinstance(container, ErrorbarContainer)
    }


def bars(axes):
    return [
        [(bar.get_x(), bar.get_x() + bar.get_width(), bar.get_height()) for bar in container]
        for container in axes.containers
        if isinstance(container, BarContainer)
    ]


def test_points_are_busbw_and_bars_the_bytes_of_a_step(exchange, draw):
    found = [exchange("mpi"), exchange("ring")]
    figure, rows = draw(found)
    ((front, behind),) = panels(figure)
    curves = points(front)
    assert list(curves) == ["mpi", "ring"]
    middle = np.median(LAUNCHES)
    for name, (places, heights) in curves.items():
        speed = SPEEDS[name]
        expected = [1.5 * size / (middle * (20e-6 + 1.5 * size / speed)) / 1e9 for size in SIZES]
        np.testing.assert_allclose(heights, expected)
        np.testing.assert_allclose(places, list(SIZES), rtol=0.2)
    for container, (places, _) in zip(bars(behind), curves.values(), strict=True):
        np.testing.assert_allclose([height for _, _, height in container], [1.048576, 20.97152])
        for (left, right, _), place in zip(container, places, strict=True):
            assert left < place < right
    assert behind.get_ylabel() == "bars: per step [MB]"
    assert front.get_ylabel() == "busbw [GB/s]"
    assert [row["bucket_bytes"] for row in rows] == [1 << 20, 4 << 20] * 2
    assert front.get_zorder() > behind.get_zorder()


def test_whiskers_are_the_interval_and_too_few_launches_have_none(exchange, draw):
    figure, _ = draw([exchange()])
    ((front, _),) = panels(figure)
    (bar,) = front.containers[0][2]
    low, high = bar.get_segments()[0][:, 1]
    size = exchange().alone.sizes[0].busbw
    assert (low, high) == pytest.approx((size.low / 1e9, size.high / 1e9))
    figure, _ = draw([exchange(launches=LAUNCHES[:3])])
    assert "no whiskers: an interval needs 6 launches" in figure.texts[-1].get_text().replace("\n", " ")


def test_sizes_are_named_in_powers_of_two(exchange, draw):
    figure, _ = draw([exchange(sizes={2_000: 3, 64 << 10: 2, 9_000_000: 1})])
    ((front, _),) = panels(figure)
    figure.canvas.draw()
    labels = [label.get_text() for label in front.get_xticklabels()]
    assert len(labels) <= 7
    assert {"4\nKiB", "1\nMiB"} & set(labels)
    assert all(label.split("\n")[1] in ("B", "KiB", "MiB") for label in labels)


def test_each_number_of_ranks_has_a_panel_up_to_three(exchange, draw):
    figure, rows = draw([exchange(num_ranks=ranks) for ranks in (2, 4, 8, 16)])
    titles = [front.get_title(loc="left") for front, _ in panels(figure)]
    assert titles == ["4 ranks", "8 ranks", "16 ranks"]
    assert {row["num_ranks"] for row in rows} == {4, 8, 16}
    assert "Not shown: 2 ranks (see --json)." in figure.texts[-1].get_text().replace("\n", " ")
    figure, _ = draw([exchange(num_ranks=ranks, num_nodes=ranks // 2) for ranks in (2, 4)])
    assert [front.get_title(loc="left") for front, _ in panels(figure)] == ["2 ranks", "4 ranks on 2 nodes"]


def test_a_wide_range_of_speeds_is_logarithmic_and_a_narrow_one_from_0(exchange, draw):
    figure, _ = draw([exchange()])
    assert panels(figure)[0][0].get_ylim()[0] == 0
    figure, _ = draw([exchange(latency=1e-3, sizes={1 << 12: 1, 1 << 24: 1})])
    assert panels(figure)[0][0].get_yscale() == "log"
