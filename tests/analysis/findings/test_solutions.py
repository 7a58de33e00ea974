"""Time to solution from records with known times, steps and ends."""

import csv
import json
import math
from dataclasses import replace

import pytest

from dlscale.analysis.figures.write import write_figures
from dlscale.analysis.findings import solution_table as trainings
from dlscale.analysis.findings.learning_curves import thinned
from dlscale.analysis.findings.solution_table import to_solution_row
from dlscale.analysis.form import SCREEN
from dlscale.analysis.measured import measure
from dlscale.analysis.plots import Plot
from dlscale.benchmarks.records.target import Target, TrainingLaunch
from dlscale.models.optimizers import optimizer_rule
from dlscale.models.own import OwnModel
from tests.analysis.reading import data_of, page_for
from tests.made_records import TARGET, make_record, rows_of, solved, windows_of

LAUNCH = 2.1  # start 1, import 0.1 and connect 1, as the made-up records have them
SET_UP, EVALUATING = 0.4, 0.5


def training(*, steps, step_seconds, end="reached", auc=0.95, num_training=None, **fields):
    record = make_record(**{"target": TARGET} | fields, local_batch=16)
    half = {
        "step": steps // 2,
        "seconds": steps // 2 * step_seconds,
        "evaluating": EVALUATING / 2,
        "auc": 0.5,
    }
    last = {"step": steps, "seconds": steps * step_seconds, "evaluating": EVALUATING, "auc": auc}
    return solved(record, half, last, end=end, set_up_seconds=SET_UP, num_training=num_training)


def study(changed=None):
    """6 seeds: 2 ranks step 1.6 times as fast as 1 rank, of twice the samples, and need 1.2 times as many samples."""
    records = []
    for block in range(6):
        noise = 1 + 0.02 * block
        alone = {"steps": 200, "step_seconds": 0.1 * noise}
        both = {"steps": 120, "step_seconds": 0.1 / 0.8 * noise} | (changed or {}).get(block, {})
        records.append(training(block=block, **alone))
        records.append(training(backend="ring", num_ranks=2, block=block, **both))
    return records


def rows(records):
    return {row.cell.backend: row for row in trainings.FINDING.of(measure(records))}


def test_the_speed_up_of_training_is_the_product_of_two_ratios():
    ring = rows(study())["ring"]
    assert ring.rate_ratio.center == pytest.approx(1.6)
    assert ring.samples_ratio.center == pytest.approx(1.2)
    assert ring.training_speed_up.center == pytest.approx(1.6 / 1.2)
    assert ring.rate_ratio.low == pytest.approx(ring.rate_ratio.high), "noise of a block is in both"
    assert ring.evaluating_share == pytest.approx(0.5 / (0.5 + 15.0 * 1.05), rel=1e-3)


def test_their_figure_has_the_soonest_at_the_top_and_the_samples_against_the_speed():
    table = measure(ways())
    figure = trainings.FINDING.figures["algorithms"](table, table.families[0], SCREEN)
    times, product = figure.panels
    names = [name for _, name in times.y.ticks]
    assert (names[0], len(names)) == ("ring easgd  1", 5)
    assert any(name.endswith("\n7 of 8 reached it") for name in names)
    assert [line["verdict"] for line in figure.rows][:1] == ["sooner"]
    (first,) = times.series[0].points
    (same,) = product.series[0].points
    assert (first.y, first.left < first.x < first.right, same.label) == (0, True, "1")
    (begin, end), (point,) = product.guides[0].points, product.series[0].points
    assert (begin, end[1] / end[0]) == ((0, 0), pytest.approx(point.y / point.x))


def test_no_figure_compares_one_way_of_training():
    table = measure(study())
    assert trainings.FINDING.figures["algorithms"](table, table.families[0], SCREEN) is None


def ways(*, num_seeds=8):
    """8 seeds on 2 ranks: the ring, late gradients, elastic averaging, servers that do not wait, one that misses."""
    records = []
    for block in range(num_seeds):
        noise = 1 + 0.05 * block
        own = {"num_ranks": 2, "block": block, "step_seconds": 0.1 * noise, "backend": "ring"}
        slow = own | {"step_seconds": 0.3 * noise}
        records += [
            training(steps=100 + block, **own),
            training(steps=86 + 6 * block, backend_options={"pipelined": True}, **own),
            training(steps=50 + block, algorithm="easgd", **own),
            training(steps=100, **slow | {"backend": "gloo"}),
        ]
        served = own | {"backend": "mpi_ps", "num_servers": 1, "algorithm": "downpour"}
        end = "reached" if block else "budget"
        record = training(steps=90, end=end, **served)
        records.append(record.model_copy(update={"staleness": {0: 10, 1: 80, 2: 9, 5: 1}}))
    return records


