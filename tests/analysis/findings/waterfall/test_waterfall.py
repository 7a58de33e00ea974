"""Planted losses, each alone and all together: every part is found, and together they are the loss."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlscale.analysis.findings import scaling
from dlscale.analysis.measured import measure
from tests.made_records import rows_of

from .conftest import LOSSES, MS, Planted, losses, only, plant


@pytest.mark.parametrize("kind", LOSSES)
def test_what_was_planted_is_found_exactly_without_noise(kind):
    truth = Planted(**LOSSES[kind])
    found = only(plant(truth))
    assert losses(found) == pytest.approx(truth.losses, abs=1e-12)
    # The drift is common to a block and cancels.
    assert all(part.loss.high - part.loss.low < 1e-9 for part in found.parts)
    assert all(part.loss.method == "paired t" for part in found.parts)


@pytest.mark.parametrize("kind", LOSSES)
def test_what_was_planted_lies_within_its_interval(kind):
    """Of 40 studies; the share is that of all parts of all studies, which are not independent."""
    truth = Planted(**LOSSES[kind])
    hits = []
    for seed in range(40):
        found = only(plant(truth, noise=0.01, seed=seed, num_windows=2))
        hits += [part.loss.low <= truth.losses[part.name] <= part.loss.high for part in found.parts]
    assert np.mean(hits) >= 0.9


@settings(max_examples=25, deadline=None)
@given(
    data=st.data(),
    strong=st.booleans(),
    reads=st.booleans(),
    controls=st.sets(st.sampled_from(["alone", "synthetic"])),
    stamps=st.booleans(),
    base_block=st.sampled_from([0, 2, 50]),
)
def test_parts_add_up_to_the_loss_whatever_was_measured(data, strong, reads, controls, stamps, base_block):
    small = st.floats(-0.3 * MS, 3 * MS)
    truth = Planted(
        **{name: data.draw(small, name) for name in ("batch", "co_running", "input", "exposed")},
        base_input=data.draw(st.floats(0, MS), "base_input"),
        delays=data.draw(st.lists(st.floats(0, 5 * MS), max_size=4), "delays"),
        strong=strong,
        reads=reads,
    )
    if not strong:
        truth = replace(truth, batch=0.0)
    records = plant(truth, noise=0.05, num_windows=2, stamps=stamps, controls=controls, base_block=base_block)
    found = only(records)
    assert sum(part.loss.center for part in found.parts) == pytest.approx(found.loss.center, abs=1e-12)
    assert sum(part.seconds.center for part in found.parts) == pytest.approx(
        found.measured_seconds - found.ideal_seconds, abs=1e-12
    )
    row = next(row for row in scaling.FINDING.of(measure(records)) if row.cell.backend == "ring")
    if base_block != 2:  # then the table has the blocks, too, where the base case was not launched
        one, other = found.efficiency, row.efficiency_none
        assert (one.method, one.n) == (other.method, other.n)
        assert (one.center, one.low, one.high) == pytest.approx((other.center, other.low, other.high))
    assert {name for part in found.parts for name in part.names} == set(truth.parts)


def test_the_late_rank_is_found_by_stamps_where_totals_do_not_show_it():
    truth = Planted(**LOSSES["late in turn"])
    records = plant(truth)
    windows = [rows_of(record.windows)[-1] for record in records if record.case.cell.num_ranks == 4]
    assert all(np.ptp(window.seconds) < 1e-12 for window in windows)
    assert losses(only(records))["stragglers"] == pytest.approx(1.2 * MS / truth.measured)


def test_what_the_last_rank_spends_in_gathers_is_a_part_of_its_own():
    """Of 1.5 ms of exchange; the other ranks wait for it in their gathers, which is no gathering."""
    truth, gathering = Planted(**LOSSES["exposed"]), 0.4 * MS

    def with_gathers(record):
        if record.case.cell.backend == "none":
            return record
        scale = rows_of(record.windows)[1].seconds[0] / rows_of(record.windows)[1].num_steps / truth.measured
        waits = [0.3 * MS, 0.0, 0.5 * MS, 0.1 * MS]
        return record.model_copy(update={"gather_seconds": [(gathering + wait) * scale for wait in waits]})

    found = losses(only(list(map(with_gathers, plant(truth)))))
    assert found["gathering weights"] == pytest.approx(gathering / truth.measured)
    assert found["communication and waiting"] == pytest.approx((1.5 * MS - gathering) / truth.measured)
    assert "gathering weights" not in losses(only(plant(truth)))


def sharing(record, *, halo, truth):
    """That training with 2 ranks per sample, whose ranks spend `halo` and more in exchanging rows."""
    cell = record.case.cell
    if cell.control != "alone" and cell.num_ranks == 1:
        return record
    scale = rows_of(record.windows)[1].seconds[0] / rows_of(record.windows)[1].num_steps / truth.measured
    record = of_cell(record, split=2, local_batch=2 * cell.local_batch)
    if cell.backend == "none":
        return record
    seconds = [(halo + wait) * scale for wait in (0.3 * MS, 0.0, 0.5 * MS, 0.1 * MS)]
    return record.model_copy(update={"halo_seconds": seconds})


def of_cell(record, **changes):
    case = record.case
    return record.model_copy(
        update={"case": case.model_copy(update={"cell": case.cell.model_copy(update=changes)})}
    )


@pytest.mark.parametrize("strong", [False, True])
def test_what_the_last_rank_spends_in_exchanging_rows_is_a_part_of_its_own(strong):
    truth, halo = Planted(**LOSSES["exposed"], strong=strong), 0.4 * MS
    found = losses(only([sharing(record, halo=halo, truth=truth) for record in plant(truth)]))
    assert found["halo exchange"] == pytest.approx(halo / truth.measured)
    assert found["communication and waiting"] == pytest.approx((1.5 * MS - halo) / truth.measured)


def test_beyond_the_batch_nothing_but_the_exchange_of_rows_is_told_from_the_rest():
    truth, halo = Planted(**LOSSES["exposed"], strong=True), 0.4 * MS
    records = [sharing(record, halo=halo, truth=truth) for record in plant(truth, controls=())]
    kept = [r for r in records if r.case.cell.backend != "none" or r.case.cell.num_ranks == 1]
    found = only(kept)
    first, last = found.parts
    assert (last.name, last.loss.center) == ("halo exchange", pytest.approx(halo / truth.measured))
    assert "sharing the machine" in first.name
    assert first.loss.center + last.loss.center == pytest.approx(found.loss.center)
    assert "none on 4 ranks was not measured with samples split 2 ways" in found.notes


def test_what_thin_blocks_take_beyond_their_share_is_a_part_of_its_own():
    """Of 1 rank at the local batch: with whole samples nothing is lost, with half of their rows what was planted."""
    truth, halo = Planted(**LOSSES["all in strong scaling"]), 0.4 * MS
    planted = plant(truth)
    records = [sharing(record, halo=halo, truth=truth) for record in planted]
    found = losses(only(records))
    assert found["batch effect + thin blocks"] == pytest.approx(truth.losses["batch effect"])
    whole = plant(replace(truth, batch=0.0))
    records += [
        of_cell(record, local_batch=2 * record.case.cell.local_batch)
        for record in whole
        if record.case.cell.control == "alone"
    ]
    found = losses(only(records))
    assert found["batch effect"] == pytest.approx(0)
    assert found["thin blocks"] == pytest.approx(truth.losses["batch effect"])
    for name in ("sharing the machine", "input stall", "stragglers"):
        assert found[name] == pytest.approx(truth.losses[name])
