"""A proposal's section: each sentence says what the numbers do, and no more; cautions come first."""

import csv
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dlscale.analysis import proposal
from dlscale.analysis.load import Study
from dlscale.analysis.text import escape_latex
from tests.analysis.made_predictions import predictions
from tests.made_records import make_record, make_study, rows_of, windows_of

SHARES = {"none": {1: 1.0, 2: 0.99}, "ring": {1: 0.98, 2: 0.95, 4: 0.9, 8: 0.6}}
NODES = {4: 2, 8: 4}
ONE = {"none": {1: 1.0}}
GOOD = {**ONE, "ring": {1: 0.99, 2: 0.95, 4: 0.9}}
STEM = "hep_cnn-tiny-torch-weak-fp32-ring"


def kept(shares, **fields):
    """Records of: backend -> {ranks: share of the ideal speed}."""
    return make_study(**{"efficiency": shares, "noise": 0.0} | fields)


def busy(records):
    """The records, measured while other programs took 67 % of the CPU."""
    changed = []
    for record in records:
        rows = [row._replace(foreign_cpu=0.67) for row in rows_of(record.windows)]
        changed.append(record.model_copy(update={"windows": windows_of(rows)}))
    return changed


def said_of(records, *, threshold=0.75, backends=(), predicted=(), **request):
    """What a proposal says of the only curve that it shows."""
    study = Study(records, predictions=predicted)
    rows = proposal.sizes(study, threshold=threshold, backends=backends)
    assert rows[proposal.CURVE].drop_duplicates().shape[0] == 1
    return proposal.facts(study, rows, threshold=threshold, **request)


def say(name, facts):
    return " ".join(proposal.lines(name, facts))


def ring(*shares):
    return {**ONE, "ring": dict(zip((1, 2, 4), shares, strict=True))}


# Numbers


def test_planted_efficiencies_give_their_speed_ups_doublings_and_node_hours():
    rows = proposal.sizes(Study(kept(SHARES, num_nodes=NODES)))
    assert rows["num_ranks"].tolist() == [1, 2, 4, 8]
    assert rows["efficiency"].tolist() == pytest.approx([0.98, 0.95, 0.9, 0.6])
    assert rows["speed_up"].tolist() == pytest.approx([0.98, 1.9, 3.6, 4.8])
    assert rows["speed_up_per_doubling"].tolist()[1:] == pytest.approx([1.9 / 0.98, 3.6 / 1.9, 4.8 / 3.6])
    # Drift of 20 % is common to a block: it is in the rates' intervals, and in no ratio's.
    last = rows.iloc[-1]
    assert last["samples_per_second_high"] / last["samples_per_second_low"] > 1.3
    assert last["speed_up_per_doubling_high"] - last["speed_up_per_doubling_low"] < 1e-9
    for end, other in (("", ""), ("_low", "_high"), ("_high", "_low")):
        hours = rows["num_nodes"] * 1e6 / rows[f"samples_per_second{other}"] / 3600
        assert rows[f"{proposal.COST}{end}"].tolist() == pytest.approx(hours.tolist())


def test_a_step_over_several_doublings_and_one_over_a_failed_size_are_per_doubling():
    died = [make_record(backend="ring", num_ranks=2, failure="died")]
    rows = proposal.sizes(Study(kept({"none": {1: 1.0}, "ring": {1: 1.0, 8: 0.512}}) + died))
    assert rows["num_ranks"].tolist() == [1, 2, 8]
    assert rows["speed_up_per_doubling"].iloc[2] == pytest.approx(1.6)  # 8 x 0.512 = 1.6^3
    assert rows["keeps_threshold"].iloc[1] == "unknown"


@given(st.floats(0.3, 0.95), st.floats(0.3, 0.95))
def test_a_stricter_threshold_never_makes_a_verdict_better(first, second):
    order = ["surely", "possibly", "not"]
    loose, strict = (
        proposal.sizes(STUDY, threshold=one)["keeps_threshold"] for one in sorted((first, second))
    )
    assert all(order.index(one) <= order.index(other) for one, other in zip(loose, strict, strict=True))


STUDY = Study(kept(ring(0.99, 0.8, 0.5), noise=0.02))


def test_the_fastest_backend_on_most_ranks_is_shown_and_the_others_named():
    study = Study(kept({**SHARES, "mpi": {1: 1, 2: 0.99, 4: 0.95}, "gloo": {1: 1, 2: 0.9, 4: 0.8, 8: 0.5}}))
    rows = proposal.sizes(study)
    assert set(rows["name"]) == {"ring"}
    assert set(rows["others"]) == {"mpi, gloo"} or set(rows["others"]) == {"gloo, mpi"}
    assert proposal.sizes(study, backends=["mpi", "gloo"])["name"].unique().tolist() == ["gloo", "mpi"]
    assert set(proposal.sizes(Study(kept({"none": {1: 1, 2: 0.99}})))["name"]) == {"none"}


