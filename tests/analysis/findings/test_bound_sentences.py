"""Bounds in words and in columns."""

import pytest

from dlscale.analysis.findings.bounds import (
    NO_DATA,
    ONE_NODE,
    Limit,
    bound_columns,
    bound_sentence,
    bound_sentences,
)


def limit(kind, efficiency, words="because"):
    return Limit(kind=kind, efficiency=efficiency, seconds=None if efficiency is None else 1.0, words=words)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            (limit("wire", 0.873), limit("memory", None, "nobody says"), limit("loader", 0.95)),
            "cannot keep more than 87.3 %; wire 87.3 % (because); loader 95 %; memory not known: nobody says.",
        ),
        ((limit("wire", None, "nobody says"),), "no bound is known; wire not known: nobody says."),
    ],
)
def test_the_lowest_bound_is_told_first_and_an_unknown_one_is_not_1(make_record, found, said):
    assert bound_sentence(make_record(backend="ring", num_ranks=8).case.cell, found).endswith(said)


def test_backends_that_nothing_limits_share_one_sentence(make_record):
    def cell(backend, num_ranks=2):
        return make_record(backend=backend, num_ranks=num_ranks).case.cell

    free = [limit("wire", None, ONE_NODE), limit("memory", 1.0), limit("loader", 0.9996)]
    assert bound_sentences([(cell(name), free) for name in ("gloo", "mpi", "ring")]) == [
        "Neither memory nor input limits gloo, mpi and ring on 2 ranks."
    ]
    lacking = [limit("wire", None, "nobody says"), limit("memory", 1.0), limit("loader", None, NO_DATA)]
    assert bound_sentences([(cell("ring"), lacking)]) == [
        "Memory does not limit ring on 2 ranks; wire not known: nobody says."
    ]
    limited = [limit("wire", 0.5), limit("memory", 1.0), limit("loader", 1.0)]
    assert bound_sentences([(cell("ring", 8), limited), (cell("mpi", 8), free)]) == [
        "ring on 8 ranks cannot keep more than 50 %; wire 50 % (because); memory 100 %; loader 100 %.",
        "Neither memory nor input limits mpi on 8 ranks.",
    ]


def test_columns_are_stable():
    assert bound_columns([limit("loader", 0.9)]) == {
        "bound_wire": None,
        "bound_memory": None,
        "bound_loader": 0.9,
    }
