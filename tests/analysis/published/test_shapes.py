"""What is said of a curve's shape, judged on planted studies of ours and on series that were measured here."""

import json

import pytest

from dlscale.analysis.published.catalogue import load_published
from dlscale.analysis.published.claims import Publication, load_publication
from dlscale.analysis.published.compare import check_figures
from dlscale.analysis.published.output import checks_json, render_checks
from dlscale.analysis.published.shapes import with_shapes
from dlscale.base.errors import UsageError
from tests.analysis.reading import printed

from .conftest import cori, known

SAID = "It scales well"
ENDS = {"check": "scaling_ends", "threshold": [0.5, 0.8], "ours": ["ring"]}
KEEPS = {"check": "quantity", "quantity": "efficiency", "low": 0.8, "ours": ["ring"]}
OVER = {"check": "ratio", "curves": ["a ring", "an mpi"], "low": 1.0, "high": 1.5}


def curve(name, backend):
    place = {"system": "cori", "workload": "hep_cnn", "scaling_mode": "weak", "sizes": [1]}
    return {"name": name, "backend": backend, "batch": known(8)} | place


@pytest.fixture
def judged(folder, catalogue):
    """The check of `small` with a claim of it, by what our backends keep on 1, 2, 4 and 8 nodes."""

    def check(claim, kept, **statement):
        mark = Publication(
            name="theirs",
            title="t",
            system_curves=[curve("a ring", "ring"), curve("an mpi", "mpi")],
            claims=[{"figure": "small", "statement": SAID, "reading": "a test"} | claim],
        )
        text = catalogue.partition("  [figures.small.series")[0]
        published = load_published(folder(statements=({"statement": SAID} | statement,), catalogue=text))
        studies = [cori(kept, nodes=(1, 2, 4, 8))]
        (found,) = with_shapes(check_figures(published, studies=studies), published, [mark], studies=studies)
        return found

    return check


@pytest.mark.parametrize(
    ("claim", "kept", "ours", "verdict"),
    [
        (ENDS | {"low": 4, "high": 4}, (1.0, 0.95, 0.9, 0.3), (4, 4, 4), "agrees"),
        (ENDS | {"low": 4, "high": 4}, (1.0, 0.3, 0.3, 0.3), (1, 1, 1), "disagrees"),
        # between the thresholds, and where it ends beyond our last node
        (ENDS | {"low": 4, "high": 4}, (1.0, 0.95, 0.6, 0.3), (2, 2, 4), "open"),
        (ENDS | {"low": 4, "high": 4}, (1.0, 0.95, 0.9, 0.85), (8, 8, float("inf")), "disagrees"),
        (ENDS | {"low": 8, "high": 16}, (1.0, 0.95, 0.9, 0.85), (8, 8, float("inf")), "open"),
        (KEEPS | {"at": (1, 8)}, (1.0, 0.95, 0.9, 0.85), (0.85, 0.85, 0.85), "agrees"),
        (KEEPS | {"at": (1, 8)}, (1.0, 0.7, 0.9, 0.85), (0.7, 0.7, 0.7), "disagrees"),
        (KEEPS | {"at": 8}, (1.0, 0.7, 0.9, 0.85), (0.85, 0.85, 0.85), "agrees"),
        (KEEPS | {"at": 8}, (1.0, 0.95, 0.9, 0.7), (0.7, 0.7, 0.7), "disagrees"),
        (KEEPS | {"at": 16}, (1.0, 0.95, 0.9, 0.7), (0.7, 0.7, 0.7), "open"),
    ],
)
def test_the_shape_of_our_curve_is_judged(judged, claim, kept, ours, verdict):
    check = judged(claim, {"none": (1.0,) * 4, "ring": kept})
    (shape,) = check.shapes
    assert shape.ours == pytest.approx(ours, rel=0.02)
    assert (shape.verdict, check.verdict, shape.up_to) == (verdict, verdict, 8)
    assert check.reasons == ()


@pytest.mark.parametrize(
    ("mpi", "verdict"),
    [
        ((0.9, 0.85, 0.8, 0.7), "agrees"),
        ((0.9, 0.97, 0.8, 0.7), "disagrees"),
        ((0.9, 0.95, 0.8, 0.7), "open"),
        ((1.2, 1.2, 1.2, 1.2), "disagrees"),
    ],
)
def test_one_curve_lies_above_another_wherever_both_ran(judged, mpi, verdict):
    kept = {"none": (1.0,) * 4, "ring": (1.0, 0.95, 0.9, 0.9), "mpi": mpi}
    (shape,) = judged(OVER | {"at": (1, 8)}, kept).shapes
    assert (shape.name, shape.verdict) == ("ring, torch over mpi, torch", verdict)
    assert shape.ours[0] < shape.ours[1] < shape.ours[2]
    if verdict == "agrees":  # the last of those that do
        assert shape.ours[1] == pytest.approx(0.9 / 0.7, rel=0.01)


def test_nothing_of_ours_tells_no_shape_and_says_so(judged):
    check = judged(ENDS | {"low": 4}, {"none": (1.0,) * 4, "mpi": (1.0, 0.9, 0.9, 0.9)})
    assert (check.shapes, check.verdict) == ((), "unknown")
    assert check.reasons == ("no record of ours on cori that tells the shape of its curves",)


