"""CPU time of other programs: what a report of a busy study says, and what it does not claim."""

import pytest

from dlscale.analysis.findings import interference
from dlscale.analysis.findings.contrasts import study_contrasts
from dlscale.analysis.measured import measure
from tests.analysis.reading import data_of, page_for, screen_text
from tests.made_records import make_record, rows_of, windows_of


def disturbed(*shares, **options):
    """A record in whose windows other programs took these shares of the CPU time."""
    record = make_record(window_factors=[1.0] * len(shares), **options)
    warmup, *steady = rows_of(record.windows)
    windows = [window._replace(foreign_cpu=share) for window, share in zip(steady, shares, strict=True)]
    return record.model_copy(update={"windows": windows_of([warmup, *windows])})


def study(*busy_blocks, share=0.4):
    """Eight blocks of three backends of which ring is faster; some blocks are disturbed."""
    sides = {"none": (1, 100.0), "mpi": (2, 150.0), "ring": (2, 180.0)}
    return [
        disturbed(
            *[share if block in busy_blocks else 0.01] * 4,
            backend=backend,
            num_ranks=num_ranks,
            block=block,
            samples_per_second=rate * (1 + 0.001 * block),
        )
        for block in range(8)
        for backend, (num_ranks, rate) in sides.items()
    ]


def test_shares_are_weighted_by_time_and_noise_below_0_cancels():
    assert disturbed(0.3, -0.1, 0.1).foreign_cpu == pytest.approx(0.1)
    assert disturbed(-0.1, -0.1).foreign_cpu == 0
    assert disturbed(None, None).foreign_cpu is None


def test_a_busy_study_says_so_first_and_claims_nothing():
    table = measure(study(2, 3))
    text = screen_text(table)
    assert text.startswith(
        "The machine was busy: other programs took 40 % of the CPU time of 6 of 24 launches, so nothing is claimed."
    )
    assert "Insufficient data to compare ring and mpi: the machine was busy" in text
    assert "Largest loss" not in text
    first, *others = page_for(table).summary
    assert text.startswith(first), "the page too"
    assert not any("largest" in sentence for sentence in others)
    assert {contrast.verdict for contrast in table.once(study_contrasts).found} == {"cannot be shown"}
    assert all(contrast.ratio for contrast in table.once(study_contrasts).found), "numbers are given"
    assert data_of(table)["interference"] == {
        "num_launches": 24,
        "num_disturbed": 6,
        "share": pytest.approx(0.4),
        "busy": True,
    }


def test_a_study_that_is_little_disturbed_in_many_launches_says_how_much():
    text = screen_text(measure(study(2, 3, share=0.07)))
    assert text.startswith(
        "The machine was busy: other programs took 7 % of the CPU time of 6 of 24 launches"
    )


def test_single_disturbed_launches_are_told_and_forbid_nothing():
    records = [record for record in study() if record.case.block or record.case.cell.backend != "none"]
    records.append(disturbed(*[0.4] * 4, samples_per_second=100.0))
    text = screen_text(measure(records))
    assert text.startswith("Other programs took 40 % of the CPU time of 1 of 24 launches.")
    assert "ring is faster than mpi" in text
    quiet = screen_text(measure(study()))
    assert "other programs" not in quiet
    assert "ring is faster than mpi" in quiet
    assert interference.FINDING.of(measure([make_record()])) == ()
