"""Figures: which are drawn, what is in them, their files and the page, and the commands."""

import csv
import json
import re

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from dlscale.analysis.published import catalogue as values
from dlscale.analysis.published import figures as drawing
from dlscale.analysis.published.catalogue import FOLDER
from dlscale.analysis.published.page import index_page
from dlscale.analysis.published.predictions import COLUMNS
from dlscale.analysis.published.verdicts import load_publication, verdicts
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.figures import figures
from dlscale.benchmarks.cli.published import DRAWN
from tests.made_records import write_study

from .conftest import cori, cori_records

RATES = {"x": "1", "y": "100"}, {"x": "2", "y": "190"}, {"x": "4", "y": "360"}
NOTHING = pd.DataFrame(columns=list(COLUMNS))
WORDS = {"cug18-convergence", "mpi-learn-cooley", "nysds17-imagenet", "nysds17-flowers", "distbelief-3"}


def panels(published, name, studies=(), predicted=NOTHING):
    return drawing.panels_of(published, published.figure(name), predicted, studies)


def xy(rows, series):
    return rows.loc[rows["series"] == series, ["x", "y"]].to_numpy().tolist()


def test_a_table_is_drawn_as_it_was_printed(published):
    (_, speed_up), (_, efficiency), (here, measured) = panels(published, "powerai-ddl-2")
    assert xy(speed_up, "Caffe")[2:] == [[16, 3.9], [32, 7.9], [64, 15.5], [128, 30.5], [256, 60.6]]
    assert efficiency["y"].tolist() == pytest.approx([100, 100, 98, 99, 97, 95, 95])
    assert (here.reference, set(measured["evidence"])) == ("overlap", {"emulated"})
    (_, rates), _ = panels(published, "cosmogan-edison")
    assert rates[["y", "low", "high"]].iloc[0].tolist() == pytest.approx([0.819, 0.816, 0.822])
    times = panels(published, "imagenet-records")[0][1]
    assert times.loc[times["series"] == "Smith et al.", "x"].isna().all()


def test_what_is_only_words_is_not_drawn(published):
    shown = {name for name in published.figures if panels(published, name)}
    assert not shown & WORDS
    assert {"powerai-ddl-3", "tf-cnn-p100", "goyal-table-1", "mpi-learn-8", "nysds17-cifar-10"} <= shown
    assert "goyal-8" not in shown  # one value is public; its prediction makes it a figure


def test_predictions_and_ours_join_by_marks_and_never_by_a_line(published):
    kept = {"none": (0.25, 0.25), "ring": (0.245, 0.24)}
    fields = {"framework": "tensorflow", "local_batch": 128}
    ours = [cori(kept, nodes=(1, 4), **fields), cori(kept, nodes=(1, 64), evidence="simulated", **fields)]
    (panel, rows), _ = panels(published, "cug18-weak-hep-cnn-cori", ours)
    assert set(rows["evidence"]) == {"published", "measured", "simulated"}
    looks = drawing._looks(rows)
    assert len(set(looks.values())) == len(looks)
    _, axes = plt.subplots()
    drawing._draw_curves(axes, published.figure("cug18-weak-hep-cnn-cori"), panel, rows, looks)
    marks = [mark for _, mark, _ in looks.values()]
    assert {line.get_linestyle() for line in axes.lines if line.get_marker() in marks} == {"None"}
    plt.close("all")


@pytest.mark.parametrize("paper", [None, 3.3])
def test_nothing_is_cut_off_or_without_a_unit(published, paper):
    mark = {
        "figure": "goyal-8",
        "series": "ResNet-50",
        "backend": "gloo",
        "publication": "goyal",
        "assumed": "",
    }
    points = [mark | {"panel": 1, "x": x, "low": 0.8, "y": 0.9, "high": 1.0} for x in (8, 352)]
    predicted = pd.DataFrame(points).reindex(columns=list(COLUMNS))
    drawing.theme.use()
    for name, figure in published.figures.items():
        if shown := panels(published, name, predicted=predicted):
            picture = drawing.draw(figure, shown, paper=paper)
            picture.draw_without_rendering()
            shown_texts = [text for axes in picture.axes if axes.get_visible() for text in axes.texts]
            for part in () if paper else (*picture.texts, *picture.legends, *picture.axes, *shown_texts):
                box = part.get_window_extent()
                assert box.x0 >= -0.5, (name, part)
                assert box.x1 <= picture.bbox.x1 + 0.5, (name, part)
                assert 0 <= box.y0 < box.y1 <= picture.bbox.y1, (name, part)
            titles = [axes.get_ylabel() or axes.get_xlabel() for axes in picture.axes if axes.get_visible()]
            assert titles == [f"{panel.y_label} [{panel.y_unit}]" for panel, _ in shown]
            plot = sum(axes.bbox.width * axes.bbox.height for axes in picture.axes if axes.get_visible())
            assert plot / (picture.bbox.width * picture.bbox.height) > (0.35 if paper else 0.45), name
            plt.close(picture)


