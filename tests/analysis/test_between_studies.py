"""The tests of histories hold their level over all cells together, and see what they say they see. Seeds are fixed."""

import numpy as np
import pytest

from dlscale.analysis.between_studies import Group, changes, newest


def history(generator, *, studies, cells, common=1.0, unlike=0.0, size=0.01, few=None):
    """A group without a change: a common part, and own parts whose spreads differ by a factor exp(+-unlike)."""
    spreads = np.exp(unlike * generator.standard_normal(cells))
    values = common * generator.standard_normal((studies, 1)) + spreads * generator.standard_normal(
        (studies, cells)
    )
    launches = np.full((studies, cells), 8.0)
    if few:
        launches[-1] = few
    return Group(values=size * values, launches=launches, within=np.full(cells, size**2))


@pytest.mark.parametrize(("studies", "common", "unlike"), [(20, 1.0, 0.0), (12, 0.0, 0.5), (5, 1.0, 0.25)])
def test_of_200_histories_without_a_change_at_most_5_percent_have_one(studies, common, unlike):
    generator = np.random.default_rng(7)
    alarms = sum(
        bool(changes([history(generator, studies=studies, cells=16, common=common, unlike=unlike)]).found)
        for _ in range(200)
    )
    assert alarms <= 10


@pytest.mark.parametrize("cells", [1, 2, 16])
def test_a_further_study_of_an_unchanged_machine_is_as_expected(cells):
    generator = np.random.default_rng(11)
    groups = [
        [history(generator, studies=4, cells=cells, unlike=0.5), history(generator, studies=4, cells=cells)]
        for _ in range(400)
    ]
    alarms = sum(any(shift.shown for shift in newest(pair)) for pair in groups)
    assert alarms <= 20


def test_a_loss_in_one_cell_is_named_at_its_place_and_in_that_cell_alone():
    generator = np.random.default_rng(3)
    group = history(generator, studies=20, cells=16)
    values = group.values.copy()
    values[14:, 5] -= 0.07
    found = changes([Group(values=values, launches=group.launches, within=group.within)]).found
    assert [(shift.cell, shift.place) for shift in found] == [(5, 14)]
    assert found[0].size == pytest.approx(-0.07, abs=0.015)


def test_an_upgrade_that_moves_all_cells_and_a_later_loss_of_one_are_both_found():
    generator = np.random.default_rng(5)
    group = history(generator, studies=20, cells=8, common=0.3)
    values = group.values.copy()
    values[8:] += 0.10
    values[15:, 2] -= 0.06
    found = changes([Group(values=values, launches=group.launches, within=group.within)]).found
    assert {(shift.cell, shift.place) for shift in found} == {*((cell, 8) for cell in range(8)), (2, 15)}


def test_what_is_said_to_be_seen_is_seen_in_four_of_five():
    generator = np.random.default_rng(13)
    shown = []
    for _ in range(300):
        group = history(generator, studies=6, cells=8)
        seen = newest([group])[0].seen
        values = group.values.copy()
        values[-1, 0] -= seen
        first = next(
            s
            for s in newest([Group(values=values, launches=group.launches, within=group.within)])
            if s.cell == 0
        )
        shown.append(first.shown)
    assert 0.7 <= np.mean(shown) <= 0.9


def test_a_study_of_few_launches_must_differ_by_more():
    group = history(np.random.default_rng(17), studies=5, cells=4, few=1)
    few = newest([group])[0]
    usual = newest([Group(values=group.values, launches=np.full((5, 4), 8.0), within=group.within)])[0]
    assert few.half_width > 1.08 * usual.half_width


def test_a_cell_that_a_study_lacks_is_compared_where_it_is():
    group = history(np.random.default_rng(19), studies=6, cells=3)
    values = group.values.copy()
    values[:4, 0], values[-1, 1] = np.nan, np.nan
    values[-1, 2] -= 0.5
    shifts = newest([Group(values=values, launches=group.launches, within=group.within)])
    assert [shift.cell for shift in shifts] == [0, 2]
    assert [shift.shown for shift in shifts] == [False, True]
