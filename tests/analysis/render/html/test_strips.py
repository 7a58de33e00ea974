"""The first screen at a glance, and ranks by windows: widths and places are those that were planted."""

from dataclasses import replace

import pytest

from dlscale.analysis.render.html.page import strips
from tests.analysis.render.conftest import interval

ONE = (("hep_cnn", "torch"),)


def test_a_strip_is_the_ideal_speed_and_its_largest_loss_is_marked(made):
    found = strips(made.losses(ONE))
    assert [one.name for one in found] == ["ring, 8 ranks", "mpi, 8 ranks", "gloo, 8 ranks"]
    gloo = found[-1]
    assert [one.width for one in gloo.segments] == pytest.approx([80.9, 2.0, 3.1, 14.0])
    assert [one.begin for one in gloo.segments] == pytest.approx([0, 80.9, 82.9, 86.0])
    assert [one.largest for one in gloo.segments] == [False, False, False, True]
    assert gloo.certain
    assert gloo.cause == "communication and waiting: 14.0 % [13.4, 14.6]"
    assert gloo.kept == "81 % [80, 82] of ideal"


def test_what_was_gained_takes_no_room_from_what_is_kept(made):
    loss = made.losses(ONE)[0]
    gained = replace(loss.parts[0], share=interval(-0.05))
    (strip,) = strips([replace(loss, parts=(gained, *loss.parts[1:]))])
    assert sum(one.width for one in strip.segments) == pytest.approx(100)
    assert strip.segments[0].width == pytest.approx(100 * loss.kept.center)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (
            {"largest": ("stragglers", "sharing the machine")},
            "sharing the machine or stragglers: not separable",
        ),
        (
            {"largest": ("stragglers", "sharing the machine", "communication and waiting")},
            "no single cause stands out",
        ),
        # what only gains may equal
        ({"separated": False}, "stragglers: 3.5 % [2.9, 4.1], not separable from the rest"),
        ({"largest": ()}, "no single cause is significant"),
        ({"largest": (), "kept": interval(0.99, 0.02)}, "no significant loss"),
    ],
)
def test_only_a_cause_that_is_told_from_the_others_is_certain(made, change, cause):
    (strip,) = strips([replace(made.losses(ONE)[0], **change)])
    assert (strip.certain, strip.cause) == (False, cause)


def test_of_a_bounded_cause_only_the_limit_is_told(made):
    loss = made.losses(ONE)[0]
    bounded = replace(loss.parts[0], bounded=True)
    (strip,) = strips([replace(loss, parts=(bounded, *loss.parts[1:]))])
    assert strip.segments[1].says == "sharing the machine: at most 2.6 %"


def test_of_several_trainings_the_best_backend_of_each(made):
    trainings = ("HEP-CNN, torch", "HEP-CNN, tensorflow", "CosmoGAN, torch")
    found = strips(made.losses(made.TRAININGS))
    assert [one.name for one in found] == [f"{training}: ring, 8 ranks" for training in trainings]


def test_more_than_the_ideal_speed_is_kept_whole(made):
    loss = replace(made.losses(ONE)[0], kept=interval(1.04), largest=())
    (strip,) = strips([loss])
    assert strip.segments[0].width == 100
    assert sum(one.width for one in strip.segments) == 100
