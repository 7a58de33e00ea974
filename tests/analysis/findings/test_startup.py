"""What a launch costs before it trains: the medians, and the figure of the phases."""

from itertools import pairwise

import pytest

from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw
from dlscale.analysis.findings.startup import PHASES, start_up_figure, start_ups
from dlscale.analysis.launches import launches_of
from dlscale.analysis.measured import measure
from dlscale.benchmarks.records.record import Phases
from tests.analysis.reading import assert_inside
from tests.made_records import make_record

SECONDS = {"start_up": 2.0, "import_backend": 0.25, "connect": 0.5, "gates": 1.0, "first_step": 0.125}


def started(*, num_ranks=1, factor=1.0, missing=(), **fields):
    """A launch whose slowest rank, the last, needed `SECONDS`; connecting takes as much more as there are ranks."""

    def ranks(name):
        slowest = factor * SECONDS[name] * (num_ranks if name == "connect" else 1)
        return [None if name in missing else slowest / 2] * (num_ranks - 1) + [
            None if name in missing else slowest
        ]

    phases = Phases(**{name: ranks(name) for name in PHASES})
    return make_record(num_ranks=num_ranks, **fields).model_copy(update={"phases": phases})


def test_the_slowest_rank_counts_and_launches_are_medians():
    records = [started(num_ranks=2, block=block, factor=factor) for block, factor in enumerate((1, 3, 10))]
    records += [make_record(failure="died", block=4), make_record(control="loader", backend="none")]
    (found,) = start_ups(launches_of(records))
    assert (found.num_ranks, found.num_launches) == (2, 3)
    assert found.seconds == {name: 3 * SECONDS[name] * (1 + (name == "connect")) for name in PHASES}


def test_phases_stand_on_each_other_in_their_order_for_each_number_of_ranks():
    figure = start_up_figure(measure([started(num_ranks=n) for n in (1, 4)]), "torch")
    (panel,) = figure.panels
    assert [(stack.x, stack.label) for stack in panel.stacks] == [(1, "3.9"), (4, "5.4")]
    assert panel.stacks[1].heights == (2.0, 0.25, 4 * 0.5, 1.0, 0.125)


def test_a_phase_that_is_not_known_is_no_0():
    figure = start_up_figure(measure([started(missing=("gates",))]), "torch")
    assert [stack.label for stack in figure.panels[0].stacks] == [">2.9"]
    assert figure.rows[0]["gates_seconds"] is None
    assert start_up_figure(measure([started(missing=PHASES)]), "torch") is None


def test_a_panel_for_each_backend_none_first_and_servers_apart():
    backends = (("ring", 0), ("grpc_ps", 1), ("none", 0))
    records = [
        started(backend=name, num_ranks=n, num_servers=servers) for name, servers in backends for n in (1, 2)
    ]
    records.append(started(framework="tensorflow"))
    figure = start_up_figure(measure(records), "torch")
    assert [panel.title for panel in figure.panels] == ["none", "grpc_ps + 1", "ring"]
    many = start_up_figure(measure([started(backend=f"b{index}") for index in range(10)]), "torch")
    assert len(many.panels) == len(many.rows) == 8
    assert "Not shown: b8, b9" in many.small_print[0]


@pytest.mark.parametrize("num_backends", [1, 8])
def test_nothing_is_cut_off_at_the_edges(num_backends):
    backends = ("none", "tf_collective", "horovod", "grpc_ps", "mpi", "gloo", "nccl", "ring")[:num_backends]
    records = [started(backend=backend, num_ranks=n) for backend in backends for n in (1, 2, 4, 8)]
    with drawing():
        figure = draw(start_up_figure(measure(records), "torch"))
        figure.draw_without_rendering()
    assert_inside(figure)
    titles = [axes.get_tightbbox() for axes in figure.axes]
    assert titles[0].x0 >= -1
    assert titles[-1].x1 <= figure.bbox.x1
    assert all(left.x1 <= right.x0 for left, right in pairwise(titles))
