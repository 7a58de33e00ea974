"""Figures for a printed page: `dlscale figures --for paper`."""

import csv
import re
from itertools import combinations

import click
import matplotlib
import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

from dlscale.analysis.figures import write
from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw as draw_figure
from dlscale.analysis.figures.layout import finish_printed
from dlscale.analysis.figures.write import write_figures
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.throughput import MAKERS
from dlscale.analysis.form import Caption, Form, figure_latex, parse_width
from dlscale.analysis.measured import measure
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.figures import figures
from tests.made_records import TARGET, in_detail, make_record, make_study, solved, write_study

COLUMN = Form(width=3.3, backends=("ring", "mpi"))


def printed(table, name, form=COLUMN):
    (family,) = table.families
    with drawing(form):
        declared = MAKERS[name](family, rows_of(scaling.FINDING.of(table), family), table.provenance, form)
        figure = draw_figure(declared, form)
        finish_printed(figure)
        figure.draw_without_rendering()
    return figure, declared.rows


@pytest.mark.parametrize("name", ["throughput", "efficiency"])
def test_text_has_8_pt_at_the_printed_width_and_axes_are_bare(name):
    figure, _ = printed(measure(make_study()), name)
    assert figure.get_figwidth() == 3.3
    assert {text.get_fontsize() for text in figure.findobj(Text) if text.get_text()} == {8}
    assert figure.texts == []  # no title, no small print
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["mpi", "ring", "ideal"]  # no "measured": there is no other kind


def test_panels_too_narrow_side_by_side_are_stacked_with_names_for_each():
    table = measure(make_study())
    narrow, _ = printed(table, "efficiency")
    (upper, lower) = narrow.axes
    assert upper.get_position().x0 == lower.get_position().x0
    assert [axes.get_ylabel() for axes in (upper, lower)] == ["scaling efficiency [%]"] * 2
    assert [axes.get_xlabel() for axes in (upper, lower)] == ["", "ranks, on 1 node"]
    (left, right) = printed(table, "efficiency", Form(width=7.0))[0].axes
    assert left.get_position().y0 == right.get_position().y0


@pytest.mark.usefixtures("no_pictures")
def test_only_what_was_asked_for_is_written_with_its_caption_beside_it(tmp_path):
    table = measure(make_study())
    paths = write_figures(table, tmp_path, form=COLUMN, only=["efficiency"])
    assert [path.suffix for path in paths] == [".png", ".pdf", ".svg", ".csv", ".tex"]
    with paths[3].open() as file:
        assert {row["backend"] for row in csv.DictReader(file)} == {"ring", "mpi"}
    text = paths[4].read_text()
    assert rf"\includegraphics[width=3.3in]{{{paths[1].name}}}" in text
    (study,), (commit,) = table.provenance.studies, table.provenance.commits
    comments = " ".join(line.removeprefix("% ") for line in text.splitlines() if line.startswith("%"))
    for words in (study, commit[:12], table.provenance.data_hash, "(T(p)/p) / (T(1)/1)"):
        assert words in comments


def test_a_warning_is_in_the_caption():
    warning = "made of assumptions"
    caption = Caption(title="A & B", warning=warning, brief="", subtitle="", small_print=["100 % of it"])
    text = figure_latex(caption, name="x", width=3.3, origin="o")
    assert rf"\caption{{{warning}. A \& B.}}" in text
    assert text.startswith("% o\n% 100 % of it\n")


@pytest.mark.parametrize(
    ("text", "inches"), [("3.3in", 3.3), ("8.382cm", 3.3), ("83.82 mm", 3.3), ("238.491pt", 3.3)]
)
def test_widths_have_units(text, inches):
    assert parse_width(text) == pytest.approx(inches)


@pytest.mark.parametrize("text", ["3.3", "3.3 km", "in", "-1in", "0.1in", "1e9in", "999999cm", ""])
def test_other_widths_are_errors(text):
    with pytest.raises(ValueError, match=r"width|wide"):
        parse_width(text)


@pytest.fixture
def results(tmp_path):
    write_study(tmp_path / "results/local/study-1", make_study(), launches=[])
    return tmp_path / "results"


def run(results, *words):
    return figures.main([*words, "--results", str(results)], standalone_mode=False)


@pytest.mark.usefixtures("no_pictures")
def test_the_verb_writes_printed_figures_into_a_folder_of_their_own(results, capsys):
    arguments = ("--for", "paper", "--width", "84mm", "--only", "efficiency", "--backends", "ring,mpi")
    assert run(results, *arguments) == 0
    folder = results / "local/study-1/figures/paper"
    assert capsys.readouterr().out == f"figures: 1 in {folder}\n"
    assert sorted(path.suffix for path in folder.iterdir()) == [".csv", ".pdf", ".png", ".svg", ".tex"]


