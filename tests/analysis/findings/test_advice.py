"""What to do next: how many launches would decide a comparison."""

import re

from dlscale.analysis.findings.advice import advice
from dlscale.analysis.measured import measure
from tests.made_records import make_record


def study(*factors):
    """Blocks ten minutes apart of mpi and ring, which is faster by these factors."""
    return [
        make_record(backend=backend, num_ranks=2, block=block, samples_per_second=100 * factor).model_copy(
            update={"started_at": f"2026-11-21T07:{10 * block:02d}:00Z"}
        )
        for block, ratio in enumerate(factors)
        for backend, factor in (("mpi", 1.0), ("ring", ratio))
    ]


def test_too_few_launches_say_how_many_and_how_long():
    found = advice(measure(study(1.2, 1.1, 1.2, 1.15, 1.1)))
    assert found == ["To compare them, run 6 launches of each cell (--launches 6, about 1 h 00 min)."]


def test_what_was_not_shown_says_how_many_would_show_it():
    (sentence,) = advice(measure(study(1.3, 0.9, 1.3, 0.95, 1.3, 1.0)))
    assert (match := re.search(r"differ as they did here, (\d+) launches of each cell", sentence)), sentence
    assert 8 <= int(match[1]) <= 14


def test_what_is_too_small_to_be_shown_is_told():
    (sentence,) = advice(measure(study(1.3, 0.75, 1.3, 0.78, 1.3, 0.77)))
    assert "too small for 40 launches to show" in sentence
