"""What `make validate-prediction` computes, and that its page says so."""

import dataclasses
from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from tests.validation import exchanges, page
from tests.validation.emulated_hosts import hosts_lines
from tests.validation.measured_hosts import load_measured
from tests.validation.published_curves import published_lines

PAGE = Path(__file__).parents[2] / "docs" / "measurements" / "prediction-validation.md"


def test_closed_forms_and_replayed_programs_hold():
    """Replays are of both routings, with and without groups, and beyond a power of two."""
    replays = list(exchanges.replay_checks())
    assert {check.exchange.routing for check in replays} == {"adaptive", "minimal"}
    assert {check.exchange.num_nodes for check in replays} == {48, 64, 256}
    assert {check.network.name for check in replays} == set(exchanges.NETWORKS)
    assert [check for check in (*exchanges.closed_form_checks(), *replays) if not check.passed] == []


def test_a_missed_check_is_marked_and_counted():
    first, *rest = list(exchanges.closed_form_checks())[:8]
    wrong = dataclasses.replace(first, reference_seconds=first.reference_seconds / 1.02)
    verdict, _, header, _, row, *_ = exchanges.check_lines([wrong, *rest])
    assert verdict == "7 of 8 within 0.5 %; the largest error is +2.00 %."
    assert header.endswith("| error |")
    assert row == "| one switch | ring | 2 | 1 MiB | closed form | 0.158 | +2.00 % (missed) |"


@pytest.mark.parametrize(
    "lines",
    [
        lambda: exchanges.check_lines(list(exchanges.closed_form_checks())),
        lambda: exchanges.check_lines(list(exchanges.replay_checks())),
        lambda: hosts_lines(load_measured()),
        published_lines,
    ],
    ids=["closed forms", "replayed programs", "emulated hosts", "published curves"],
)
def test_the_page_has_what_is_computed(lines):
    text = PAGE.read_text(encoding="utf-8")
    assert "\n".join(lines()) in text, "run make validate-prediction"
    assert "no reason is written" not in text


def test_results_need_a_place():
    assert page.written_into(f"a\n{page.BEGIN}\nold\n{page.END}\nz", ["new"]).split() == [
        "a",
        *page.BEGIN.split(),
        "new",
        *page.END.split(),
        "z",
    ]
    with pytest.raises(UsageError, match="no place for the results"):
        page.written_into("a page", [])
