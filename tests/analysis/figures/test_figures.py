import subprocess
import sys

import pytest

from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw as draw_figure
from dlscale.analysis.figures.write import write_figures
from dlscale.analysis.findings import load_all, scaling
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.throughput import MAKERS
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.measured import measure
from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from tests.analysis.reading import assert_inside, row_of
from tests.made_records import make_record, make_study


@pytest.fixture
def table():
    return measure(make_study())


def make_both(workload="hep_cnn", precision="fp32", **fields):
    """The table of one study in both frameworks."""
    records = [
        record
        for framework in ("torch", "tensorflow")
        for record in make_study(framework=framework, workload=workload, precision=precision, **fields)
    ]
    return measure(records)


def declare(table, name):
    (family,) = table.families
    return MAKERS[name](family, rows_of(scaling.FINDING.of(table), family), table.provenance)


def points(plot):
    """Label -> (number of ranks, value, low, high) of each point of each curve."""
    return {
        series.name: [(point.x, point.y, point.low, point.high) for point in series.points]
        for series in plot.series
    }


def test_the_figures_show_the_table_s_numbers(table):
    (rates,), panels = declare(table, "throughput").panels, declare(table, "efficiency").panels
    assert [(panel.y.low, panel.y.high) for panel in panels] == [(0, pytest.approx(1.1))] * 2
    for plot, name in zip(
        (rates, *panels), ("throughput", "efficiency_none", "efficiency_backend"), strict=True
    ):
        shown = points(plot)
        assert list(shown) == ["none", "gloo", "mpi", "ring"]
        for row in scaling.FINDING.of(table):
            value = getattr(row, name)
            expected = (row.cell.num_ranks, value.center, value.low, value.high)
            assert any(point == pytest.approx(expected) for point in shown[row.cell.backend])


def test_the_ideal_line_goes_through_the_base_case(table):
    (plot,) = declare(table, "throughput").panels
    base = row_of(table, backend="none", num_ranks=1)
    (ideal,) = plot.guides
    assert [y / x for x, y in ideal.points] == pytest.approx([base.throughput.center] * 2)


def test_nodes_stand_below_ranks_where_they_differ(table):
    records = [
        make_record(num_ranks=num_ranks, num_nodes=num_nodes, block=block, samples_per_second=100 * num_ranks)
        for num_ranks, num_nodes in ((1, 1), (2, 1), (4, 2))
        for block in range(6)
    ]
    (plot,) = declare(measure(records), "throughput").panels
    assert [label for _, label in plot.x.ticks] == ["1\n1", "2\n1", "4\n2"]
    (plot,) = declare(table, "throughput").panels
    assert ([label for _, label in plot.x.ticks], plot.x.title) == (["1", "2"], "ranks, on 1 node")


def test_no_line_joins_two_kinds_of_evidence():
    kinds = {1: "measured", 2: "measured", 4: "simulated", 8: "simulated", 16: "published"}
    records = [
        make_record(num_ranks=num_ranks, block=block, evidence=kind, samples_per_second=100 * num_ranks)
        for num_ranks, kind in kinds.items()
        for block in range(6)
    ]
    (plot,) = declare(measure(records), "throughput").panels
    assert [(one.evidence, len(one.points), one.joined) for one in plot.series] == [
        ("measured", 2, True),
        ("simulated", 2, True),
        ("published", 1, False),
    ]


def test_the_whole_machine_is_a_labelled_reference():
    records = make_study()
    records += [
        make_record(block=block, control="whole_machine", cores_per_rank=2, samples_per_second=150)
        for block in range(6)
    ]
    figure = declare(measure(records), "throughput")
    assert {guide.label: guide.y for guide in figure.panels[0].guides}["1 rank, 2 cores"] == pytest.approx(
        150
    )
    assert figure.rows[-1]["control"] == "whole_machine"


