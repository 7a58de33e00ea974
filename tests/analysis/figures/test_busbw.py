"""The figure of busbw over sizes of buckets: the numbers handed to the plot, and what it says of them."""

import numpy as np
import pytest

from dlscale.analysis.families import family_of
from dlscale.analysis.findings.bandwidth_plots import busbw_figure
from dlscale.analysis.findings.communication import communication_rows
from dlscale.analysis.findings.communication_only import BucketSize, CommunicationOnly
from dlscale.analysis.findings.overlap import Communication
from dlscale.analysis.provenance import provenance
from dlscale.analysis.statistics import median_interval
from tests.made_records import make_record

LAUNCHES = (0.9, 0.95, 1.0, 1.02, 1.1, 1.2)
SIZES = {1 << 20: 1, 4 << 20: 5}
SPEEDS = {"ring": 5e9, "mpi": 3e9, "gloo": 1.5e9}


def exchange(backend="ring", num_ranks=4, *, sizes=SIZES, launches=LAUNCHES, latency=20e-6, **fields):
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


def declare(found):
    figure, shown = busbw_figure((), found, provenance([make_record(backend="ring", num_ranks=4)]))
    return figure, communication_rows(shown)


def test_points_are_busbw_and_bars_the_bytes_of_a_step():
    figure, rows = declare([exchange("mpi"), exchange("ring")])
    (plot,) = figure.panels
    assert [series.name for series in plot.series] == ["mpi", "ring"]
    middle = np.median(LAUNCHES)
    for series in plot.series:
        speed = SPEEDS[series.name]
        expected = [1.5 * size / (middle * (20e-6 + 1.5 * size / speed)) / 1e9 for size in SIZES]
        np.testing.assert_allclose([point.y for point in series.points], expected)
        np.testing.assert_allclose([point.x for point in series.points], list(SIZES))
        np.testing.assert_allclose(plot.bars.heights[series.name], [(1 << 20, 1.048576), (4 << 20, 20.97152)])
    assert (plot.y.title, plot.bars.title) == ("busbw [GB/s]", "bars: per step [MB]")
    assert [row["bucket_bytes"] for row in rows] == [1 << 20, 4 << 20] * 2


def test_whiskers_are_the_interval_and_too_few_launches_have_none():
    figure, _ = declare([exchange()])
    point, size = figure.panels[0].series[0].points[0], exchange().alone.sizes[0].busbw
    assert (point.low, point.high) == pytest.approx((size.low / 1e9, size.high / 1e9))
    figure, _ = declare([exchange(launches=LAUNCHES[:3])])
    assert "no whiskers: an interval needs 6 launches" in figure.small_print[0]


def test_sizes_are_named_in_powers_of_two():
    figure, _ = declare([exchange(sizes={2_000: 3, 64 << 10: 2, 9_000_000: 1})])
    labels = [label for _, label in figure.panels[0].x.ticks]
    assert len(labels) <= 7
    assert {"4\nKiB", "1\nMiB"} & set(labels)
    assert all(label.split("\n")[1] in ("B", "KiB", "MiB") for label in labels)


def test_each_number_of_ranks_has_a_panel_up_to_three():
    figure, rows = declare([exchange(num_ranks=ranks) for ranks in (2, 4, 8, 16)])
    assert [plot.title for plot in figure.panels] == ["4 ranks", "8 ranks", "16 ranks"]
    assert {row["num_ranks"] for row in rows} == {4, 8, 16}
    assert "Not shown: 2 ranks (see --json)." in figure.small_print[0]
    figure, _ = declare([exchange(num_ranks=ranks, num_nodes=ranks // 2) for ranks in (2, 4)])
    assert [plot.title for plot in figure.panels] == ["2 ranks", "4 ranks on 2 nodes"]


def test_a_wide_range_of_speeds_is_logarithmic_and_a_narrow_one_from_0():
    figure, _ = declare([exchange()])
    assert figure.panels[0].y.low == 0
    figure, _ = declare([exchange(latency=1e-3, sizes={1 << 12: 1, 1 << 24: 1})])
    assert figure.panels[0].y.kind == "log"
