"""Time per step and speed-up over ranks: the numbers handed to the plot."""

import csv

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from dlscale.analysis.curves import dodge
from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw
from dlscale.analysis.figures.write import save_drawing
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.step_time import seconds_per_step, speed_up, step_time_figure
from dlscale.analysis.measured import measure

BATCH = 32  # of strong scaling, over all ranks


@pytest.fixture
def strong(make_record):
    """Backends whose ranks keep a known share of 100 samples/s, the machine drifting from block to block."""

    def make(kept, *, num_blocks=6):
        return measure(
            [
                make_record(
                    backend=backend,
                    num_ranks=num_ranks,
                    block=block,
                    samples_per_second=100 * num_ranks * share * (1 + 0.05 * block),
                    scaling_mode="strong",
                    local_batch=BATCH // num_ranks,
                )
                for block in range(num_blocks)
                for backend, shares in kept.items()
                for num_ranks, share in shares.items()
            ]
        )

    return make


def figure_of(table):
    (family,) = table.families
    declared = step_time_figure(family, rows_of(scaling.FINDING.of(table), family), table.provenance)
    if declared is None:
        return None
    with drawing():
        figure = draw(declared)
        figure.draw_without_rendering()
    return figure, declared.rows


def points(axes):
    """Backend -> {ranks: value}."""
    curves = [one for one in axes.containers if isinstance(one, ErrorbarContainer)]
    found = {}
    for index, container in enumerate(curves):
        x, y = container.lines[0].get_data()
        place = dodge(index, len(curves))
        found[container.get_label()] = {round(float(a) / place): float(b) for a, b in zip(x, y, strict=True)}
    return found


def test_a_perfectly_scaling_backend_lies_on_the_ideal_line_in_both_modes(make_study, strong):
    weak = measure(make_study(efficiency={"none": (1.0, 1.0), "ring": (1.0, 0.8)}, noise=0))
    (axes,) = figure_of(weak)[0].axes
    ideal = next(line for line in axes.lines if line.get_label() == "ideal")
    shown = points(axes)
    assert set(ideal.get_ydata()) == {shown["none"][1]}
    assert shown["none"][2] == pytest.approx(shown["none"][1])
    assert shown["ring"][2] == pytest.approx(shown["ring"][1] / 0.8)

    times, speeds = figure_of(strong({"none": {1: 1, 2: 1, 4: 1}, "ring": {1: 1, 2: 0.9, 4: 0.5}}))[0].axes
    shown = points(times)
    assert shown["none"][4] == pytest.approx(shown["none"][1] / 4)
    ideal = next(line for line in times.lines if line.get_label() == "ideal")
    for x, y in zip(*ideal.get_data(), strict=True):
        assert x * y == pytest.approx(shown["none"][1])
    assert points(speeds) == {
        "none": pytest.approx({1: 1, 2: 2, 4: 4}),
        "ring": pytest.approx({1: 1, 2: 1.8, 4: 2.0}),
    }


def test_weak_times_begin_at_0_and_have_one_panel_in_milliseconds(make_study):
    figure, _ = figure_of(measure(make_study()))
    (axes,) = figure.axes
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylabel() == "time per step [ms]"
    assert axes.get_xlabel() == "ranks, on 1 node"


def test_long_steps_are_in_seconds(make_study):
    figure, _ = figure_of(measure(make_study(local_batch=200)))
    assert figure.axes[0].get_ylabel() == "time per step [s]"


def test_speed_up_has_plain_numbers_of_ranks_on_both_axes(strong):
    speeds = figure_of(strong({"none": {1: 1, 2: 1, 4: 1}}))[0].axes[1]
    for labels in (speeds.get_xticklabels(), speeds.get_yticklabels()):
        assert [label.get_text() for label in labels] == ["1", "2", "4"]
    assert speeds.get_ylabel() == "speed-up T(p) / T(1)"


