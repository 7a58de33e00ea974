"""The first screen at a glance, and ranks by windows: widths and places are those that were planted."""

from dataclasses import replace

import pytest

from dlscale.analysis.render.html.page import strips

ONE = (("hep_cnn", "torch"),)


def test_a_strip_is_the_ideal_speed_and_its_largest_loss_is_marked(made):
    found = strips(made.losses(ONE))
    assert [one.name for one in found] == ["ring, 8 ranks", "mpi, 8 ranks", "gloo, 8 ranks"]
    gloo = found[-1]
    assert [one.width for one in gloo.segments] == pytest.approx([80.9, 2.0, 3.1, 14.0])
    assert [one.begin for one in gloo.segments] == pytest.approx([0, 80.9, 82.9, 86.0])
    assert [one.largest for one in gloo.segments] == [False, False, False, True]
    assert gloo.certain
    assert gloo.cause == "exposed communication: 14.0 % [13.4, 14.6]"
    assert gloo.kept == "81 % [80, 82] of ideal"


def test_what_was_gained_takes_no_room_from_what_is_kept(made):
    loss = made.losses(ONE)[0]
    gained = replace(loss.parts[0], share=made.interval(-0.05))
    (strip,) = strips([replace(loss, parts=(gained, *loss.parts[1:]))])
    assert sum(one.width for one in strip.segments) == pytest.approx(100)
    assert strip.segments[0].width == pytest.approx(100 * loss.kept.center)


def test_causes_that_are_not_told_apart_are_not_marked_as_certain(made):
    loss = made.losses(ONE)[0]
    (strip,) = strips([replace(loss, largest=("stragglers", "co-running"))])
    assert not strip.certain
    assert strip.cause == "co-running or stragglers: not separable"


def test_a_loss_that_only_gains_may_equal_is_not_marked_as_certain(made):
    (strip,) = strips([replace(made.losses(ONE)[0], separated=False)])
    assert not strip.certain
    assert strip.cause == "stragglers: 3.5 % [2.9, 4.1], not separable from the rest"


def test_a_certain_loss_without_a_certain_cause_says_so(made):
    loss = replace(made.losses(ONE)[0], largest=())
    (strip,) = strips([loss])
    assert strip.cause == "no single cause is significant"
    (strip,) = strips([replace(loss, kept=made.interval(0.99, 0.02))])
    assert strip.cause == "no significant loss"


def test_of_several_trainings_the_best_backend_of_each(made):
    found = strips(made.losses(made.TRAININGS))
    assert [one.name for one in found] == [
        "HEP-CNN, torch: ring, 8 ranks",
        "HEP-CNN, tensorflow: ring, 8 ranks",
        "CosmoGAN, torch: ring, 8 ranks",
    ]


def test_more_than_the_ideal_speed_is_kept_whole(made):
    loss = replace(made.losses(ONE)[0], kept=made.interval(1.04), largest=())
    (strip,) = strips([loss])
    assert strip.segments[0].width == 100
    assert sum(one.width for one in strip.segments) == 100