def test_the_page_needs_no_network_and_escapes_what_it_shows(published):
    mark = load_publication(FOLDER / "claims" / "goyal.toml", published)
    rows = verdicts(published, [mark])
    page = index_page(
        published, rows.assign(claim=rows["claim"].replace("ResNet-50", "<b>&")), {"goyal-8"}, {}
    )
    assert '<b class="disagrees">disagrees 1</b>' in page
    assert "goyal-8.svg" in page
    assert "goyal-7.svg" not in page
    assert "&lt;b&gt;&amp;" in page
    assert "The speed-up is 30 on 60 GPUs" in page
    for remote in ("http://", "https://", "<script", "<b>&"):
        assert remote not in page


# --- Commands


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def study(results):
    """Write a study of ours on cori: backend -> what each rank keeps on 1, 2 and 4 nodes."""

    def write(efficiency, *, name="weak-scaling-1", system="cori", change=lambda text: text):
        records = cori_records(efficiency, system=system, study=name)
        for path in (write_study(results / system / name, records, planned=True) / "records").iterdir():
            path.write_text(change(path.read_text()))

    return write


@pytest.fixture
def published_figures(results, capsys, monkeypatch):
    """Run the verb on a folder of published values: (exit status, what it printed, what it complained)."""

    def run(folder, *words):
        monkeypatch.setattr(values, "FOLDER", folder)
        monkeypatch.setenv("COLUMNS", "200")
        words = ["--published", *words, "--results", str(results)]
        status = figures.main(words, standalone_mode=False)
        said = capsys.readouterr()
        return status, " ".join(said.out.split()), said.err

    return run


GOOD = {"none": (1.0, 1.0, 1.0), "ring": (1.0, 0.95, 0.9)}


def test_what_has_no_counterpart_is_4_and_counted_in_one_line(folder, study, published_figures, catalogue):
    texts = "".join(f'{name} = "None."\n' for name in ("title", "publication", "public", "workload"))
    empty = f"{catalogue}\n[figures.empty]\n{texts}tolerance = 0.1\npanels = []\n"
    path = folder(*RATES, catalogue=empty)
    status, said, _ = published_figures(path, "--check")
    assert status == 4
    assert said.endswith(
        "0 of 2 figures agree, 0 disagree; in 2 nothing was compared. "
        "2 published figures have no counterpart here"
    )
    study(GOOD)
    assert published_figures(path, "--check")[1].endswith("1 published figure has no counterpart here")
    assert "empty unknown" in published_figures(path, "--check", "empty")[1]
    assert [published_figures(path, "--check", *words)[0] for words in ([], ["small"], ["empty"])] == [
        4,
        0,
        4,
    ]
    with pytest.raises(UsageError, match=r"no published figure 'smal' \(did you mean small\?\)"):
        published_figures(path, "--check", "smal", "--on", "nobody")


@pytest.mark.parametrize(("last", "status"), [(0.9, 0), (0.5, 2)])
def test_the_status_says_whether_we_agree_and_studies_that_are_unsound_are_left_out(
    folder, study, published_figures, last, status
):
    study(GOOD | {"ring": (1.0, 0.95, last)})
    study(GOOD, name="old-1", change=lambda text: re.sub(r'(?<="schema_version":)\d', "3", text))
    found, said, complaint = published_figures(folder(*RATES), "--check", "--json")
    assert found == status
    assert [row["x"] for row in json.loads(said)["rows"]] == [1, 2, 4]
    assert "old-1" in complaint
    assert "schema version 3" in complaint


def test_drawing_puts_files_into_the_results_and_says_where(folder, study, results, published_figures):
    path = folder(*RATES)
    status, said, _ = published_figures(path)
    assert (status, said) == (
        4,
        "not drawn: 1 published figures, which show no study of ours, nor a prediction",
    )
    assert published_figures(path, "small", "--for", "paper")[0] == 0
    study(GOOD, system="mine")
    status, said, _ = published_figures(path, "--on", "mine")
    page = results / DRAWN / "index.html"
    assert (status, said) == (0, f"published figures: 1 in {page.parent} all at one glance: {page}")
    assert 'src="small.svg"' in page.read_text()
    with (page.parent / "small.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {row["evidence"] for row in rows} == {"published", "measured"}
    sources = {row["source"].partition(";")[0] for row in rows}
    assert sources == {"Somebody, 2020, table 1", "study weak-scaling-1"}
    assert "ring, torch on mine" in {row["series"] for row in rows}
    with pytest.raises(UsageError, match=r"no system with a study in .* 'nope'; choose one of: mine"):
        published_figures(path, "--on", "nope")
