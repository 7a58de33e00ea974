"""One sentence on each backend: its largest number of ranks, with what it is relative to."""

import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import efficiency_summary
from dlscale.analysis.measured import measure
from tests.made_records import make_record, make_study

STUDY = [
    *make_study(
        efficiency={"none": (1.0, 1.0, 0.9), "ring": (1.0, 0.9, 0.8)}, rank_counts=(1, 2, 4), noise=0.0
    ),
    make_record(backend="ring", num_ranks=8, failure="died"),
]
LOADER = make_record(num_ranks=4, control="synthetic", data="x:0")


def alone(**fields):
    return [make_record(backend="ring", num_ranks=2, **fields)]


@pytest.mark.parametrize(
    ("records", "backend", "begin", "end"),
    [
        # the largest number of ranks with a number counts
        (STUDY, "ring", "ring: scaling efficiency 80.0 % [80.0, 80.0] at 4 ranks", "versus its own 1 rank)."),
        (STUDY, "none", "none: efficiency 90.0 % [90.0, 90.0] at 4 ranks without", ""),
        # controls and one rank say nothing of scaling
        ([make_record(), LOADER], "none", "", ""),
        # other evidence is named
        (alone(), "ring", "ring: 100 samples/s on 2 ranks; ", "no efficiency."),
        (alone(evidence="emulated"), "ring", "ring (emulated): 100 samples/s on 2 ranks; ", "no efficiency."),
        # launches are counted where none gave a number
        (alone(failure="died"), "ring", "ring: no number on more than 1 rank (0 of 1 launch", ""),
    ],
)
def test_what_is_said_of_a_backend(records, backend, begin, end):
    rows = [row for row in scaling.FINDING.of(measure(records)) if row.cell.backend == backend]
    said = efficiency_summary(rows)
    assert said.startswith(begin)
    assert said.endswith(end)
    assert bool(said) == bool(begin)
