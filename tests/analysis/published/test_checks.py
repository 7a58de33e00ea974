"""What a check says: of agreement, of disagreement, of a curve's shape, and of what cannot be compared."""

import io
import json
import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dlscale.analysis.findings import scaling
from dlscale.analysis.load import Study
from dlscale.analysis.published.catalogue import Own, Panel, Place, Published, Same, load_published
from dlscale.analysis.published.checks import check, compared, own_points, relations
from dlscale.analysis.published.claims import Publication
from dlscale.analysis.published.page import checks_screen, verdict_of_figures
from dlscale.analysis.published.values import frame_of
from tests.made_records import make_record

from .conftest import cori, known, made_figure, value

RATES = {"x": "1", "y": "100"}, {"x": "2", "y": "190"}, {"x": "4", "y": "360"}
GOOD = {"none": (1.0, 1.0, 1.0), "ring": (1.0, 0.95, 0.9)}


def checked(folder, studies, publications=(), **options):
    """The rows of a check of `small`, its verdict, reasons and the screen."""
    rows, reasons = check(load_published(folder), publications, studies=studies, **options)
    console = Console(file=io.StringIO(), width=300)
    console.print(checks_screen(rows, reasons, everything=True))
    screen = " ".join(console.file.getvalue().split())
    return rows, verdict_of_figures(rows)["small"], reasons["small"], screen


@pytest.mark.parametrize(
    ("kept", "verdicts", "words"),
    [
        ((1.0, 0.95, 0.9), ["agrees"] * 3, "1 of 1 figures agree, 0 disagree; in 0 nothing was compared"),
        ((1.0, 0.95, 0.7), ["agrees", "agrees", "disagrees"], "at 4 nodes 360"),
    ],
)
def test_a_study_agrees_where_it_repeats_a_publication(folder, kept, verdicts, words):
    rows, verdict, _, screen = checked(folder(*RATES), [cori({"none": (1.0, 1.0, 1.0), "ring": kept})])
    assert rows["x"].tolist() == [1, 2, 4]
    assert rows["verdict"].tolist() == verdicts
    assert rows["ratio"].iloc[-1] == pytest.approx(kept[-1] / 0.9, rel=0.01)
    assert set(rows["curve"]) == {"ring, torch"}
    assert verdict == verdicts[-1]
    assert words in screen


@pytest.mark.parametrize(
    ("backend", "fields"),
    [
        ("mpi", {}),
        ("ring", {"framework": "tensorflow"}),
        ("ring", {"preset": "tiny"}),
        ("ring", {"system": "mine"}),
        ("ring", {"nodes": (8, 16, 32)}),
    ],
)
def test_another_setting_is_unknown_and_never_a_pass(folder, backend, fields):
    rows, verdict, reasons, _ = checked(folder(*RATES), [cori({backend: (1.0, 0.95, 0.9)}, **fields)])
    assert (rows["kind"].tolist(), verdict) == (["unknown"], "unknown")
    assert reasons == ["no record of ours on cori (nodes: 1, 2, 4)"] == rows["reasons"].iloc[0]


def test_a_system_may_stand_in_and_a_series_may_be_none_of_our_settings(folder, catalogue):
    studies = [cori({"ring": (1.0, 0.95, 0.9)}, system="mine")]
    assert checked(folder(*RATES), studies, stand_in="mine")[1] == "agrees"
    assert checked(folder(*RATES), studies, stand_in="yours")[2] == [
        "no record of ours on yours (nodes: 1, 2, 4)"
    ]
    path = folder(*RATES, catalogue=catalogue.replace('own = { backend = "ring" }', 'label = "Theirs"'))
    assert checked(path, [cori(GOOD)])[2] == ["not one of our settings: Theirs"]


def test_a_contradiction_among_published_values_is_no_pass(folder):
    wrong = {"x": "4", "y": "60", "y_unit": "%", "quantity": "efficiency"}
    rows, verdict, _, screen = checked(folder(*RATES, wrong), [cori(GOOD)])
    assert rows.loc[rows["kind"] == "derived consistency", "verdict"].tolist() == ["not within rounding"]
    assert verdict == "disagrees"
    assert "by T(x) b / (T(b) x)" in screen


def test_statements_with_a_number_and_a_place_are_compared(folder):
    quantity = {"series": "theirs", "unit": "1", "quantity": "efficiency"}
    place = {"x_low": "4", "x_high": "4", "x_unit": "nodes", **quantity}
    statements = (
        {"statement": "Between 80 and 95 % on 4 nodes", "low": "0.8", "high": "0.95", **place},
        {"statement": "Over 95 % on 4 nodes", "low": "0.95", **place},
        {"statement": "At most half on 4 nodes", "high": "0.5", **place},
        {"statement": "Good", "series": "theirs"},
        {"statement": "Over 99 % everywhere", "low": "0.99", **quantity},
    )
    rows, *_ = checked(folder({"x": "1", "y": "100"}, statements=statements), [cori(GOOD)])
    rows = rows[rows["quantity"] == "efficiency"]
    assert rows["verdict"].tolist() == ["agrees", "agrees", "disagrees"]
    assert [round(ratio, 2) for ratio in rows["ratio"]] == [1.0, 0.95, 1.8]


