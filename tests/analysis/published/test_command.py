"""The checking and drawing of published figures."""

import json

import pytest
from click.testing import CliRunner

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import figures
from dlscale.benchmarks.cli import published as command
from tests.made_records import write_study

from .conftest import cori_records

RATES = {"x": "1", "y": "100"}, {"x": "2", "y": "190"}, {"x": "4", "y": "360"}


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def study(results):
    """Write a study of ours on cori: backend -> what each rank keeps on 1, 2 and 4 nodes."""

    def write(efficiency, *, name="weak-scaling-1", system="cori", change=lambda text: text):
        records = cori_records(efficiency, system=system, study=name)
        for path in (write_study(results / system / name, records) / "records").iterdir():
            path.write_text(change(path.read_text()))

    return write


@pytest.fixture
def verify(results, capsys):
    """Check: (exit status, what it printed, what it complained)."""

    def run(folder, *names, **options):
        status = command.check_published(results, names=names, folder=folder, **options)
        said = capsys.readouterr()
        return status, " ".join(said.out.split()), said.err

    return run


@pytest.mark.parametrize(
    ("last", "status", "words"), [(0.9, 0, "1 of 1 figures agree"), (0.5, 2, "disagrees to 10 %")]
)
def test_the_status_says_whether_we_agree(folder, study, verify, last, status, words):
    study({"none": (1.0, 1.0, 1.0), "ring": (1.0, 0.95, last)})
    found, said, complaint = verify(folder(*RATES))
    assert (found, complaint) == (status, "")
    assert words in said
    rows = json.loads(verify(folder(*RATES), as_json=True)[1])["rows"]
    assert [(row["x"], row["study"]) for row in rows] == [(x, "weak-scaling-1") for x in (1, 2, 4)]
    assert {row["verdict"] for row in rows[:2]} == {"agrees"}


def test_nothing_compared_is_4_with_or_without_records(folder, study, verify, results):
    path = folder(*RATES)
    assert not results.exists()
    assert verify(path)[0] == 4
    study({"mpi": (1.0, 0.95, 0.5)})
    for status, said, _ in (verify(path, everything=True), verify(path, "small")):
        assert status == 4
        assert "no record of ours on cori (nodes: 1, 2, 4)" in said


def test_what_has_no_counterpart_is_counted_in_one_line(folder, study, verify, catalogue):
    texts = "".join(f'{name} = "None."\n' for name in ("title", "publication", "public", "workload"))
    path = folder(*RATES, catalogue=f"{catalogue}\n[figures.empty]\n{texts}tolerance = 0.1\npanels = []\n")
    _, said, _ = verify(path)
    assert said == (
        "0 of 2 figures agree, 0 disagree; in 2 nothing was compared. "
        "2 published figures have no counterpart here; add --all"
    )
    study({"none": (1.0, 1.0, 1.0), "ring": (1.0, 0.95, 0.9)})
    _, said, _ = verify(path)
    assert "small agrees" in said
    assert "empty" not in said
    assert said.endswith("1 published figure has no counterpart here; add --all")
    assert "empty unknown" in verify(path, everything=True)[1]
    rows = json.loads(verify(path, as_json=True)[1])["rows"]
    assert {row["figure"] for row in rows} == {"small", "empty"}
    assert [verify(path, *words)[0] for words in ([], ["small"], ["empty"])] == [4, 0, 4]


def test_studies_that_are_unsound_are_named_and_left_out(folder, study, verify):
    study({"none": (1.0, 1.0, 1.0), "ring": (1.0, 0.95, 0.9)}, name="good-1")
    study(
        {"ring": (1.0, 0.95, 0.5)},
        name="old-1",
        change=lambda text: text.replace('"schema_version":7', '"schema_version":3'),
    )
    prints = iter("ab" * 100)
    study(
        {"ring": (1.0, 0.95, 0.5)},
        name="mixed-1",
        change=lambda text: text.replace('"digest":"f', f'"digest":"{next(prints)}'),
    )
    status, _, complaint = verify(folder(*RATES))
    assert status == 0
    assert "old-1" in complaint
    assert "schema version 3" in complaint
    assert "left out: study mixed-1: records of cori" in complaint


def test_a_misspelt_figure_is_told_before_records_are_read(folder, verify):
    with pytest.raises(
        UsageError, match=r"no published figure 'smal' \(did you mean small\?\); choose one of: small"
    ):
        verify(folder(*RATES), "smal", on="nobody")


def test_drawing_puts_files_into_the_results_and_says_where(folder, study, results, capsys):
    study({"none": (1.0, 1.0, 1.0), "ring": (1.0, 0.95, 0.9)}, system="mine")
    status = command.draw_published(results, on="mine", folder=folder(*RATES))
    said = " ".join(capsys.readouterr().out.split())
    page = results / command.DRAWN / "index.html"
    assert (status, said) == (0, f"published figures: 1 in {page.parent} all at one glance: {page}")
    assert 'src="small.png"' in page.read_text()
    files = {path.suffix for path in (results / command.DRAWN).iterdir()}
    assert files >= {".png", ".pdf", ".svg", ".csv"}
    assert '"ring, torch on mine"' in (results / command.DRAWN / "small.csv").read_text()
    # What was drawn is no study.
    command.draw_published(results, on="mine", folder=folder(*RATES))


def test_several_published_figures_may_be_named(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        figures, "draw_published", lambda _, names, on, everything: asked.append((names, on, everything)) or 0
    )
    words = ["--published", "goyal-8", "powerai-ddl-2", "--results", str(tmp_path)]
    assert CliRunner().invoke(figures.figures, words, standalone_mode=False).return_value == 0
    assert asked == [(("goyal-8", "powerai-ddl-2"), None, False)]
    with pytest.raises(UsageError, match="figures of one study at a time, not of a, b"):
        CliRunner().invoke(figures.figures, ["a", "b"], standalone_mode=False, catch_exceptions=False)


def test_published_figures_without_a_study_of_ours_are_counted_and_drawn_on_demand(folder, results, capsys):
    path = folder(*RATES)
    assert command.draw_published(results, folder=path) == 4
    assert capsys.readouterr().out.splitlines() == [
        "no published figure with a study of ours or a prediction",
        "1 published figure has no counterpart here: dlscale figures --published --all",
    ]
    assert not list((results / command.DRAWN).glob("*.png"))
    assert command.draw_published(results, folder=path, everything=True) == 0
    assert command.draw_published(results, folder=path, names=["small"]) == 0
    assert capsys.readouterr().out.count("published figures: 1 in") == 2


def test_a_system_without_a_study_cannot_stand_in(folder, results, study):
    path = folder(*RATES)
    study({"ring": (1.0, 0.9, 0.8)})
    with pytest.raises(UsageError, match=r"--on nope: no study of it in .*; there are studies of: cori"):
        command.draw_published(results, on="nope", folder=path)
