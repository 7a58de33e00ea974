"""Extra-P beside the law and ours: what the page says of them, and its fits where it is installed."""

from dataclasses import replace
from pathlib import Path

import pytest

from dlscale.analysis.published.catalogue import load_published
from dlscale.analysis.published.claim_verdicts import points
from dlscale.analysis.published.claims import x_of
from dlscale.base.errors import UsageError
from tests.validation import extra_p, page
from tests.validation.law import law_fit
from tests.validation.published_curves import published_curves

PAGE = Path(__file__).parents[2] / "docs" / "prediction-validation.md"
PINS = Path(__file__).parents[2] / "constraints-extra-p.txt"


def part_of_page():
    return PAGE.read_text(encoding="utf-8").partition(page.EXTRA_P_BEGIN)[2].partition(page.EXTRA_P_END)[0]


def test_the_page_has_todays_answers_of_ours_and_the_law():
    """Also where Extra-P, whose own column needs it, is not installed."""
    published = load_published()
    rows = [line.split(" | ") for line in part_of_page().splitlines() if " | " in line][2:]
    expected = []
    for entry in published_curves(published):
        base = x_of(published.figure(entry.figure), entry.curve, entry.curve.base)
        series = entry.curve.figures[entry.figure]
        if fit := law_fit(points(published, entry.figure, series, base=base), base):
            numbers = (fit.point.efficiency, entry.rows[-1].predicted.median, fit.predicted)
            expected.append([entry.title, f"{fit.point.x:g}", *(f"{value:.3f}" for value in numbers)])
    assert [[cell.strip("| ") for cell in row[:5]] for row in rows] == expected, (
        "run make validate-prediction"
    )


@pytest.mark.requires("extrap")
def test_the_page_is_what_extra_p_answers():
    assert "\n".join(extra_p.rival_lines(extra_p.rivals(load_published()))).strip() == part_of_page().strip()


@pytest.mark.requires("extrap")
def test_a_planted_model_is_found():
    function = extra_p.model_of({p: 2 + 0.5 * p**0.5 for p in (1, 4, 16, 64, 256)})
    assert function.evaluate(1024) == pytest.approx(2 + 0.5 * 32, rel=0.01)


def test_the_nearest_answer_is_named_and_counted():
    one = extra_p.Rivals(
        title="a curve", size=64, published=0.9, ours=0.88, law=0.95, extra_p=0.8, extra_p_of_five=0.9
    )
    assert (one.nearest, replace(one, extra_p=0.9).nearest) == ("ours", "Extra-P")
    verdict, _, _, _, row, _ = extra_p.rival_lines([one])
    assert verdict.startswith(
        "ours: nearest for 1 of 1 curves, 2.0 points off in the mean; law: nearest for 0"
    )
    assert row == "| a curve | 64 | 0.900 | 0.880 | 0.950 | 0.800 | ours | 0.900 |"


def test_without_extra_p_the_table_stays_and_one_line_says_why(monkeypatch, tmp_path, capsys):
    marks = (page.BEGIN, page.END, page.EXTRA_P_BEGIN, "old", page.EXTRA_P_END)
    written = tmp_path / "page.md"
    written.write_text("\n".join(marks))
    monkeypatch.setattr(extra_p, "PACKAGE", "none_such_package")
    monkeypatch.setattr(page, "validation_lines", lambda: ["new"])
    monkeypatch.setattr("sys.argv", ["page", str(written)])
    page.main()
    (said,) = capsys.readouterr().err.splitlines()
    assert "stays as it is: Extra-P cannot be used (No module named 'none_such_package')" in said
    assert said.endswith("pip install --no-deps -r constraints-extra-p.txt")
    assert ("old" in written.read_text(), "new" in written.read_text()) == (True, True)
    with pytest.raises(UsageError):
        extra_p.model_of({1: 1.0})
    assert "extrap==" in PINS.read_text()
