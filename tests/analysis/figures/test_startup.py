"""The start of a launch by its phases: heights of bars, places of ranks."""

from itertools import pairwise

import pytest

from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw
from dlscale.analysis.findings.startup import PHASES, start_up_figure
from dlscale.analysis.measured import measure
from dlscale.benchmarks.records.record import Phases

SECONDS = {"start_up": 2.0, "import_backend": 0.25, "connect": 0.5, "gates": 1.0, "first_step": 0.125}


@pytest.fixture
def started(make_record):
    """A launch whose slowest rank, the last, needed `SECONDS`; connecting takes as much more as there are ranks."""

    def make(*, num_ranks=1, missing=(), **fields):
        def ranks(name):
            slowest = SECONDS[name] * (num_ranks if name == "connect" else 1)
            return [None if name in missing else slowest / 2] * (num_ranks - 1) + [
                None if name in missing else slowest
            ]

        phases = Phases(**{name: ranks(name) for name in PHASES}, warm_up=[9.0] * num_ranks)
        return make_record(num_ranks=num_ranks, **fields).model_copy(update={"phases": phases})

    return make


def figure_of(records, framework="torch"):
    declared = start_up_figure(measure(records), framework)
    with drawing():
        drawn = declared and draw(declared)
        if drawn:
            drawn.draw_without_rendering()
    return drawn, declared


def test_phases_stand_on_each_other_in_their_order_for_each_number_of_ranks(started):
    figure, _ = figure_of([started(num_ranks=n, block=b) for n in (1, 2, 4) for b in range(3)])
    (axes,) = figure.axes
    bars = axes.patches
    assert len(bars) == 3 * len(PHASES)
    for index, num_ranks in enumerate((1, 2, 4)):
        bottom = 0.0
        for bar, name in zip(bars[index * len(PHASES) :], PHASES, strict=False):
            assert bar.get_x() < num_ranks < bar.get_x() + bar.get_width()
            assert bar.get_y() == pytest.approx(bottom)
            assert bar.get_height() == pytest.approx(SECONDS[name] * (num_ranks if name == "connect" else 1))
            bottom += bar.get_height()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "4"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("ranks", "time [s]")


def test_a_number_above_each_bar_says_the_whole(started):
    figure, _ = figure_of([started(num_ranks=n) for n in (1, 4)])
    assert [text.get_text() for text in figure.axes[0].texts] == ["3.9", "5.4"]


def test_a_phase_that_is_not_known_is_no_0(started):
    figure, declared = figure_of([started(missing=("gates",))])
    assert [text.get_text() for text in figure.axes[0].texts] == [">2.9"]
    assert declared.rows[0]["gates_seconds"] is None
    assert "> before a number" in " ".join(figure.texts[-1].get_text().split())


def test_launches_of_which_no_phase_is_known_give_no_figure(started):
    assert figure_of([started(missing=PHASES)]) == (None, None)


def test_a_panel_for_each_backend_none_first_and_servers_apart(started):
    records = [
        started(backend=backend, num_ranks=n, num_servers=servers)
        for backend, servers in (("ring", 0), ("grpc_ps", 1), ("none", 0))
        for n in (1, 2)
    ]
    figure, _ = figure_of(records)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["none", "grpc_ps + 1", "ring"]


def test_frameworks_have_figures_of_their_own(started):
    records = [started(framework="tensorflow"), started(framework="torch", backend="ring", num_ranks=2)]
    assert figure_of(records, "tensorflow")[1].rows[0]["backend"] == "none"
    assert figure_of(records, "torch")[1].rows[0]["backend"] == "ring"
    assert figure_of(records, "jax") == (None, None)


def test_more_backends_than_panels_are_named(started):
    records = [started(backend=f"b{index}") for index in range(10)]
    figure, declared = figure_of(records)
    assert len(figure.axes) == 8
    assert "Not shown: b8, b9" in " ".join(figure.texts[-1].get_text().split())
    assert len(declared.rows) == 8


@pytest.mark.parametrize("num_backends", [1, 3, 8])
def test_nothing_is_cut_off_at_the_edges(started, num_backends):
    backends = ("none", "tf_collective", "horovod", "grpc_ps", "mpi", "gloo", "nccl", "ring")[:num_backends]
    records = [started(backend=backend, num_ranks=n) for backend in backends for n in (1, 2, 4, 8)]
    figure, _ = figure_of(records)
    boxes = [one.get_window_extent() for one in (*figure.texts, *figure.legends, *figure.axes)]
    titles = [axes.get_tightbbox() for axes in figure.axes]
    assert all(box.x0 >= -1 and box.x1 <= figure.bbox.x1 for box in (*boxes, *titles))
    assert all(box.y0 >= 0 and box.y1 <= figure.bbox.y1 for box in boxes)
    assert all(left.x1 <= right.x0 for left, right in pairwise(titles))