@pytest.mark.usefixtures("no_pictures")
def test_a_redraw_on_a_full_disk_leaves_no_new_figure_beside_old_ones(table, tmp_path, monkeypatch):
    only = ["throughput", "ecdf"]
    old = {path: path.read_bytes() for path in write_figures(table, tmp_path, only=only)}
    written = []

    def write(path, content, **options):
        if path.name.endswith("-ecdf.pdf"):
            raise UsageError(f"cannot write {path}: No space left on device")
        written.append(path.suffix)
        write_atomically(path, b"new", **options)

    monkeypatch.setattr("dlscale.analysis.figures.write.write_atomically", write)
    with pytest.raises(UsageError, match=f"cannot write {tmp_path}/hep_cnn.*-ecdf.pdf: No space"):
        write_figures(table, tmp_path, only=only)
    assert len(written) == 5
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == old


@pytest.mark.usefixtures("no_pictures")
def test_weak_and_strong_never_share_a_file(tmp_path):
    records = [make_record(num_ranks=n, block=b) for n in (1, 2) for b in range(3)]
    records += [
        make_record(num_ranks=n, block=b, scaling_mode="strong", local_batch=16 // n)
        for n in (1, 2)
        for b in range(3)
    ]
    records += [make_record(num_ranks=n, block=b, cores_per_rank=2) for n in (1, 2) for b in range(3)]
    written = write_figures(measure(records), tmp_path, only=["throughput", "start-up"])
    names = [path.name for path in written]
    assert len(set(names)) == len(names) == 3 * 4 + 4, "one figure of starts"
    assert sum("-strong-" in name for name in names) == 4


@pytest.mark.usefixtures("no_pictures")
def test_only_base_cases_give_no_efficiency_figure_and_only_failures_none(tmp_path):
    records = [make_record(block=block) for block in range(3)]
    assert {path.name.split("-")[-1].split(".")[0] for path in write_figures(measure(records), tmp_path)} == {
        "throughput",
        "ecdf",
        "torch",
    }  # start-up-torch
    failed = [make_record(block=block, failure="hung") for block in range(3)]
    assert write_figures(measure(failed), tmp_path) == []


@pytest.mark.usefixtures("no_pictures")
def test_without_a_run_that_exchanges_nothing_the_efficiency_is_drawn_all_the_same(tmp_path):
    records = [
        make_record(backend="ring", num_ranks=ranks, block=block) for ranks in (1, 2) for block in range(3)
    ]
    assert any("efficiency" in path.name for path in write_figures(measure(records), tmp_path))


def test_figures_need_no_global_state():
    code = "import sys, dlscale.analysis.figures; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("num_backends", [1, 8])
@pytest.mark.parametrize("form", [SCREEN, Form(width=3.3)], ids=["screen", "print"])
def test_nothing_is_cut_off_at_the_edges(num_backends, form):
    """Every figure that a study of trainings has, with long names."""
    backends = ("none", "ring", "tf_collective", "horovod", "grpc_ps", "mpi", "gloo", "nccl")[:num_backends]
    table = make_both(
        efficiency=dict.fromkeys(backends, (1.0, 0.9)),
        num_blocks=3,
        workload="inception_v3",
        system="frontera-rtx",
        precision="mixed-bf16",
        compiled=True,
    )
    family = table.families[0]
    assert family.framework == "tensorflow"
    makers = [make for finding in load_all() for make in finding.figures.values()]
    declared = [figure for make in makers if (figure := make(table, family, form)) and figure.panels]
    assert {"throughput", "efficiency", "step-time", "ecdf", "heatmap"} <= {one.name for one in declared}
    for one in declared:
        with drawing(form):
            figure = draw_figure(one, form)
            figure.draw_without_rendering()
        assert_inside(figure, name=one.name)
        legend, panel = figure.legends[0].get_window_extent(), figure.axes[0].get_tightbbox()
        assert panel.y1 <= legend.y0 + 0.5, one.name