@given(st.floats(1e-3, 1e3), st.floats(1, 9), st.floats(1e-3, 1e3), st.floats(0.01, 0.5))
def test_the_ratio_is_1_inside_what_is_published_and_without_an_interval_nothing_is_open(
    low, wide, y, tolerance
):
    row = {"name": "n", "low": math.nan, "y": y, "high": math.nan, "published_low": low}
    found = compared(pd.DataFrame([row | {"published_high": low * wide}]), tolerance).iloc[0]
    assert (found["ratio"] == 1) == (low <= y <= low * wide)
    assert found["verdict"] in ("agrees", "disagrees")


# --- Which cells of ours join a figure, and with which values


def figure(**fields):
    return made_figure(panels=(), x_label="nodes", x_unit="nodes", **fields)


def points(quantity, study, own=None, **fields):
    own = own or Own(workload="hep_cnn", system="cori")
    return own_points(figure(own=own, **fields), own, quantity, [study])


@pytest.mark.parametrize(
    ("data", "kept"),
    [("synthetic", [1, 0, 0]), ("real", [0, 1, 1]), ("cifar-10-*", [0, 1, 0]), (None, [1, 1, 1])],
)
def test_a_cell_must_be_all_that_is_asked_for(data, kept):
    cells = {"data": ["synthetic", "CIFAR-10-bin:0123", "flowers:4567"], "num_ranks": 8, "num_nodes": 4}
    cells = pd.DataFrame(cells | {"backend": "ring", "local_batch": 8})
    wanted = {"data": data, "backend": "ring", "local_batch": 8, "ranks_per_node": 2}
    assert Own(**wanted).accepts(cells).tolist() == [bool(it) for it in kept]
    for other in ({"backend": "mpi"}, {"local_batch": 3}, {"ranks_per_node": 1}):
        assert not Own(**wanted | other).accepts(cells).any()


def test_points_are_the_table_s_numbers():
    study = cori({"none": (1.0, 0.98, 0.97), "ring": (0.99, 0.95, 0.9)})
    rates = points("throughput", study, Own(workload="hep_cnn", system="cori", ranks_per_node=1))
    # Without communication on several ranks is no distributed training.
    assert [*zip(rates["backend"], rates["x"], strict=True)] == [
        ("none", 1),
        *(("ring", x) for x in (1, 2, 4)),
    ]
    table = scaling.FINDING.of(study).set_index("cell").loc[rates["cell"]]
    assert rates["y"].tolist() == table["samples_per_second"].tolist()
    assert points("efficiency", study)["y"].tolist() == table["efficiency_none"].tolist()
    assert points("speed_up", study)["y"].tolist() == pytest.approx(
        (table["efficiency_none"] * rates["x"].to_numpy()).tolist()
    )


def test_ratios_begin_where_the_publication_s_do_and_may_be_over_another_backend():
    found = points("speed_up", cori({"ring": (0.9, 0.9, 0.45)}), base_x=2)
    assert found[["x", "y"]].round(1).to_numpy().tolist() == [[1, 0.5], [2, 1.0], [4, 1.0]]
    assert points("speed_up", cori({"ring": (0.9, 0.9, 0.45)}), base_x=3).empty
    study = cori({"ring": (0.9, 0.9), "grpc_ps": (0.6, 0.45)}, nodes=(1, 2))
    found = points("relative_throughput", study, relative_to="grpc_ps")
    assert (found["backend"].tolist(), [round(y, 1) for y in found["y"]]) == (["ring", "ring"], [1.5, 2.0])
    assert points("relative_throughput", study, relative_to="gloo").empty


def test_a_failed_cell_and_no_record_have_no_point():
    failed = make_record(system="cori", failure="hung", backend="ring", num_ranks=2)
    assert points("throughput", Study([failed]), Own(system="cori")).empty
    assert points("throughput", Study([]), Own(system="cori")).empty


# --- Shapes

SAID = "It scales well"
ENDS = {"check": "scaling_ends", "threshold": [0.5, 0.8], "ours": ["ring"]}
KEEPS = {"check": "quantity", "quantity": "efficiency", "low": 0.8, "ours": ["ring"]}
OVER = {"check": "ratio", "curves": ["a ring", "an mpi"], "low": 1.0, "high": 1.5, "at": (1, 8)}


