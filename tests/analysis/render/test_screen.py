"""One screen: what it may claim, what it must not hide, how much room it takes; errors of findings; files."""

import io
import json

import pandas as pd
import pytest
from rich.console import Console

from dlscale.analysis.finding import Column, Finding, checked
from dlscale.analysis.findings import cautions, load_all, verdict
from dlscale.analysis.load import Study
from dlscale.analysis.render import figures, page, screen
from dlscale.analysis.render.page import sections_of
from dlscale.analysis.render.text import as_csv, as_data
from tests.analysis.render.conftest import made_records
from tests.made_records import NODE, make_record, make_study

ONE = (("hep_cnn", "torch"),)
BEST = "ring has the highest scaling efficiency on 8 ranks: "
RANGE = "Scaling efficiency on 8 ranks: "


def printed(study, *, full=False, width=80, findings=None):
    text = io.StringIO()
    screen.show(
        study, findings or checked(study, load_all()), console=Console(file=text, width=width), full=full
    )
    return text.getvalue()


def lines_of(study):
    return verdict.FINDING.of(study)["text"].tolist()


def test_one_training_is_one_screen():
    text = printed(Study(made_records(trainings=ONE), order=["ring"]))
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert "none" in text


def test_of_many_trainings_those_on_most_ranks_are_shown():
    text = printed(Study(made_records(), order=["ring"]))
    assert all(
        title in text
        for title in ("HEP-CNN small, torch", "HEP-CNN small, tensorflow", "CosmoGAN small, torch")
    )
    assert "dlscale report --full" in text


NEAR = {"none": 0.97, "ring": 0.91, "mpi": 0.909, "gloo": 0.78}


@pytest.mark.parametrize(
    ("order", "fields", "first", "words"),
    [
        # the comparisons put it first, directly or through a reference between it and the others
        ("ring", {}, BEST, ["gloo is slower than ring"]),
        ("mpi", {}, BEST, ["gloo is slower than mpi", "ring is faster than mpi"]),
        # of two that are faster than the reference none is the best
        ("gloo", {"efficiency": NEAR}, RANGE, ["faster than gloo"]),
        # too few launches
        ("ring", {"num_blocks": 6}, RANGE, ["--launches 7"]),
    ],
)
def test_the_best_is_named_only_where_comparisons_say_so(order, fields, first, words):
    records = made_records(**{"trainings": ONE, "ranks": (1, 8), "num_blocks": 7} | fields)
    best, *compared = lines_of(Study(records, order=[order]))
    assert best.startswith(first)
    assert ("no backend is shown to lead" in best) == (first == RANGE)
    assert all(word in " ".join(compared) for word in words)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([make_record(block=b) for b in range(6)], "Only 1 rank gave numbers"),
        (
            [make_record(backend="ring", num_ranks=2, block=b) for b in range(6)],
            "no efficiency: no base case",
        ),
        ([make_record(failure="died")], "No case gave a number so far"),
    ],
)
def test_what_cannot_be_said_is_said(records, said):
    assert said in lines_of(Study(records))[0]


def test_strong_scaling_says_how_many_times_as_fast_and_whether_it_pays():
    strong = {"global_batch": 64, "rank_counts": (1, 2, 4), "noise": 0.0}
    (line,) = lines_of(Study(make_study(efficiency={"none": (1, 1, 1), "ring": (1, 0.9, 0.75)}, **strong)))
    assert "A step on 4 ranks is 3 times as fast as on 1 rank." in line
    (line,) = lines_of(Study(make_study(efficiency={"none": (1, 1, 1), "ring": (1, 0.4, 0.2)}, **strong)))
    assert "more ranks do not pay here" in line


def test_a_study_without_records_says_nothing_and_raises_nothing():
    study = Study([])
    findings = checked(study, load_all())
    assert study.errors == []
    assert list(sections_of(study, findings)) == []
    assert {name for name, rows in as_data(study, findings).items() if rows} <= {"schema", "productivity"}


@pytest.mark.parametrize(
    "records",
    [
        [],
        make_study(window_factors=(1e-320,) * 10),
        make_study(backend_options={"x": "\u65e5"}),
        make_study(efficiency={"ring": (1.0, 0.9)}, drift=(1.0,), noise=0.0),
    ],
    ids=["none", "rates without an end", "letters without a glyph", "limits at their point"],
)
@pytest.mark.filterwarnings("error")
def test_a_strange_study_has_a_page_and_figures(records, tmp_path):
    study = Study(records)
    findings = checked(study, load_all())
    printed(study, full=True, findings=findings)
    sections = list(sections_of(study, findings))
    page.write(
        tmp_path / "p.html", title=study.title, facts=page.facts_of(study), sections=sections, origin=""
    )
    assert study.errors == []