def test_bars_are_the_intervals_of_the_table(make_study):
    table = measure(make_study())
    (axes,) = figure_of(table)[0].axes
    row = next(
        row for row in scaling.FINDING.of(table) if (row.cell.backend, row.cell.num_ranks) == ("ring", 2)
    )
    wanted = seconds_per_step(row)
    assert wanted.low == pytest.approx(row.cell.global_batch / row.throughput.high)
    assert wanted.high == pytest.approx(row.cell.global_batch / row.throughput.low)
    container = next(one for one in axes.containers if one.get_label() == "ring")
    ends = container.lines[2][0].get_segments()[1][:, 1]
    assert list(ends) == pytest.approx([1000 * wanted.low, 1000 * wanted.high])


def test_speed_up_is_paired_and_free_of_drift(strong):
    table = strong({"none": {1: 1, 2: 1}, "ring": {1: 1, 2: 0.75}})
    row = next(
        row for row in scaling.FINDING.of(table) if (row.cell.backend, row.cell.num_ranks) == ("ring", 2)
    )
    found = speed_up(row)
    assert (found.low, found.center, found.high) == pytest.approx((1.5, 1.5, 1.5))
    assert found.method == "paired t"


def test_without_a_base_case_there_are_times_and_words_for_the_rest(strong):
    figure, rows = figure_of(strong({"ring": {2: 1, 4: 0.9}}))
    times, speeds = figure.axes
    assert list(points(times)) == ["ring"]
    assert points(speeds) == {}
    assert [text.get_text() for text in speeds.texts] == ["base case not measured"]
    assert "No ideal line" in " ".join(text.get_text() for text in figure.texts)
    assert {row["speed_up"] for row in rows} == {None}


def test_nothing_is_drawn_of_one_rank_or_of_failures(make_record):
    assert figure_of(measure([make_record(block=block) for block in range(6)])) is None
    assert figure_of(measure([make_record(num_ranks=2, failure="died")])) is None


def test_without_six_launches_there_is_no_bar(make_study):
    figure, _ = figure_of(measure(make_study(num_blocks=3)))
    for container in figure.axes[0].containers:
        assert all(not len(segment) for segment in container.lines[2][0].get_segments())
    assert "no bars: an interval needs 6 launches" in " ".join(figure.texts[-1].get_text().split())


def test_files_are_equal_on_a_redraw_and_hold_what_was_drawn(strong, tmp_path):
    written = []
    for name in ("first", "again"):
        table = strong({"none": {1: 1, 2: 1}, "ring": {1: 1, 2: 0.75}})
        with drawing():
            figure, rows = figure_of(table)
            written.append(
                save_drawing(figure, tmp_path / name, title="t", rows=rows, provenance=table.provenance)
            )
    for one, other in zip(*written, strict=True):
        assert one.read_bytes() == other.read_bytes()
    with next(path for path in written[0] if path.suffix == ".csv").open(newline="") as lines:
        rows = {(row["backend"], row["num_ranks"]): row for row in csv.DictReader(lines)}
    assert float(rows["ring", "2"]["speed_up"]) == pytest.approx(1.5)
    assert float(rows["none", "1"]["seconds_per_step"]) == pytest.approx(
        np.median([BATCH / (100 * (1 + 0.05 * block)) for block in range(6)])
    )


@pytest.mark.parametrize("num_backends", [1, 4, 8])
@pytest.mark.parametrize("mode", ["weak", "strong"])
def test_nothing_is_cut_off_at_the_edges(strong, make_study, num_backends, mode):
    backends = ("none", "ring", "tf_collective", "horovod", "grpc_ps", "mpi", "gloo", "nccl")[:num_backends]
    if mode == "strong":
        table = strong({name: {1: 1, 2: 0.9, 4: 0.7} for name in backends}, num_blocks=3)
    else:
        table = measure(make_study(efficiency=dict.fromkeys(backends, (1.0, 0.9)), num_blocks=3))
    figure, _ = figure_of(table)
    boxes = [one.get_window_extent() for one in (*figure.texts, *figure.legends, *figure.axes)]
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(box.y0 >= 0 and box.y1 <= figure.bbox.y1 for box in boxes)
