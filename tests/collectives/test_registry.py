"""What the doctor asks, and the table that docs/comparing.md has of the same rows."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives import NAMES, capabilities
from dlscale.collectives.registry import unavailable_because
from dlscale.collectives.table import BEGIN, END, markdown, written_into


def test_every_pair_has_an_answer_in_one_line():
    for name in NAMES:
        for framework in capabilities(name).frameworks:
            reason = unavailable_because(name, framework)
            assert reason is None or "\n" not in reason


def test_a_framework_that_it_does_not_serve_is_a_problem():
    assert unavailable_because("gloo", "tensorflow") == "gloo does not train in tensorflow"
    with pytest.raises(UsageError, match="no backend 'smoke'"):
        unavailable_because("smoke", "torch")


def test_the_table_has_a_row_per_backend_and_is_written_between_its_marks():
    rows = markdown().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(NAMES)
    text = written_into(f"before\n{BEGIN}\nold\n{END}\nafter")
    assert text == f"before\n{BEGIN}\n{markdown()}\n{END}\nafter"
    with pytest.raises(ValueError, match="no place for the table"):
        written_into("nothing")
