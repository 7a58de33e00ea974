"""What a person reads."""

import io

import pytest
from rich.console import Console

from dlscale.analysis.findings.contrast_declaration import declare, declare_between
from dlscale.analysis.findings.contrast_table import contrast_sentences, probability_text
from dlscale.analysis.findings.contrasts import contrasts
from dlscale.analysis.launches import launches_of
from dlscale.analysis.render.contrasts import render_contrasts


def steadily(log, num_blocks, noise=1.0):
    wobble = (0.002, -0.001, 0.003, -0.002, 0.001, -0.003, 0.002, -0.002)
    return [log + noise * wobble[block] for block in range(num_blocks)]


@pytest.fixture
def said(declaration):
    return lambda flagged=None, **logs: contrast_sentences(
        contrasts(declaration(**logs), flagged=flagged).found
    )


def shown(found):
    console = Console(file=io.StringIO(), width=200)
    for part in render_contrasts(found):
        console.print(part)
    return " ".join(console.file.getvalue().split())


def test_a_sentence_for_every_verdict(said):
    assert said(ring=steadily(0.08, 6)) == [
        "ring is 8.3 % [8.1, 8.6] faster than mpi on 2 ranks (corrected p 0.031, 6 blocks)."
    ]
    assert said(ring=steadily(-0.08, 6)) == [
        "ring is 7.7 % [7.5, 7.9] slower than mpi on 2 ranks (corrected p 0.031, 6 blocks)."
    ]
    assert said(ring=steadily(0.004, 6)) == [
        "ring and mpi are alike on 2 ranks, within 2 %: ring is between 0.2 % faster and 0.7 % faster."
    ]
    assert said(ring=steadily(0.0, 8, noise=20)) == [
        "ring is not shown to be faster or slower than mpi on 2 ranks: it is between 3.7 % slower and 3.9 % faster "
        "(corrected p 1, 8 blocks)."
    ]


def test_what_cannot_be_shown_is_told_once(said):
    told = said(
        ring=steadily(0.1, 6), gloo=steadily(-0.1, 6), horovod=steadily(0.1, 6), nccl=steadily(0.1, 6)
    )
    assert told == [
        "ring against mpi on 2 ranks, gloo against mpi on 2 ranks, horovod against mpi on 2 ranks and 1 more cannot be "
        "shown: 6 launches cannot decide 4 comparisons: --launches 8 can."
    ]


def test_the_ratio_without_an_outlying_launch_is_in_the_sentence(said, declaration):
    logs = steadily(0.08, 8)
    logs[3] += 0.1
    cell = declaration(ring=logs).pairs[0].contender.cell.id
    (told,) = said(flagged={(cell, "measured"): {("s", 3)}}, ring=logs)
    assert told.endswith("8 blocks); without the block with an outlying launch 8.4 % [8.1, 8.6] faster.")


def test_the_table_says_what_was_declared_and_how_much_it_takes(make_study):
    kept = {"none": (1.0, 0.98), "ring": (0.99, 0.92), "mpi": (0.985, 0.86), "gloo[x]": (0.98, 0.859)}
    found = contrasts(declare(launches_of(make_study(efficiency=kept, noise=0.002)), reference="mpi"))
    text = shown(found)
    assert (
        "2 comparisons of backend, declared together: 7 blocks or more can carry a claim (--launches 7)."
        in text
    )
    assert "hep_cnn tiny, torch, weak scaling on local" in text
    assert "gloo[x] : mpi" in text  # nothing in a record is taken for markup
    assert "cannot be shown: 6 launches cannot decide 2 comparisons" in text
    assert "sign-flip test" in text


def test_frameworks_are_no_part_of_the_title_where_they_are_compared(make_study):
    kept = {"none": (1.0, 0.98), "ring": (0.99, 0.92)}
    both = make_study(efficiency=kept) + make_study(efficiency=kept, framework="tensorflow")
    text = shown(contrasts(declare(launches_of(both), factor="framework", reference="torch")))
    assert "hep_cnn tiny, weak scaling on local" in text
    assert "tensorflow : torch over ring 1" in text


def test_what_was_left_out_is_named(make_study):
    ring = {"ring": (1.0, 0.9), "mpi": (1.0, 0.8)}
    both = make_study() + make_study(efficiency=ring, framework="tensorflow")
    assert "Not compared: hep_cnn tensorflow has no gloo." in shown(
        contrasts(declare(launches_of(both), reference="gloo"))
    )


def test_two_studies_are_never_said_to_differ(make_study):
    a, b = (launches_of(make_study(efficiency={"ring": (rate, rate)})) for rate in (1.0, 1.5))
    text = shown(contrasts(declare_between(a, b, keys=("backend", "num_ranks"))))
    assert "2 comparisons of B with A." in text
    assert " 2 +50." in text
    assert "Unpaired" in text
    assert "is 50" not in text


def test_a_p_is_never_0():
    assert [probability_text(p) for p in (1.0, 0.03125, 0.00195, 1e-4, 1e-5)] == [
        "1",
        "0.031",
        "0.0019",
        "0.0001",
        "< 0.0001",
    ]


def test_cells_that_differ_between_two_studies_are_both_named(make_record):
    a, b = (
        launches_of([make_record(backend=backend, num_ranks=num_ranks)])
        for backend, num_ranks in (("ring", 1), ("mpi", 2))
    )
    assert "mpi : ring 2 : 1" in shown(contrasts(declare_between(a, b, keys=())))
    assert "ring 1 +0.0 1 1" in shown(contrasts(declare_between(a, a, keys=())))
