"""One screen about a study: what it may claim, what it must not hide, and how much room it takes."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all, scaling, waterfall
from dlscale.analysis.findings.contrasts import study_contrasts
from dlscale.analysis.findings.verdict import verdict
from dlscale.analysis.findings.waterfall import largest_loss
from dlscale.analysis.findings.waterfall_parts import Waterfall
from dlscale.analysis.measured import measure
from dlscale.analysis.render.screen import render_full, render_screen
from dlscale.benchmarks.cli.report import report, show_study
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.records.store import Store
from tests.analysis.reading import printed
from tests.made_records import windows_of

GOLDEN = Path(__file__).parents[2] / "golden" / "records"
ONE_TRAINING = (("hep_cnn", "torch"),)
MAX_LINES, MAX_COLUMNS = 40, 80


def screen(records, *, width=MAX_COLUMNS, order=("ring",), **options):
    study = measure(records, order=order, **options)
    return printed(render_screen(study, collect(load_all(), study)), width=width)


def words(records, **options):
    return " ".join(screen(records, **options).split())


def sentences(records, *, order=("ring",)):
    table = measure(records, order=order)
    return verdict(scaling.FINDING.of(table), table.once(study_contrasts))


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A folder of results with the golden studies, from which paths are as short as a user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(MAX_COLUMNS))
    for folder in GOLDEN.iterdir():
        if not folder.name.startswith("collectives"):
            shutil.copytree(folder, Path("results", "local", folder.name))
    return Path("results")


@pytest.mark.parametrize("study", ["weak-scaling", "servers"])
def test_a_real_study_is_one_screen(results, study):
    text = CliRunner().invoke(report, [study], standalone_mode=False).output
    lines = text.splitlines()
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= MAX_COLUMNS
    assert "Largest loss on 2 ranks" in text
    assert lines[-1].startswith("report: results/local/")


@pytest.mark.usefixtures("no_pictures")
def test_the_end_of_a_real_study_is_one_screen(results, capsys):
    (folder,) = results.glob("local/weak-scaling-*")
    assert show_study(Store(folder)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines[:-1])) <= MAX_COLUMNS  # the last is a link, as long as the folder's path
    assert [line.partition(":")[0] for line in lines[-3:]] == ["figures", "report", "open"]
    assert lines[-1] == f"open: {(folder / 'report.html').resolve().as_uri()}"


BEST = "ring has the highest scaling efficiency on 8 ranks: "
MEASURED = "Scaling efficiency on 8 ranks: "
NEAR = {"none": 0.97, "ring": 0.91, "mpi": 0.909, "gloo": 0.78}


@pytest.mark.parametrize(
    ("order", "fields", "first", "second"),
    [
        # the comparisons put it first, directly or through a reference between it and the others
        ("ring", {}, BEST, ["Significant: gloo is slower than ring ("]),
        ("mpi", {}, BEST, ["gloo is slower than mpi (", "ring is faster than mpi (+"]),
        # of two that are faster than the reference none is the best
        ("gloo", {"efficiency": NEAR}, MEASURED, ["faster than gloo"]),
        # equals, and too few launches
        (
            "ring",
            {"efficiency": {"none": 0.97, "ring": 0.9, "mpi": 0.9}},
            MEASURED,
            ["mpi and ring (n = 7)."],
        ),
        (
            "ring",
            {"num_blocks": 6},
            MEASURED,
            ["Insufficient data to compare gloo and ring, mpi and ring: 6 "],
        ),
    ],
)
def test_the_best_is_named_only_where_comparisons_say_so(made, order, fields, first, second):
    records = made.study(**{"trainings": ONE_TRAINING, "rank_counts": (1, 8), "num_blocks": 7} | fields)
    best, compared = sentences(records, order=(order,))
    assert best.startswith(first)
    assert ("no backend is shown to lead" in best) == (first == MEASURED)
    assert all(words in compared for words in second)


def test_failures_unread_files_and_missing_cases_have_two_lines_each_at_most(made):
    study = made.study(trainings=ONE_TRAINING, rank_counts=(1, 2))
    failed = made.record(backend="ring", num_ranks=2, block=6, failure="rank 1 [died] " + 40 * "of it ")
    lost = Case(cell=failed.case.cell, block=7, position=0)
    planned = [*(record.case for record in [*study, failed]), lost]
    text = screen([*study, failed], planned=planned, left_out=[40 * "a file "])
    heading, *lines = text[text.index("Warnings (") :].splitlines()
    assert "dlscale report --full" in heading
    assert [line[2:10] for line in lines] == [
        *("1 case f", "Left out", "file a f", "Audits n", "2 of 50 ", "First fa", "of it of")
    ]
    assert "ring on 2 ranks, block 6: hang on rank 1: rank 1 [died] of it" in lines[-2]
    assert all(len(line) <= MAX_COLUMNS for line in lines)
    assert [line.rstrip().endswith("…") for line in lines] == [False, False, True, False, False, False, True]


def test_what_was_made_good_is_told_no_more_but_in_full(made):
    study = made.study(trainings=ONE_TRAINING, rank_counts=(1, 2))
    good = next(record for record in study if record.case.cell.num_ranks == 2)
    failed = made.record(backend="ring", num_ranks=2, block=6, failure="rank 1 died").failure
    full = {}
    for kind in ("interrupted", "error"):
        first = good.model_copy(
            update={
                "failure": failed.model_copy(update={"kind": kind}),
                "windows": windows_of([], len(good.ranks)),
                "attempt": 1,
            }
        )
        records = [first, *(one.model_copy(update={"attempt": 2}) for one in study)]
        short = screen(records)
        assert "failed" not in short
        assert "repeated" not in short
        table = measure(records, order=("ring",))
        full[kind] = printed(render_full(table, collect(load_all(), table)))
    assert "1 attempt failed and succeeded when repeated." in full["error"]
    assert "attempt failed" not in full["interrupted"]


def test_many_trainings_have_a_block_each(made):
    text = screen(made.study(rank_counts=(1, 2)), width=100)
    for title in ("HEP-CNN small, torch", "HEP-CNN small, tensorflow", "CosmoGAN small, torch"):
        assert title in text
    assert text.count("Largest loss on 2 ranks") == 3
    assert text.count("vs 1 rank: samples/s per rank") == 1
    assert len(text.splitlines()) <= 3 * 25 + 10, "a block each, and what all share"


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_number_is_cut(made, width):
    text = screen(made.study(trainings=ONE_TRAINING), width=width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def test_without_numbers_it_says_what_is_missing(made):
    assert "nothing has been measured" in words([])
    record = made.record(backend="ring", num_ranks=2)
    planned = [Case(cell=record.case.cell, block=block, position=0) for block in range(6)]
    assert "No case gave a number so far; 6 are planned." in words([], planned=planned)
    bare = [made.record(backend="ring", num_ranks=2, block=block) for block in range(6)]
    assert "no efficiency: no base case" in words(bare)
    failed = [made.record(backend="ring", num_ranks=2, block=block, failure="died") for block in range(6)]
    assert "No case gave a number so far" in words(failed)


def test_trainings_on_one_rank_share_a_table(made):
    """What is 100 % by definition is left out, and the same sentence is said once."""
    records = [
        made.record(workload=workload, precision=precision, block=block)
        for workload in ("hep_cnn", "cosmogan")
        for precision in ("fp32", "bf16")
        for block in range(2)
    ]
    text = screen(records)
    assert text.count("Only 1 rank gave numbers") == text.count("throughput") == 1
    assert "4 trainings: torch, weak scaling on local" in text
    for name in (
        "CosmoGAN small, bf16",
        "CosmoGAN small, fp32",
        "HEP-CNN small, bf16",
        "HEP-CNN small, fp32",
    ):
        assert name in text
    assert "vs " not in text
    assert len(text.splitlines()) < 20


def test_frameworks_are_compared_below_their_blocks(made):
    trainings = (("hep_cnn", "torch"), ("hep_cnn", "tensorflow"))
    study = made.study(
        trainings=trainings, rank_counts=(1, 8), num_blocks=9, efficiency={"none": 0.97, "ring": 0.9}
    )
    text = words(study, order=("torch",))
    assert "tensorflow is 10" in text
    assert "faster than torch over ring on 8 ranks" in text


def test_a_loss_that_is_not_known_says_why(made):
    table = measure(made.study(trainings=ONE_TRAINING, rank_counts=(1, 2), num_blocks=2))
    assert largest_loss(waterfall.FINDING.of(table)[0]) == "insufficient data: 2 of 3 blocks"
    alone = [made.record(backend="ring", num_ranks=2, block=block) for block in range(6)]
    (fall,) = waterfall.FINDING.of(measure(alone))
    assert isinstance(fall, Waterfall)
    assert largest_loss(fall) == "not known: none on 2 ranks was not measured"
