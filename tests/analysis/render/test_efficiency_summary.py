"""One sentence on each backend: its largest number of ranks, with what it is relative to."""

from types import SimpleNamespace

import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import base_text, efficiency_summary, unchecked
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


OWN = make_study(efficiency={"ring": (1.0, 0.9, 0.75)}, rank_counts=(1, 2, 4), noise=0.0)


@pytest.mark.parametrize(
    ("sizes", "base", "said", "speed_up"),
    [
        (
            (1, 2, 4),
            "1",
            "75.0 % [75.0, 75.0] at 4 ranks versus its own 1 rank; no single-rank baseline.",
            3.0,
        ),
        (
            (2, 4),
            "smallest",
            "83.3 % [83.3, 83.3] at 4 ranks versus its own 2 ranks; none was not measured on 2 ranks.",
            5 / 3,
        ),
    ],
)
def test_without_none_a_backend_is_compared_with_itself(sizes, base, said, speed_up):
    records = [one for one in OWN if one.case.cell.num_ranks in sizes]
    rows = scaling.FINDING.of(measure(records, base=base))
    assert efficiency_summary(rows) == f"ring: scaling efficiency {said}"
    assert base_text(rows) == said.split("own ")[1].split(";")[0]
    with_none = [one.model_copy(update={"case": in_none(one.case)}) for one in records]
    last = scaling.FINDING.of(measure([*records, *with_none], base=base))[-1]
    assert (last.cell.num_ranks, last.speed_up.center) == (4, pytest.approx(speed_up))


def in_none(case):
    return case.model_copy(update={"cell": case.cell.model_copy(update={"backend": "none"})})


def test_a_sentence_names_its_training_where_there_are_two():
    both = [*STUDY, *(make_record(framework="tensorflow", num_ranks=ranks) for ranks in (1, 2))]
    for records, begin in ((STUDY, "none: "), (both, "HEP-CNN (torch), none: ")):
        said = scaling.FINDING.sentences(scaling.FINDING.of(measure(records)))
        assert any(sentence.text.startswith(begin) for sentence in said)


def test_a_planned_cell_is_relative_to_1_rank():
    rows = scaling.FINDING.of(measure([], planned=[make_record(num_ranks=2).case]))
    assert [row.base_ranks for row in rows] == [1]


def test_what_is_not_checked_is_small_print():
    own = SimpleNamespace(own=True, unchecked="one step")
    (sentence,) = unchecked([own] * 2)
    assert sentence.quiet
