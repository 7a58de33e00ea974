"""Percentiles of steps and the spread of launches."""

import numpy as np
import pytest

from dlscale.analysis.findings.launches import FINDING, MOST_POINTS
from dlscale.analysis.load import Study
from dlscale.analysis.render.figures import figure_of
from tests.made_records import make_record


def found(records):
    return FINDING.of(Study(records))


def test_percentiles_are_those_of_all_windows_of_a_cell():
    factors = np.random.default_rng(1).uniform(1, 2, 200)
    frame = found(
        [
            make_record(block=0, window_factors=factors[:150]),
            make_record(block=1, window_factors=factors[150:]),
            make_record(backend="ring", num_ranks=2, window_factors=(1.0, 2.0)),
        ]
    )
    own, ring = frame.to_dict("records")
    expected = 1e3 * factors * 8 / 100  # 8 samples at 100 samples/s
    for name, percent in (("p5", 5), ("p50", 50), ("p95", 95), ("p99", 99), ("max", 100)):
        assert own[f"{name}_milliseconds"] == pytest.approx(np.percentile(expected, percent))
    assert (own["num_windows"], own["num_launches"]) == (200, 2)
    assert (ring["num_windows"], ring["curve"], ring["num_ranks"]) == (2, "ring", 2)


def test_every_row_names_its_cell():
    frame = found([make_record(num_servers=1, backend="mpi_ps", num_ranks=2, num_nodes=2), make_record()])
    assert {"cell", "num_servers", "local_batch", "backend_options", "data"} <= {*FINDING.exported(frame)}
    assert "ordered" not in FINDING.exported(frame)


def test_an_exchange_has_no_step():
    assert found([make_record(control="exchange", backend="ring", num_ranks=2)]).empty


def test_the_spread_of_launches_is_that_around_their_medians():
    rates = (90.0, 100.0, 110.0)
    records = [make_record(block=block, samples_per_second=rate) for block, rate in enumerate(rates)]
    sentence = FINDING.sentence(found(records))
    assert sentence == "Nine of ten of 3 launches are within -9.0 % and +9.0 % of the median of their case."
    assert FINDING.sentence(found(records[:1])) == ""


def test_curves_end_with_all_windows_and_are_thinned():
    factors = np.linspace(1, 5, 3 * MOST_POINTS)
    frame = found(
        [make_record(num_ranks=2, window_factors=factors), make_record(backend="ring", num_ranks=2)]
    )
    (drawing,) = FINDING.drawings
    (axes,) = figure_of(drawing, drawing.rows(frame)).axes
    none, ring = axes.get_lines()
    assert len(none.get_xdata()) == MOST_POINTS + 1
    assert none.get_ydata()[-1] == ring.get_ydata()[-1] == 100
    assert none.get_xdata()[-1] == pytest.approx(frame["max_milliseconds"].max())
    assert axes.get_xscale() == "log"


@pytest.mark.parametrize("records", [[], [make_record(failure="gone")]])
def test_nothing_in_nothing_out(records):
    frame = found(records)
    assert frame.empty
    assert FINDING.sentence(frame) == ""
    assert FINDING.exported(frame).empty
    assert FINDING.drawings[0].rows(frame).empty
