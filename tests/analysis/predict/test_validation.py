"""What `make validate-prediction` computes, and that its page says so."""

import dataclasses
import itertools
import re
from pathlib import Path

import pytest

from dlscale.analysis.predict import validation
from dlscale.analysis.predict.emulated_rungs import hosts_lines
from dlscale.analysis.predict.loggp import LogGP
from dlscale.analysis.predict.measured_hosts import load_measured
from dlscale.analysis.predict.simgrid_engine import SimGrid
from dlscale.base.errors import UsageError

PAGE = Path(__file__).parents[3] / "docs" / "prediction-validation.md"


def test_closed_forms_hold():
    checks = list(validation.closed_form_checks([LogGP()]))
    assert len(checks) == len(validation.RANKS) * 4 * len(validation.SIZES)
    assert all(check.passed for check in checks)


@pytest.mark.requires("simgrid", "smpirun")
def test_replayed_programs_hold():
    """Within a group and between two, each by three algorithms."""
    checks = list(validation.replay_checks([SimGrid(), LogGP()], [32]))
    assert len(checks) == 2 * len(validation.SELECTORS) * len(validation.SIZES) * 2
    assert all(check.passed for check in checks)


def test_a_missed_check_is_marked_and_counted():
    first, *rest = validation.closed_form_checks([LogGP()], [2])
    wrong = dataclasses.replace(first, predicted_seconds=1.02 * first.reference_seconds)
    verdict, _, header, _, row, *_ = validation.check_lines([wrong, *rest])
    assert verdict == "7 of 8 within 0.5 %; the largest error is +2.00 %."
    assert header.endswith("| loggp |")
    assert row == "| one switch | ring | 2 | 1 MiB | closed form | 0.161 | +2.00 % (missed) |"


def test_the_page_has_all_rows_and_no_miss():
    text = PAGE.read_text(encoding="utf-8").partition(validation.BEGIN)[2].partition(validation.END)[0]
    forms, replays = (
        part.split("\n### ")[0] for part in re.split("### (?:Closed forms|Replayed programs)\n", text)[1:]
    )
    assert forms.count("\n| one switch |") == len(validation.RANKS) * 4 * len(validation.SIZES)
    cases = itertools.product(validation.REPLAYED_RANKS, validation.SELECTORS, validation.SIZES)
    assert replays.count("\n| groups of 16 |") == replays.count("\n| one switch |") == len(list(cases))
    assert "(missed)" not in forms + replays


def test_the_page_has_the_published_curves_as_they_are_computed():
    text = PAGE.read_text(encoding="utf-8")
    assert "\n".join(validation.published_lines()) in text, "run make validate-prediction"
    assert "no reason is written" not in text


def test_the_page_has_the_emulated_hosts_as_they_are_computed():
    lines = "\n".join(hosts_lines(load_measured()))
    assert lines in PAGE.read_text(encoding="utf-8"), "run make validate-prediction"


def test_results_need_a_place():
    assert validation.written_into(f"a\n{validation.BEGIN}\nold\n{validation.END}\nz", ["new"]).split() == [
        "a",
        *validation.BEGIN.split(),
        "new",
        *validation.END.split(),
        "z",
    ]
    with pytest.raises(UsageError, match="no place for the results"):
        validation.written_into("a page", [])