def test_a_number_without_an_end_is_written():
    frame = pd.DataFrame({"x": [float("inf"), -float("inf"), float("nan")]})
    assert Column(about="", label="x").texts(frame, "x") == ["inf", "-inf", ""]


def test_cautions_are_said_by_every_output():
    study = Study([make_record(block=b, num_ranks=n) for b in range(2) for n in (1, 2)])
    (text,) = [one for one in cautions.texts(study) if "Too few launches" in one]
    assert text in " ".join(printed(study).split())
    assert any(row["text"] == text for row in as_data(study, load_all())["cautions"])
    assert text in next(one for one in sections_of(study, load_all()) if one.name == "cautions").sentences


def test_left_out_files_and_failures_are_cautions():
    records = [make_record(block=b) for b in range(2)] + [make_record(num_ranks=2, failure="rank 1 died")]
    (text,) = [one for one in cautions.texts(Study(records)) if "failed" in one]
    assert text == "1 case failed. First failure: none on 2 ranks, block 0: hang on rank 1: rank 1 died."


@pytest.mark.parametrize(("num_stopped", "is_busy"), [(0, False), (1, False), (2, True)])
def test_launches_that_the_kernel_stopped_for_a_quota_claim_nothing(num_stopped, is_busy):
    whole, stopped = (NODE.model_copy(update={"throttled_after": after}) for after in (0, 9))
    records = [
        make_record(block=block, num_ranks=2).model_copy(
            update={"nodes": [stopped if block < num_stopped else whole]}
        )
        for block in range(12)
    ]
    study = Study(records)
    texts = [text for text in cautions.texts(study) if "The kernel stopped" in text]
    assert len(texts) == bool(num_stopped)
    assert cautions.is_busy(study) == is_busy
    assert all(text.endswith("so nothing is claimed.") == is_busy for text in texts)
    assert all(f"{num_stopped} of 12 launches, {9 * num_stopped} times in all" in text for text in texts)


def test_a_finding_that_raises_says_so_in_its_own_section_and_takes_no_other_down():
    def broken(_):
        raise ZeroDivisionError("planted <b>")

    planted = Finding(name="planted", title="Planted", compute=broken, columns={"x": Column("x")})
    study = Study(made_records(trainings=ONE))
    findings = checked(study, [planted, *load_all()])
    said = "Planted could not be computed: ZeroDivisionError: planted <b>"
    assert study.errors == [said]
    sections = {one.name: one for one in sections_of(study, findings)}
    assert sections["planted"].sentences == [said]
    assert {"scaling", "verdict"} <= {*sections}
    assert said in printed(study, findings=findings, width=200)


def test_json_is_strict_and_csv_holds_no_formula():
    study = Study(made_records(trainings=ONE))
    text = json.dumps(as_data(study, load_all()), allow_nan=False)
    assert json.loads(text)["schema"] == 2
    frame = pd.DataFrame({"name": ["=1+1", "ring", None, "-x"], "value": [-1.5, 2, 3, 4]})
    assert as_csv(frame).splitlines() == ["name,value", "'=1+1,-1.5", "ring,2.0", ",3.0", "'-x,4.0"]


def test_figures_are_files_of_a_training_each_and_equal_when_drawn_again(tmp_path):
    study = Study(made_records(trainings=ONE, ranks=(1, 2)), order=["ring"])
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("a", "b")
        if figures.write(study, load_all(), tmp_path / name, only=["efficiency"])
    )
    stem = "HEP-CNN-small-torch-weak-scaling-on-local-efficiency"
    assert sorted(first) == [f"{stem}.{ending}" for ending in ("csv", "pdf", "png", "svg")]
    assert first == second
    assert study.data_hash.encode() in first[f"{stem}.svg"]


def test_a_printed_figure_is_as_wide_as_asked_and_its_caption_begins_with_the_caution(tmp_path):
    study = Study(made_records(trainings=ONE, ranks=(1, 2)), order=["ring"])
    options = {"only": ["efficiency"], "width": 3.3, "warning": "The machine was busy & loud."}
    figures.write(study, load_all(), tmp_path, **options)
    (tex,) = tmp_path.glob("*.tex")
    text = tex.read_text()
    assert r"\caption{The machine was busy \& loud. HEP-CNN small, torch" in text
    assert r"\includegraphics[width=3.3in]" in text
    (svg,) = tmp_path.glob("*.svg")
    assert 'width="237.6pt"' in svg.read_text()