def test_without_none_the_backends_own_1_rank_is_the_base():
    rows = proposal.sizes(Study(kept({"ring": {1: 0.5, 2: 0.4}})))
    assert set(rows["base_case"]) == {"backend"}
    assert rows["efficiency"].iloc[1] == pytest.approx(0.8)
    assert rows["base_rate"].iloc[1] == rows["samples_per_second"].iloc[0]


# Sentences


@pytest.mark.parametrize(
    ("shares", "options", "parts"),
    [
        (
            GOOD,
            {},
            [
                "On 4 ranks (1 node) the training runs at",
                "a scaled speed-up of 3.60 [3.60, 3.60] and a scaling efficiency of 90.0 % [90.0, 90.0]",
                "relative to 1 rank without communication, which alone does",
                "From 2 to 4 ranks each doubling multiplied the throughput by 1.89",
            ],
        ),
        (GOOD, {"global_batch": 32}, [": a speed-up of"]),
        (GOOD, {"num_blocks": 2}, ["(no interval)"]),
        (ONE, {}, ["nothing can be said about scaling"]),
        ({"ring": {2: 1.0, 4: 0.9}}, {}, ["There is no efficiency"]),
    ],
)
def test_the_result_states_what_is_known_and_relative_to_what(shares, options, parts):
    said = say("result", said_of(kept(shares, **options)))
    assert all(part in said for part in parts), said


@pytest.mark.parametrize(
    ("shares", "options", "threshold", "parts"),
    [
        (ring(1, 0.95, 0.9), {}, 0.75, ["at or above 75 % up to 4 ranks (1 node), at 95 % confidence"]),
        (ring(1, 0.95, 0.5), {}, 0.75, ["above 75 % up to 2 ranks", "below 75 % on 4 ranks (1 node): 50"]),
        (
            ring(1, 0.95, 0.75),
            {"noise": 0.02},
            0.75,
            ["above 75 % up to 2 ranks", "On 4 ranks (1 node) the interval", "more launches would decide"],
        ),
        (ring(1, 0.6, 0.5), {}, 0.75, ["No size above 1 rank has an efficiency of 75 %", "below 75 % on 2"]),
        (ring(1, 0.6, 0.9), {}, 0.75, ["at or above 75 % on 4 ranks", "find out why"]),
        (GOOD, {}, 0.925, ["stays at or above 92.5 % up to 2 ranks", "below 92.5 % on 4 ranks"]),
        (GOOD, {"num_blocks": 2}, 0.75, ["Insufficient data for a threshold of 75 %"]),
        ({"ring": {2: 1.0, 4: 0.9}}, {}, 0.75, ["Insufficient data"]),
    ],
)
def test_the_threshold_is_surely_possibly_or_not_kept(shares, options, threshold, parts):
    said = say("threshold", said_of(kept(shares, **options), threshold=threshold))
    assert all(part in said for part in parts), said
    assert ("would decide" in said) == any("would decide" in part for part in parts)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (
            {"num_nodes": {4: 2}},
            ["3 600 000 samples on 4 ranks (2 nodes) takes", "2 trainings take", "Whole nodes are counted"],
        ),
        ({"num_blocks": 2}, ["No node-hours are derived: no size has an efficiency of 75 % or more"]),
        ({"evidence": "emulated"}, ["No node-hours are derived from emulated numbers"]),
    ],
)
def test_node_hours_are_those_of_a_size_that_surely_keeps_the_threshold(options, parts):
    facts = said_of(kept(GOOD, **options), samples=3_600_000, runs=2)
    assert all(part in say("request", facts) for part in parts)
    if "num_nodes" in options:
        rate = facts["surely"]["samples_per_second"]
        assert facts["request"]["hours"].center == pytest.approx(1000 / rate)
        assert facts["request"]["total"].center == pytest.approx(4000 / rate)


@pytest.mark.parametrize(
    ("options", "begin"),
    [
        ({}, "All ranks ran on one node"),
        ({"num_nodes": {4: 2}}, ""),
        ({"evidence": "emulated", "num_nodes": {4: 2}}, "These numbers are emulated"),
        ({"evidence": "simulated", "num_nodes": {4: 2}}, "These numbers are simulated"),
    ],
)
def test_what_was_not_measured_on_nodes_is_said_before_the_numbers(options, begin):
    said = say("evidence", said_of(kept(GOOD, **options)))
    assert said.startswith(begin)
    assert bool(said) == bool(begin)


def test_what_the_numbers_do_not_say_is_listed():
    died = make_record(backend="ring", num_ranks=2, block=7, failure="x")
    said = say("limits", said_of([*kept({**GOOD, "mpi": {1: 1, 2: 0.5}}), died]))
    for part in (
        "preset tiny, not the published network",
        "Input was synthetic",
        "The batch grows with the ranks",
        "6/7 on 2 ranks (1 node)",
        "Also measured, and in the study's report: mpi",
    ):
        assert part in said
    records = kept(GOOD, preset="paper", data="events:0123456789ab", global_batch=32)
    assert proposal.lines("limits", said_of(records)) == []