def curve(name, backend):
    place = {"system": "cori", "workload": "hep_cnn", "scaling_mode": "weak", "sizes": [1]}
    return {"name": name, "backend": backend, "batch": known(8)} | place


@pytest.fixture
def shaped(folder, catalogue):
    """The check of `small` with a claim of it, by what our backends keep on 1, 2, 4 and 8 nodes."""

    def judge(claim, kept, **statement):
        mark = Publication(
            name="theirs",
            title="t",
            system_curves=[curve("a ring", "ring"), curve("an mpi", "mpi")],
            claims=[{"figure": "small", "statement": SAID, "reading": "a test"} | claim],
        )
        text = catalogue.partition("  [figures.small.series")[0]
        path = folder(statements=({"statement": SAID} | statement,), catalogue=text)
        return checked(path, [cori(kept, nodes=(1, 2, 4, 8))], [mark])

    return judge


@pytest.mark.parametrize(
    ("claim", "kept", "ours", "verdict"),
    [
        (ENDS | {"low": 4, "high": 4}, (1.0, 0.95, 0.9, 0.3), (4, 4, 4), "agrees"),
        (ENDS | {"low": 4, "high": 4}, (1.0, 0.3, 0.3, 0.3), (1, 1, 1), "disagrees"),
        # between the thresholds, and where it ends beyond our last node
        (ENDS | {"low": 4, "high": 4}, (1.0, 0.95, 0.6, 0.3), (2, 2, 4), "open"),
        (ENDS | {"low": 8, "high": 16}, (1.0, 0.95, 0.9, 0.85), (8, 8, float("inf")), "open"),
        (KEEPS | {"at": (1, 8)}, (1.0, 0.95, 0.9, 0.85), (0.85, 0.85, 0.85), "agrees"),
        (KEEPS | {"at": (1, 8)}, (1.0, 0.7, 0.9, 0.85), (0.7, 0.7, 0.7), "disagrees"),
        (KEEPS | {"at": 8}, (1.0, 0.7, 0.9, 0.85), (0.85, 0.85, 0.85), "agrees"),
        (KEEPS | {"at": 16}, (1.0, 0.95, 0.9, 0.7), (0.7, 0.7, 0.7), "open"),
    ],
)
def test_the_shape_of_our_curve_is_judged(shaped, claim, kept, ours, verdict):
    rows, of_figure, reasons, screen = shaped(claim, {"none": (1.0,) * 4, "ring": kept})
    (row,) = rows.to_dict("records")
    assert [row[name] for name in ("ours_low", "ours", "ours_high")] == pytest.approx(ours, rel=0.02)
    assert (row["kind"], row["verdict"], of_figure, row["up_to"]) == ("shape", verdict, verdict, 8)
    assert (row["claim"], row["curve"], reasons) == (SAID, "ring, torch", [])
    assert "up to 8 nodes (ring, torch, measured)" in screen


@pytest.mark.parametrize(
    ("mpi", "verdict"),
    [
        ((0.9, 0.85, 0.8, 0.7), "agrees"),
        ((0.9, 0.97, 0.8, 0.7), "disagrees"),
        ((0.9, 0.95, 0.8, 0.7), "open"),
    ],
)
def test_one_curve_lies_above_another_wherever_both_ran(shaped, mpi, verdict):
    rows, *_ = shaped(OVER, {"none": (1.0,) * 4, "ring": (1.0, 0.95, 0.9, 0.9), "mpi": mpi})
    (row,) = rows.to_dict("records")
    assert (row["curve"], row["verdict"]) == ("ring, torch over mpi, torch", verdict)
    assert row["ours_low"] < row["ours"] < row["ours_high"]


def test_nothing_of_ours_tells_no_shape_and_a_number_is_compared_once(shaped):
    kept = {"none": (1.0,) * 4, "mpi": (1.0, 0.9, 0.9, 0.9)}
    _, verdict, reasons, _ = shaped(ENDS | {"low": 4}, kept)
    assert (verdict, reasons) == ("unknown", ["no record of ours on cori that tells the shape of its curves"])
    number = {"low": "0.8", "unit": "1", "quantity": "efficiency", "x_low": "8", "x_high": "8"}
    rows, *_ = shaped(KEEPS | {"at": 8}, {"ring": (1.0,) * 4}, **number, x_unit="nodes")
    assert "shape" not in set(rows["kind"])


ROW = {"evidence": "measured", "system": "here", "x": 2, "x_unit": "nodes", "quantity": "efficiency"}
ROW |= {"panel": "both", "y_unit": "1", "n": 6, "method": "t"}
AXIS = 'y_label = "kept", y_unit = "%", y_scale = "linear"'
PANEL = f'{{ title = "both", layout = "efficiency", {AXIS}, reference = "two" }}'
PAIR = {"file": "two", "panel": "both", "quantity": "efficiency", "series": ["one", "other"]}


