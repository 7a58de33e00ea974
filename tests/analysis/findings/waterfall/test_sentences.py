"""What is said of a waterfall: in a sentence, in the terminal, in rows."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from dlscale.analysis.findings.waterfall import (
    part_sentence,
    render_waterfalls,
    waterfall_block_rows,
    waterfall_headline,
    waterfall_rows,
    waterfalls,
)
from dlscale.analysis.launches import launches_of
from dlscale.analysis.render.text import share_text
from dlscale.analysis.statistics import Interval

from .conftest import Planted

MS = 1e-3
ALL = Planted(co_running=0.2 * MS, input=0.1 * MS, delays=(0.4 * MS,), exposed=1.2 * MS)


def interval(center, half, n=6):
    low, high = (None, None) if half is None else (center - half, center + half)
    return Interval(center=center, low=low, high=high, level=0.95, method="paired t", n=n)


def test_the_headline_names_what_is_kept_and_the_largest_loss(plant):
    (one,) = waterfalls(launches_of(plant(ALL, noise=0.001)))
    assert waterfall_headline(one).startswith("hep_cnn on ring: scaling efficiency 8")
    assert " at 4 ranks; the largest loss is exposed communication: 12." in waterfall_headline(one)


def test_without_noise_it_is_known_to_the_digit(plant):
    (one,) = waterfalls(launches_of(plant(ALL)))
    assert waterfall_headline(one) == (
        "hep_cnn on ring: scaling efficiency 80.8 % [80.8, 80.8] at 4 ranks; the largest loss is "
        "exposed communication: 12.1 % [12.1, 12.1]."
    )


def test_losses_that_are_alike_are_not_ranked(plant):
    truth = Planted(co_running=0.5 * MS, exposed=0.5 * MS, reads=False)
    (one,) = waterfalls(launches_of(plant(truth, noise=0.01)))
    assert set(one.rivals) == {"co-running", "exposed communication"} - {one.largest.name}
    assert "the largest losses cannot be separated statistically: " in waterfall_headline(one)


def test_no_loss_is_invented_out_of_noise(plant):
    (one,) = waterfalls(launches_of(plant(Planted(reads=False), noise=0.01)))
    assert waterfall_headline(one).endswith("at 4 ranks; no loss is significant.")


def test_a_certain_loss_of_uncertain_causes_is_not_called_noise(plant):
    (one,) = waterfalls(launches_of(plant(Planted(exposed=0.5 * MS, reads=False), noise=0.01)))
    parts = tuple(
        replace(part, loss=interval(0.04 + index / 100, 0.1)) for index, part in enumerate(one.parts)
    )
    found = waterfall_headline(replace(one, parts=parts, loss=interval(0.15, 0.03)))
    assert f"; no single cause is significant; the largest is {parts[-1].name}: " in found


def test_few_blocks_are_insufficient_to_say_why(plant):
    (one,) = waterfalls(launches_of(plant(ALL, num_blocks=2)))
    assert waterfall_headline(one) == (
        "hep_cnn on ring: scaling efficiency 81 % at 4 ranks; insufficient data for causes: 2 of 3 blocks."
    )


def test_without_controls_the_headline_says_what_is_missing(plant):
    (one,) = waterfalls(launches_of([record for record in plant(ALL) if record.case.cell.num_ranks > 1]))
    assert waterfall_headline(one) == (
        "hep_cnn on ring at 4 ranks: the loss is unknown, no base case (a), none on 1 rank: not measured."
    )


def test_other_evidence_and_unpaired_ratios_are_named(plant):
    (one,) = waterfalls(launches_of(plant(ALL, base_block=50, evidence="emulated")))
    assert waterfall_headline(one).startswith("hep_cnn on ring (emulated): scaling efficiency 8")
    assert " at 4 ranks, unpaired; " in waterfall_headline(one)


def test_a_part_is_told_in_percent_and_in_milliseconds(plant):
    (one,) = waterfalls(launches_of(plant(ALL)))
    assert part_sentence(one.largest).startswith(
        "exposed communication: 12.1 % [12.1, 12.1] of the ideal speed, 1.1"
    )


def test_there_is_no_minus_zero():
    assert share_text(interval(-0.0001, 0.0001)) == "0.0 % [0.0, 0.0]"


def test_rows_add_up_and_have_stable_keys(plant):
    found = waterfalls(launches_of(plant(ALL)))
    rows = waterfall_rows(found)
    assert json.loads(json.dumps(rows)) == rows
    assert [row["part"] for row in rows] == [
        "co-running",
        "input stall",
        "late ranks",
        "exposed communication",
    ]
    assert sum(row["loss"] for row in rows) == pytest.approx(1 - rows[0]["efficiency"])
    lost = rows[0]["measured_seconds"] - rows[0]["ideal_seconds"]
    assert sum(row["seconds"] for row in rows) == pytest.approx(lost)
    assert len(waterfall_block_rows(found)) == 6 * 4
    (empty,) = waterfall_rows(
        waterfalls(launches_of([one for one in plant(ALL) if one.case.cell.num_ranks > 1]))
    )
    assert empty.keys() == rows[0].keys()
    assert (empty["part"], empty["reason"]) == (None, "no base case (a), none on 1 rank: not measured")


def test_the_terminal_shows_the_parts_and_what_they_are_together(plant):
    console = Console(file=io.StringIO(), width=100)
    for part in render_waterfalls(waterfalls(launches_of(plant(ALL)))):
        console.print(part)
    text = " ".join(console.file.getvalue().split())
    for words in ("Where the speed goes", "late ranks", "0.296", "in total 19.2 [19.2, 19.2]"):
        assert words in text
    assert list(render_waterfalls([])) == []