def test_a_statement_that_is_a_number_is_compared_once(judged):
    number = {"low": "0.8", "unit": "1", "quantity": "efficiency", "x_low": "8", "x_high": "8"}
    check = judged(KEEPS | {"at": 8}, {"ring": (1.0,) * 4}, **number, x_unit="nodes")
    assert check.shapes == ()


def test_a_shape_is_told_in_words_and_in_json(judged):
    check = judged(ENDS | {"low": 4}, {"none": (1.0,) * 4, "ring": (1.0, 0.95, 0.9, 0.85)})
    said = " ".join(printed(render_checks([check]), width=200).split())
    assert "small agrees - 1/1 -" in said
    assert (
        "small, It scales well: scaling ends published from 4 nodes, ours 8 [8, open] up to 8 nodes "
        "(ring, torch, measured), agrees; read: a test"
    ) in said
    (row,) = checks_json([check])["rows"]
    assert (row["kind"], row["claim"], row["curve"]) == ("shape", SAID, "ring, torch")
    assert (row["ours"], row["ours_high"], row["published_low"], row["verdict"]) == (8, None, 4, "agrees")


ROW = {"evidence": "measured", "system": "here", "x": 2, "x_unit": "nodes", "quantity": "efficiency"}
ROW |= {"panel": "both", "y_unit": "1", "n": 6, "method": "t"}
PANEL = (
    '{ title = "both", layout = "efficiency", y_label = "kept", y_unit = "%", y_scale = "linear", '
    'reference = "two" }'
)


@pytest.fixture
def measured_here(folder, catalogue, tmp_path):
    """Published values with a panel of two series that were measured here: what each kept on 2 nodes, +- 0.02."""

    def write(first, second, **row):
        series = {"one": first, "other": second}
        rows = [
            {**ROW, "series": name, "y": y, "low": y - 0.02, "high": y + 0.02, **row}
            for name, y in series.items()
        ]
        path = tmp_path / "reference" / "series" / "two.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        study = {"study": "s-1", "system": "here", "command": "dlscale run s", "commit": "0" * 12}
        path.write_text(json.dumps({"title": "Two series", "studies": [study], "rows": rows}))
        text = catalogue.partition("  [figures.small.series")[0].replace(
            "panels = [", f"panels = [\n{PANEL},"
        )
        return folder(statements=({"statement": SAID},), catalogue=text)

    return write


PAIR = {"file": "two", "panel": "both", "quantity": "efficiency", "series": ["one", "other"]}


@pytest.mark.parametrize(
    ("first", "second", "verdict"), [(0.9, 0.8, "agrees"), (0.8, 0.9, "disagrees"), (0.9, 0.89, "open")]
)
def test_two_series_that_were_measured_here_are_in_the_claimed_order(measured_here, first, second, verdict):
    claim = {"check": "ratio", "at": 2, "low": 1.0, "reading": "a test", "reference": PAIR}
    mark = Publication(name="t", title="t", claims=[{"figure": "small", "statement": SAID, **claim}])
    published = load_published(measured_here(first, second))
    (check,) = with_shapes(check_figures(published), published, [mark])
    (shape,) = check.shapes
    assert (shape.verdict, shape.name, shape.evidence) == (verdict, "one over other", "measured")
    assert shape.ours[1] == pytest.approx(first / second)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"y_unit": "s"}, "efficiency in 's'; choose one of: 1, %"),
        ({"low": 0.99}, "is not between 0.99 and"),
        ({"panel": "other"}, "no row of two.json has panel 'both', quantity efficiency and x in 'nodes'"),
    ],
)
def test_a_damaged_series_is_one_line(measured_here, row, said):
    with pytest.raises(UsageError, match=said) as caught:
        load_published(measured_here(0.9, 0.8, **row))
    assert "\n" not in str(caught.value)


def test_claims_of_a_shape_name_what_is_there(measured_here, tmp_path):
    published = load_published(measured_here(0.9, 0.8))
    path = tmp_path / "theirs.toml"
    text = f'name = "t"\ntitle = "t"\n[[claims]]\nfigure = "small"\nstatement = "{SAID}"\nreading = "r"\n'
    pair = (
        'reference = {{ file = "two", panel = "both", quantity = "efficiency", series = ["one", "{0}"] }}\n'
    )
    for lines, said in (
        (
            f'check = "ratio"\nat = 2\nlow = 1\n{pair.format("third")}',
            "no 'one' and 'third', efficiency at 2",
        ),
        ('check = "scaling_ends"\nthreshold = [0.5, 0.8]\n', "check scaling_ends is of 1 curve"),
        (
            'check = "ratio"\nat = 2\nours = ["ring"]\n',
            "ours are backends for checks quantity and scaling_ends",
        ),
        ('check = "scaling_ends"\nthreshold = [0.5, 0.8]\nours = ["ring"]\nat = [1, 2]\n', "at is one size"),
    ):
        path.write_text(text + lines)
        with pytest.raises(UsageError, match=said):
            load_publication(path, published)