def test_figures_that_the_records_do_not_give(results, capsys):
    assert run(results, "--only", "busbw") == 4
    assert "no numbers for what was asked for" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["--only", "efficency"],
            "no figure 'efficency' (did you mean efficiency?); choose one of: throughput",
        ),
        (
            ["--backends", "rings"],
            "no backend 'rings' (did you mean ring?); choose one of: none, mpi, gloo, ring",
        ),
        (["--backends", "nccl"], "no backend 'nccl' in study-1; choose from: none, gloo, mpi, ring"),
        (["--width", "3.3in"], "requires --for paper"),
        (["--published", "--for", "paper"], "drop --published"),
        (["--for", "paper", "--width", "3.3"], "write 3.3in, 8.4cm, 84mm or 240pt"),
    ],
)
def test_mistakes_are_one_line(results, words, error):
    with pytest.raises((UsageError, click.UsageError), match=re.escape(error)):
        run(results, *words)


BACKENDS = ("none", "ring", "mpi", "gloo", "nccl", "horovod", "tf_collective", "mpi_ps")
RANKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@pytest.fixture(scope="module")
def crowded():
    """Eight backends on twelve numbers of ranks."""
    kept = {
        name: {ranks: 1 - 0.01 * (place + 1) * step for step, ranks in enumerate(RANKS)}
        for place, name in enumerate(BACKENDS)
    }
    records = make_study(efficiency=kept, num_blocks=3, num_nodes={ranks: ranks for ranks in RANKS})
    return measure([in_detail(record) for record in records])


@pytest.mark.parametrize("width", [2.0, 3.3, 7.0])
def test_no_printed_figure_is_higher_than_a_page_and_no_words_run_into_each_other(
    crowded, tmp_path, monkeypatch, width
):
    figures = {}
    monkeypatch.setattr(
        write, "save_pictures", lambda figure, stem, **_: figures.setdefault(stem.name, figure) and []
    )
    write_figures(
        crowded, tmp_path, form=Form(width=width), only=("start-up", "waterfall", "heatmap", "efficiency")
    )
    assert {"start-up-torch", "start-up-torch-2"} <= {*figures} or width > 2
    panels = [
        axes.get_title("left")
        for name, figure in figures.items()
        if "start-up" in name
        for axes in figure.axes
    ]
    assert sorted(panels) == sorted(BACKENDS)
    for figure in figures.values():
        assert figure.get_figheight() <= 7.51
        figure.draw_without_rendering()
        assert {text.get_fontsize() for text in figure.findobj(Text) if text.get_text()} == {8}
        right, top = figure.get_size_inches() * figure.dpi
        for axes in figure.axes:
            for words in (axes.get_xticklabels(), axes.get_yticklabels(), axes.texts):
                boxes = [text.get_window_extent() for text in words if text.get_text() and text.get_visible()]
                assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        legends = [text.get_window_extent() for legend in figure.legends for text in legend.get_texts()]
        assert all(box.x1 <= right and box.y1 <= top + 1 for box in legends)


@pytest.fixture(scope="module")
def trained():
    """Trainings to a target over three backends, in strong scaling."""
    records = []
    for backend, num_ranks in (("none", 1), ("ring", 2), ("gloo", 2), ("ring", 4), ("gloo", 4)):
        for block in range(6):
            record = make_record(
                target=TARGET | {"evaluate_every": 240},
                backend=backend,
                num_ranks=num_ranks,
                block=block,
                scaling_mode="strong",
                local_batch=32 // num_ranks,
            )
            last = {"step": 100, "samples": 3200, "seconds": 80.0 / num_ranks, "auc": 0.95}
            records.append(solved(record, {**last, "step": 50, "samples": 1600, "auc": 0.8}, last))
    return measure(records)


PAGE_INCHES = 9.0
ROMAN = FontProperties(fname=f"{matplotlib.get_data_path()}/fonts/ttf/cmr10.ttf", size=10)


def lines_of(caption, inches):
    """How many lines of 10 pt Computer Modern LaTeX would break a caption into."""
    lines, room = 1, 0.0
    for word in f"Figure 10: {caption}".replace("\\,", " ").replace("\\", "").split():
        width = text_to_path.get_text_width_height_descent(f"{word} ", ROMAN, ismath=False)[0]
        lines, room = (lines, room + width) if room + width <= 72 * inches else (lines + 1, width)
    return lines


@pytest.mark.parametrize("name", ["crowded", "trained"])
def test_every_figure_fits_a_column_under_a_caption_of_three_lines(request, tmp_path, monkeypatch, name):
    heights = {}
    monkeypatch.setattr(
        write,
        "save_pictures",
        lambda figure, stem, **_: heights.setdefault(stem.name, figure.get_figheight()) and [],
    )
    write_figures(request.getfixturevalue(name), tmp_path, form=COLUMN)
    captions = {
        path.stem: re.search(r"\\caption\{(.*)\}$", path.read_text(), re.MULTILINE)[1]
        for path in tmp_path.glob("*.tex")
    }
    assert heights.keys() == captions.keys()
    assert len(heights) > 5
    assert {figure: height for figure, height in heights.items() if height > PAGE_INCHES - 1} == {}
    assert {figure: text for figure, text in captions.items() if lines_of(text, COLUMN.width) > 3} == {}