@pytest.fixture
def measured_here(folder, catalogue, tmp_path):
    """Published values with a panel of two series that were measured here: what each kept on 2 nodes, +- 0.02."""

    def write(first, second, **row):
        rows = [
            {**ROW, "series": name, "y": y, "low": y - 0.02, "high": y + 0.02, **row}
            for name, y in (("one", first), ("other", second))
        ]
        path = tmp_path / "reference" / "series" / "two.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"title": "Two series", "rows": rows}))
        text = catalogue.partition("  [figures.small.series")[0].replace(
            "panels = [", f"panels = [\n{PANEL},"
        )
        return folder(statements=({"statement": SAID},), catalogue=text)

    return write


@pytest.mark.parametrize(
    ("first", "second", "verdict"), [(0.9, 0.8, "agrees"), (0.8, 0.9, "disagrees"), (0.9, 0.89, "open")]
)
def test_two_series_that_were_measured_here_are_in_the_claimed_order(measured_here, first, second, verdict):
    claim = {"check": "ratio", "at": 2, "low": 1.0, "reading": "a test", "reference": PAIR}
    mark = Publication(name="t", title="t", claims=[{"figure": "small", "statement": SAID, **claim}])
    rows, *_ = checked(measured_here(first, second), [], [mark])
    (row,) = rows.to_dict("records")
    assert (row["verdict"], row["curve"], row["evidence"]) == (verdict, "one over other", "measured")
    assert row["ours"] == pytest.approx(first / second)


# --- Published values against each other

BASE = 4.0
PANELS = (Panel(layout="speed_up", y_label="speed-up", y_unit="1", y_scale="log"),)


def consistent(*rows, same=()):
    made = made_figure(x_label="GPUs", x_unit="GPUs", base_x=BASE, panels=PANELS)
    frame = frame_of([row.cells for row in rows])
    found = relations(Published(figures={"f": made}, values=frame, measured=frame_of([]), same=same))
    return (found["verdict"] == "consistent").tolist()


def test_nothing_published_contradicts_itself(published):
    found = relations(published)
    assert found.groupby("figure").size().to_dict() == {
        "powerai-ddl-2": 8,
        "powerai-ddl-3": 7,
        "cosmogan-edison": 8,
        "imagenet-records": 1,
        "tf-cnn-k80": 1,
        "tf-cnn-ec2": 1,
    }
    assert set(found["verdict"]) == {"consistent"}


@given(
    st.floats(1, 1e4),
    st.lists(st.floats(0.05, 1.2), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(1, 4),
)
def test_honest_rounding_is_always_consistent(rate, kept, rate_digits, ratio_digits):
    rows = [value("throughput", BASE, f"{rate:.{rate_digits}f}")]
    for step, efficiency in enumerate(kept, start=1):
        x = BASE * 2**step
        rows += [
            value("throughput", x, f"{rate * 2**step * efficiency:.{rate_digits}f}"),
            value("speed_up", x, f"{2**step * efficiency:.{ratio_digits}f}"),
            value("efficiency", x, f"{efficiency:.{ratio_digits}f}"),
        ]
    assert all(consistent(*rows))


SPEED_UP = value("speed_up", 16, "3.5")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # ratios begin where the publication's do
        (value("speed_up", 4, "1.0"), value("efficiency", 4, "1.00"), [True]),
        (SPEED_UP, value("efficiency", 16, "0.86"), [True]),
        (SPEED_UP, value("efficiency", 16, "0.22"), [False]),
        # the first rate over itself is 1, however it is rounded
        (value("throughput", 4, "1"), value("efficiency", 4, "1.00000"), [True]),
        (value("throughput", 4, "1"), value("speed_up", 4, "1.1"), [False]),
        (SPEED_UP, value("efficiency", 16, "87", unit="%"), [True]),
        # series are not mixed, and rough numbers not held against anything
        (SPEED_UP, value("efficiency", 16, "0.10", series="another"), []),
        (SPEED_UP, value("efficiency", 16, "0.10", note="about; on a good day"), []),
    ],
)
def test_what_follows_from_a_value_is_compared_with_the_other(first, second, expected):
    assert consistent(first, second) == expected


@pytest.mark.parametrize(("tolerance", "expected"), [(None, False), (0.01, False), (0.05, True)])
def test_two_publications_of_one_thing(tolerance, expected):
    place = {"figure": "f", "quantity": "throughput", "x": 8}
    same = Same(note="n", a=Place(series="s", **place), b=Place(series="r", **place), tolerance=tolerance)
    both = value("throughput", 8, "229"), value("throughput", 8, "220", series="r")
    assert consistent(*both, same=(same,)) == [expected]
