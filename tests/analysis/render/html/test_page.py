"""What the page says of made-up studies, sound ones and bad ones."""

from pathlib import Path

import pytest

from dlscale.analysis.declare import Sentence, Table
from dlscale.analysis.plots import Plot
from dlscale.analysis.render.html.document import render
from dlscale.benchmarks.records.files import BadFile, parse_record
from tests.analysis.reading import blocks_of

ONE = (("hep_cnn", "torch"),)


@pytest.fixture(scope="module")
def records(made):
    return made.study(trainings=ONE)


def plots(page):
    return {one.name: one for one in blocks_of(page, Plot)}


def tables(page):
    return {one.name: one for one in blocks_of(page, Table)}


def test_several_trainings_are_not_ranked(made):
    records = made.study()
    page = made.page(records)
    assert page.title == "How CosmoGAN and HEP-CNN scale on local"
    assert page.summary[0].startswith("Scaling efficiency of 9 curves: ")
    assert not any("highest" in sentence for sentence in page.summary)
    assert page.summary[1] == "The largest loss is communication and waiting in 9 of 9."


def test_every_launch_is_a_point(made):
    records = made.study(trainings=ONE, num_blocks=3)
    every = plots(made.page(records))["every-launch"]
    assert sum(len(one.points) for one in every.series) == len(records) == 48
    # What all cells share, the block's drift, is what moves the points.
    by_block: dict[str, list[float]] = {}
    for series in every.series:
        for point in series.points:
            by_block.setdefault(point.lines[0].rsplit(", ", 1)[1], []).append(point.y)
    drift = {block: sum(ys) / len(ys) for block, ys in by_block.items()}
    assert drift["block 1"] < drift["block 0"] < drift["block 2"]


def test_a_running_study_says_so(made, records):
    begun = [record for record in records if record.case.block < 2]
    page = made.page(begun, planned=[record.case for record in records], running=True)
    assert page.warnings[0] == (
        "The study is still running: this is what it has measured so far.",
        "failures",
    )
    assert any("64 planned cases have given no number yet" in said.text for said in blocks_of(page, Sentence))


def test_unsound_files_are_left_out_and_named(made, records):
    bad = parse_record(Path("records/<b>x<b>-00.1.json"), b'{"schema_version": 2}')
    assert isinstance(bad, BadFile)
    page = made.page(records, bad_files=[bad])
    assert any(
        "schema version 2" in sentence and section == "failures" for sentence, section in page.warnings
    )
    assert tables(page)["files"].rows[0].values[0].text == "<b>x<b>-00.1.json"
    assert "<b>x" not in render(page)


def test_many_files_that_are_bad_alike_are_one_sentence(made, records):
    bad = [BadFile(path=Path(f"{index}.json"), reason="schema version 2") for index in range(70)]
    page = made.page(records, bad_files=bad)
    (said,) = [sentence for sentence, _ in page.warnings if sentence.startswith("Left out")]
    assert said.startswith("Left out: 70 files (0.json, ")
    assert len(said) < 150


@pytest.mark.parametrize("rate", [float("inf")])
def test_impossible_times_are_failures_and_not_numbers(made, rate, records):
    impossible = made.record(backend="ring", num_ranks=8, block=9, samples_per_second=rate)
    page = made.page([*records, impossible])
    (row,) = tables(page)["failures"].rows
    assert "impossible times" in row.data["why"]
    render(page)


def test_mixed_systems_are_told_apart(made, records):
    page = made.page([*records, *made.study(trainings=ONE, system="elsewhere")])
    assert page.title == "How HEP-CNN scales on elsewhere and local"
    assert any(
        sentence.startswith("Records of 2 systems: elsewhere and local.") for sentence, _ in page.warnings
    )
    drawn = [plot for name, plot in plots(page).items() if name.startswith("efficiency")]
    assert {"elsewhere", "local"} == {plot.title.rsplit(" ", 1)[1] for plot in drawn}


def test_constant_columns_are_told_in_the_caption_once(made):
    for trainings, first in ((ONE, ["backend", "ranks"]), (made.TRAININGS, ["training", "backend"])):
        table = tables(made.page(made.study(trainings=trainings)))["numbers"]
        assert [column.label for column in table.columns][:2] == first
        assert ("HEP-CNN small, torch, weak, 8 samples" in table.caption) == (trainings == ONE)


@pytest.mark.parametrize("num_trainings", [1, 3])
def test_the_headline_has_every_significant_difference(made, num_trainings):
    page = made.page(made.study(trainings=made.TRAININGS[:num_trainings], num_blocks=12))
    (claims,) = [sentence for sentence in page.summary if sentence.startswith("Significant: ")]
    assert claims.count(" is slower than ring") == 2 * num_trainings


def test_the_table_of_backends_has_one_reference_and_the_most_ranks(made):
    page = made.page(made.study(trainings=made.TRAININGS[:1], num_blocks=12))
    tables = {
        block.name: block for section in page.sections for block in section.blocks if isinstance(block, Table)
    }
    labels = [column.label for column in tables["backends"].columns]
    told = {
        row.values[labels.index("backend")].text: row.values[labels.index("versus reference")].text
        for row in tables["backends"].rows
    }
    assert told.keys() == {"gloo", "mpi", "ring"}
    assert told["ring"] == "reference"
    assert {row.data["num_ranks"] for row in tables["backends-on-fewer-ranks"].rows} == {2, 4}