def compared(records):
    return {(row.cell.method, *row.cell.options): row for row in trainings.FINDING.of(measure(records))}


def test_ways_of_training_are_compared_with_synchronous_sgd_over_the_ring():
    found = compared(ways())
    verdicts = {name: row.verdict for name, row in found.items()}
    assert verdicts == {
        ("ring",): "reference",
        ("ring", "pipelined"): "not shown",
        ("ring easgd",): "sooner",
        ("gloo",): "later",
        ("mpi_ps downpour",): "1 missed it",
    }
    elastic = found["ring easgd",]
    assert elastic.versus.rate_ratio.center == pytest.approx(1)
    assert elastic.joint_speed_up.level == pytest.approx(1 - 0.05 / 4)
    assert elastic.joint_speed_up.low < elastic.versus.speed_up.low, "four comparisons hold together"
    assert "Versus synchronous SGD over ring it is" in found["gloo",].text
    row = to_solution_row(found["mpi_ps downpour",])
    assert (row["mean_staleness"], row["staleness_95"], row["reference"]) == (pytest.approx(1.03), 2, "ring")
    assert row["samples_per_second"] == pytest.approx(32 / 0.1175, rel=1e-3)
    assert row["reference_speed_up"] is None, "nobody knows what the one that missed takes"
    assert compared(ways(num_seeds=1))["gloo",].verdict == "too few seeds"


def test_the_time_counts_from_the_launch():
    alone = rows(study())["none"]
    seconds = [LAUNCH + SET_UP + EVALUATING + 200 * 0.1 * (1 + 0.02 * block) for block in range(6)]
    assert alone.seconds.center == pytest.approx((seconds[2] + seconds[3]) / 2)
    assert (alone.seconds.low, alone.seconds.high) == (pytest.approx(seconds[0]), pytest.approx(seconds[-1]))
    assert alone.speed_up is None
    assert "none on 1 rank reaches AUC 0.9 in" in alone.text


def test_another_algorithm_is_compared_with_synchronous_sgd_seed_by_seed():
    records = study()
    for block in range(6):
        own = {"steps": 150, "step_seconds": 0.1 * (1 + 0.02 * block), "backend": "ring", "num_ranks": 2}
        for interval in (4, 8):
            options = {"algorithm": "easgd", "algorithm_options": {"interval": interval}}
            records.append(training(block=block, **own, **options))
    table = measure(records)
    found = [row for row in trainings.FINDING.of(table) if row.cell.algorithm == "easgd"]
    assert [row.cell.algorithm_options for row in found] == [{"interval": 4}, {"interval": 8}]
    ratios = found[0].synchronous
    assert (ratios.rate_ratio.center, ratios.samples_ratio.center) == (
        pytest.approx(1.25),
        pytest.approx(1.25),
    )
    assert ratios.training_speed_up.center == pytest.approx(1.0)
    assert found[0].samples_ratio.center == pytest.approx(1.5), "to the base, as for every cell"
    row = to_solution_row(found[0])
    assert (row["algorithm"], row["algorithm_options"]) == ("easgd", "interval=4")
    assert row["synchronous_samples_ratio"] == pytest.approx(1.25)
    assert to_solution_row(rows(study())["ring"])["synchronous_speed_up"] is None


@pytest.mark.parametrize("missed", [{"end": "budget", "auc": 0.8}, {"end": "diverged", "auc": None}])
def test_one_training_that_missed_leaves_no_ratio_and_counts_as_the_longest(missed):
    ring = rows(study({2: missed}))["ring"]
    assert (ring.num_reached, len(ring.trainings)) == (5, 6)
    assert ring.speed_up is ring.rate_ratio is ring.samples_ratio is None
    assert ring.seconds.high is None
    assert ring.share.center == pytest.approx(5 / 6)
    assert ring.expected.center > ring.seconds.center


def test_where_most_missed_it_says_how_close_they_came():
    missed = {block: {"end": "budget", "auc": 0.8 + block / 100} for block in range(6)}
    ring = rows(study(missed))["ring"]
    assert ring.seconds is ring.samples is ring.expected is None
    assert "0 of 6 trainings reached AUC 0.9 in at most 60 s; the best had 0.85." in ring.text