# Files


def written(records, folder, *, predicted=(), **options):
    """Names of files, and both texts."""
    proposal.write(Study(records, predictions=predicted), folder, **{"threshold": 0.75, **options})
    texts = [(folder / f"proposal.{end}").read_text() for end in ("md", "tex")]
    return {path.name for path in folder.iterdir()}, *texts


def test_text_table_and_figures_are_there_and_refer_to_each_other(tmp_path):
    names, markdown, latex = written(
        kept({"none": {1: 1.0}, "ring": {1: 0.98, 2: 0.95, 4: 0.6}}), tmp_path, samples=10_000, runs=2
    )
    pictures = {
        f"{STEM}-{name}.{end}" for name in ("throughput", "efficiency") for end in ("png", "pdf", "svg")
    }
    assert names == {"proposal.md", "proposal.tex", f"{STEM}.csv", *pictures}
    assert {*re.findall(r"\]\((.*?)\)", markdown)} <= names
    assert {*re.findall(r"includegraphics\[.*?\]\{(.*?)\}", latex)} <= names
    assert "2 trainings take" in markdown
    assert "2 trainings take" in latex
    with Image.open(tmp_path / f"{STEM}-efficiency.png") as image:
        assert image.width == 700  # a column, at 200 dots per inch
    with (tmp_path / f"{STEM}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["speed_up"]) for row in rows] == pytest.approx([0.98, 1.9, 2.4])
    assert [row["keeps_threshold"] for row in rows] == ["surely", "surely", "not"]
    assert float(rows[2]["speed_up_per_doubling_low"]) == pytest.approx(2.4 / 1.9)
    assert {row["base_case"] for row in rows} == {"none"}


@pytest.mark.parametrize(
    ("records", "caution"),
    [
        (busy(kept(GOOD)), "The machine was busy: other programs took 67"),
        (kept(GOOD, num_blocks=2), "Too few launches to tell"),
        (kept(GOOD, evidence="emulated"), "All numbers are emulated, not measured"),
    ],
)
def test_cautions_are_the_first_line_and_in_every_caption(tmp_path, records, caution):
    _, markdown, latex = written(records, tmp_path, samples=10_000)
    assert markdown.splitlines()[2].startswith(f"**Do not hand in: {caution}")
    assert latex.splitlines()[3].startswith(rf"\textbf{{Do not hand in: {caution}")
    captions = re.findall(r"\\caption\{(.*)\}", latex)
    assert len(captions) == 3
    assert all(caution in text for text in captions)
    assert markdown.count(caution) == 1 + 1 + 2 * 2
    if "busy" in caution:
        assert "Nothing is said about a threshold" in markdown
        assert "No node-hours are derived: the machine was busy" in markdown


def test_a_sound_study_has_no_caution_first(tmp_path):
    _, markdown, _ = written(kept(GOOD), tmp_path)
    assert "Do not hand in" not in markdown


def test_predicted_sizes_have_a_table_of_their_own_marked_as_such(tmp_path):
    records = predictions(ranks=(2, 64), doubts=("far from calibration",))
    names, markdown, latex = written(kept(GOOD, local_batch=8), tmp_path, predicted=records, samples=10_000)
    assert f"{STEM}-predicted.csv" in names
    for text in (markdown, latex):
        assert "they are simulated, and no measurements" in text
        assert "Doubts: far from calibration" in text
        assert "Hollow markers are simulated" in text
    assert "on 4 ranks (1 node) takes" in markdown  # the largest measured size


def test_nothing_with_a_number_writes_nothing(tmp_path):
    assert proposal.write(Study([make_record(failure="died")]), tmp_path / "p", threshold=0.75) == []
    assert proposal.write(Study([]), tmp_path / "p", threshold=0.75) == []
    assert not (tmp_path / "p").exists()


def test_curves_with_equal_names_have_files_of_their_own_and_names_are_no_markup(tmp_path):
    evil = kept(GOOD, cores_per_rank=2, variables={"A": "<script>alert(1)</script>|x_y$"})
    names, markdown, latex = written(kept(GOOD) + evil, tmp_path)
    assert sum(name.endswith("efficiency.pdf") for name in names) == 2
    assert "<script>" not in markdown.replace("\\<", "")
    assert "<script>" not in latex
    opened = re.findall(r"\\(begin|end)\{(\w+)\}", latex)
    assert sum(1 if kind == "begin" else -1 for kind, _ in opened) == 0
    bare = re.sub(r"\\[{}]", "", latex)
    assert bare.count("{") == bare.count("}")


@given(st.text(max_size=200))
def test_no_text_is_a_command(text):
    known = r"\\(?:text(?:backslash|asciitilde|asciicircum|less|greater|bar)\{\}|[{}#$%&_,])"
    assert not set(re.sub(known, "", escape_latex(text))) & set("\\{}#$%&_~^<>|")