def test_a_row_has_the_rules_for_large_batches():
    asked = TARGET | {
        "scaling": "linear",
        "schedule": {"first_rate": 1e-3, "warm_up_samples": 640, "decay_samples": [1000, 2000]},
        "optimizer": optimizer_rule("sgd", momentum=0.5),
    }
    (row,) = trainings.FINDING.of(measure([training(steps=10, step_seconds=0.1)]))
    assert to_solution_row(row)["optimizer"] == "workload"
    found = to_solution_row(replace(row, target=Target(**asked)))
    names = ("warm_up_samples", "decay_samples", "optimizer", "momentum")
    assert [found[name] for name in names] == [640, [1000, 2000], "sgd", 0.5]


@pytest.mark.usefixtures("no_pictures")
def test_of_long_trainings_the_drawings_keep_ends_and_peaks_and_the_csv_everything(tmp_path):
    long = training(steps=2000, step_seconds=0.1)
    (first, last) = long.solution.evaluations
    evaluations = [
        first.model_copy(update={"step": step, "training_seconds": step / 10, "metrics": {"auc": auc}})
        for step in range(1, 2000)
        for auc in [0.89 if step == 1234 else 0.5 + 1e-5 * step + 0.1 * (step % 2)]
    ]
    solution = long.solution.model_copy(update={"evaluations": [*evaluations, last]})
    records = [
        long.model_copy(update={"solution": solution, "case": long.case.model_copy(update={"block": block})})
        for block in range(25)
    ]
    table = measure(records)
    (section,) = [section for section in page_for(table).sections if section.name == "time_to_solution"]
    (plot, *_) = [block for block in section.blocks if isinstance(block, Plot)]
    assert {len(series.points) for series in plot.series} == {5000 // 25}
    assert {0.89, 0.95} <= {point.y for point in plot.series[0].points}
    assert "At most 200 evaluations of each training are drawn" in plot.notes[0]
    write_figures(table, tmp_path, only=["time-to-solution"])
    (rows,) = tmp_path.glob("*-evaluations.csv")
    assert len(rows.read_text().splitlines()) == 1 + 25 * 2000


@pytest.mark.parametrize("most", [4, 5, 20, 99])
def test_thinning_keeps_the_ends_and_the_extremes(most):
    values = [math.sin(place) for place in range(1000)]
    places = thinned(values, most)
    assert places == sorted(set(places))
    assert len(places) <= most
    assert {0, 999, values.index(max(values)), values.index(min(values))} <= set(places)
    assert thinned(values[:most], most) == list(range(most))


def saved(record, *launches):
    return record.model_copy(update={"launches": [TrainingLaunch(**one) for one in launches]})


def part(attempt, first, kept, *, lost=0.0, start=2.5):
    return {
        "attempt": attempt,
        "first_step": first,
        "counts": kept > first,
        "start_seconds": start,
        "restoring_seconds": 0.25 if first else 0.0,
        "saving_seconds": 1.0 if kept > first else 0.0,
        "lost_seconds": lost,
    }


def test_a_training_of_several_launches_counts_what_led_to_its_end():
    """The second of its launches kept nothing: its start is lost as well."""
    whole = [training(steps=100, step_seconds=0.1, block=block) for block in (0, 1)]
    parts = (part(1, 0, 40, lost=3.0), part(2, 40, 40, lost=1.0), part(3, 40, 100))
    row = rows([saved(whole[0], *parts), saved(whole[1], part(1, 0, 100))])["none"]
    assert [t.seconds for t in row.trainings] == [
        pytest.approx(2 * 2.5 + 0.25 + 2 * 1.0 + 100 * 0.1 + EVALUATING),
        pytest.approx(2.5 + 1.0 + 100 * 0.1 + EVALUATING),
    ]
    assert row.trainings[0].saving_seconds == 2.25
    assert row.lost_seconds == 3.0 + 1.0 + 2.5 + 0.25
    assert row.saving_share == pytest.approx((2.25 / 17.75 + 1 / 14) / 2)
    unknown = saved(whole[0], part(1, 0, 40, start=None), part(2, 40, 100))
    assert rows([unknown])["none"].trainings[0].seconds is None


def test_one_that_resumed_a_step_before_its_end_gives_numbers():
    record = training(steps=100, step_seconds=0.1)
    only = record.model_copy(update={"windows": windows_of(rows_of(record.windows)[:1])})
    assert rows([only])["none"].num_reached == 1


@pytest.mark.usefixtures("no_pictures")
def test_json_and_figures_have_it(tmp_path):
    table = measure(study({1: {"end": "budget", "auc": 0.8}}))
    found = json.loads(json.dumps(data_of(table)))
    assert [row["num_reached"] for row in found["time_to_solution"]] == [6, 5]
    assert len(found["evaluations"]) == 24
    names = {path.name for path in write_figures(table, tmp_path, only=["time-to-solution"])}
    stem = "hep_cnn-tiny-torch-weak-fp32"
    assert names == {
        *(f"{stem}-time-to-solution.{suffix}" for suffix in ("png", "pdf", "svg", "csv")),
        f"{stem}-evaluations.csv",
    }


@pytest.mark.parametrize(
    ("higher", "values"), [(True, (0.5, 0.95)), (False, (40.0, 3.0)), (False, (3.0, 3.0))]
)
def test_a_metric_of_a_users_own_has_no_limits_and_a_figure(tmp_path, higher, values):
    """As `dlscale run time-to-solution` of a file draws it: no other metric is without limits."""
    own = OwnModel(
        file="mine.py", digest="0" * 12, framework="torch", num_parameters=1, forward_flops_per_sample=0,
        input_shape=[6], local_batch=16, global_batch=64, optimizer="Adam", learning_rate=1e-3, num_samples=200,
        num_classes=2, metrics={"auc": higher}, running_statistics=False, random=False, data="mine.py:0",
        unchecked="nothing",
    )  # fmt: skip
    cell = {"workload": own.name, "own": own, "preset": "own", "target": TARGET | {"threshold": values[1]}}
    records = []
    for block in range(6):
        record = make_record(**cell, local_batch=16, block=block)
        evaluations = [
            {"step": 10 * (n + 1), "seconds": n + 1.0, "auc": value} for n, value in enumerate(values)
        ]
        records.append(solved(record, *evaluations))
    table = measure(records)
    assert ".png" in {path.suffix for path in write_figures(table, tmp_path, only=["time-to-solution"])}
    assert page_for(table).sections


def test_a_row_has_the_time_of_a_step_and_of_an_epoch():
    """The made-up windows: 16 samples at 100 samples per second; the warm-up of 9 s and evaluations do not count."""
    records = [training(steps=40, step_seconds=0.5, num_training=800, block=block) for block in range(6)]
    (row,) = data_of(measure(records))["time_to_solution"]
    assert row["seconds_per_step"] == row["seconds_per_step_low"] == pytest.approx(0.16)
    assert row["seconds_per_epoch"] == row["seconds_per_epoch_high"] == pytest.approx(8)
    unknown = [*records[:5], training(steps=40, step_seconds=0.5, block=5)]
    (row,) = data_of(measure(unknown))["time_to_solution"]
    assert row["seconds_per_epoch"] is None
    assert "num_training" not in unknown[-1].model_dump()["solution"], "written as before it was known"


def test_evaluations_have_the_time_since_the_launch_and_the_epoch():
    records = [training(steps=40, step_seconds=0.5, num_training=800)]
    (_, last) = data_of(measure(records))["evaluations"]
    assert last["epoch"] == pytest.approx(40 * 16 / 800)
    assert last["seconds"] == pytest.approx(LAUNCH + SET_UP + 40 * 0.5 + EVALUATING)


@pytest.mark.usefixtures("no_pictures")
def test_a_first_training_without_any_metric_leaves_the_file_of_evaluations_whole(tmp_path):
    """A loss that is no number has no metrics: its rows have fewer values than those after it."""
    bad = training(steps=40, step_seconds=0.5, end="diverged")
    empty = [e.model_copy(update={"metrics": {}, "loss": None}) for e in bad.solution.evaluations]
    bad = bad.model_copy(update={"solution": bad.solution.model_copy(update={"evaluations": empty})})
    table = measure([bad, training(steps=40, step_seconds=0.5, block=1)])
    write_figures(table, tmp_path, only=["time-to-solution"])
    path = tmp_path / "hep_cnn-tiny-torch-weak-fp32-evaluations.csv"
    rows = csv.DictReader(path.read_text().splitlines())
    assert [row["auc"] for row in rows] == ["", "", "0.5", "0.95"]
