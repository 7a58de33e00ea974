"""The tidy tables: what a reader computes from them is what the report says."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlscale.analysis.findings import solution_table
from dlscale.analysis.launches import select_attempts
from dlscale.analysis.measured import measure
from dlscale.analysis.records import start_skews
from dlscale.analysis.render.tidy import TABLES, columns_of, write_tables
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Phases
from tests.analysis.findings.test_solutions import training
from tests.analysis.made_predictions import predictions
from tests.made_records import make_record, make_study, profile_record, rows_of, windows_of

NAMES = ["study", "case_id", "attempt"]
LAUNCHES = [column.name for column in columns_of("launches")]


def tables(records, folder, form="csv", predicted=()):
    """Name -> frame, as another program reads them."""
    found = {}
    for path in write_tables(records, folder, form=form, per_rank=True, predicted=predicted):
        if path.suffix == ".csv":
            found[path.stem] = pd.read_csv(path)
        elif path.suffix == ".parquet":
            found[path.stem] = pd.read_parquet(path)
    return found


def words(column):
    """Text, where an empty field is read as a missing one."""
    return column.astype(object).where(column.notna(), "").tolist()


def test_variables_are_in_the_column_of_the_environment(tmp_path):
    found = tables([make_record(variables={"MPICH_X": "1"}), make_record(block=1)], tmp_path, "csv")
    assert sorted(found["launches"]["environment"]) == ["default", "default, MPICH_X=1"]


def test_every_field_of_a_cell_is_a_column():
    # Variables are in the column of the environment; an own model's name and digest are its workload's.
    assert set(Cell.model_fields) - {"variables", "own"} <= {*LAUNCHES}
    assert {f"{name}_seconds" for name in Phases.model_fields} <= {*LAUNCHES}


@pytest.mark.requires("pyarrow")
def test_both_formats_say_the_same_and_parquet_says_what_its_columns_are(tmp_path):
    import pyarrow.parquet

    records = [
        *make_study(num_blocks=2),
        make_record(block=7, failure="died"),
        training(steps=40, step_seconds=0.5, num_training=800),
        profile_record(block=8),
    ]
    words_alone = dict.fromkeys(("engine_version", "profile_digest", "network_digest"), "a")
    csv, parquet = (
        tables(records, tmp_path / form, form, predictions(**words_alone, doubts=("far",)))
        for form in ("csv", "parquet")
    )
    assert csv.keys() == parquet.keys() == TABLES.keys()
    for name in TABLES:
        one, other = csv[name], parquet[name]
        assert list(one) == list(other)
        for column in columns_of(name):
            if column.kind == "string":
                assert words(one[column.name]) == words(other[column.name])
            else:
                assert one[column.name].astype(float).equals(other[column.name].astype(float)), column.name
    schema = pyarrow.parquet.read_schema(tmp_path / "parquet" / "windows.parquet")
    assert (
        schema.field("start_skew_seconds").metadata[b"description"]
        == b"last start - first start of ranks on one machine"
    )
    assert measure(records).provenance.data_hash in schema.metadata[b"dlscale"].decode()


def test_trainings_have_their_times_evaluations_and_metrics(tmp_path):
    records = [
        training(steps=40, step_seconds=0.5, num_training=800, block=0),
        training(steps=60, step_seconds=0.5, end="budget", auc=0.8, block=1),
    ]
    table = measure(records)
    found = tables(records, tmp_path)
    trainings, evaluations = found["trainings"], found["evaluations"]
    assert trainings.seconds.tolist() == [
        one.seconds for one in solution_table.FINDING.of(table)[0].trainings
    ]
    assert (trainings.reached.tolist(), trainings.end.tolist()) == ([True, False], ["reached", "budget"])
    assert trainings.num_epochs.fillna(0).tolist() == [40 * 16 / 800, 0]
    last = evaluations.groupby("block").last()
    assert last.seconds.tolist() == trainings.seconds.tolist()
    assert last.num_samples.tolist() == trainings.num_samples.tolist() == [640, 960]
    both = evaluations.merge(found["metrics"], on=[*NAMES, "evaluation"])
    assert both.query("metric == 'auc'").value.tolist() == [0.5, 0.95, 0.5, 0.8]
    assert evaluations.counts.all()
    assert "trainings" not in tables([make_record()], tmp_path / "without")


def test_failed_attempts_are_there_and_do_not_count(tmp_path):
    records = [
        make_record(block=0, attempt=1, failure='died\nbadly, with "quotes"'),
        make_record(block=0, attempt=2),
        make_record(block=0, attempt=3, failure="died"),
        make_record(block=1, control="canary"),
    ]
    found = tables(records, tmp_path)
    launches = found["launches"].set_index(["control", "attempt"])
    assert launches.counts.to_dict() == {
        ("canary", 1): False,
        ("train", 1): False,
        ("train", 2): True,
        ("train", 3): False,
    }
    assert launches.reason["train", 1] == 'hang on rank 0: died badly, with "quotes"'
    assert launches.failure_kind["train", 1] == "hang"
    assert math.isnan(launches.seconds_per_step["train", 1])
    assert set(found["windows"].query("counts").attempt) == {2}


def test_an_impossible_window_has_no_world_time(tmp_path):
    record = make_record(num_ranks=2, rank_delays=(0.5,))
    windows = rows_of(record.windows)
    windows[4] = windows[4]._replace(seconds=[0.4, 0.0])
    found = tables([record.model_copy(update={"windows": windows_of(windows)})], tmp_path)
    told = found["windows"].set_index("window")
    for name in ("slowest_rank", "slowest_rank_seconds", "seconds_per_step", "samples_per_second"):
        assert math.isnan(told[name][4]), name
    assert told.slowest_rank[5] == 0
    assert told.slowest_rank_seconds[5] - told.fastest_rank_seconds[5] == pytest.approx(0.5)
    assert not found["windows"].counts.any()  # a launch with such a window gives no number
    assert "has the impossible times" in found["launches"].reason[0]


def test_ranks_that_do_not_step_together_are_counted_by_what_was_applied(tmp_path):
    record = make_record(num_ranks=2, local_batch=8)
    windows = [
        one._replace(num_applied=6, rank_steps=[4, 2], num_steps=4, seconds=[2.0, 2.0])
        for one in rows_of(record.windows)
    ]
    found = tables([record.model_copy(update={"windows": windows_of(windows)})], tmp_path)
    assert set(found["windows"].num_samples) == {48}
    assert set(found["windows"].samples_per_second) == {24}
    assert set(found["windows"].seconds_per_step) == {2 / 3}
    assert found["ranks"].num_steps.tolist() == [4, 2] * 11


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(st.data())
def test_windows_hold_what_the_records_do(tmp_path, data):
    num_ranks = data.draw(st.integers(1, 4))
    delays = data.draw(st.lists(st.floats(0, 10), min_size=num_ranks, max_size=num_ranks))
    factors = data.draw(st.lists(st.floats(0.1, 10), min_size=1, max_size=6))
    record = make_record(num_ranks=num_ranks, rank_delays=delays, window_factors=factors)
    found = tables([record], tmp_path)
    windows = found["windows"].query("counts")
    seconds = [one.seconds for one in rows_of(record.windows) if one.phase == "steady"]
    assert windows.slowest_rank_seconds.tolist() == [max(one) for one in seconds]
    assert windows.slowest_rank.tolist() == [one.index(max(one)) for one in seconds]
    assert windows.mean_rank_seconds.tolist() == pytest.approx([np.mean(one) for one in seconds])
    (wanted,) = select_attempts([record])
    assert found["launches"].seconds_per_step[0] == wanted.world
    assert found["launches"].samples_per_second[0] == wanted.samples_per_second
    assert found["launches"].start_skew_of_window[0] == start_skews([wanted.record])[0]
    assert windows.num_samples.sum() == found["launches"].num_samples[0]


def test_keys_are_unique_and_lead_from_windows_to_launches(tmp_path):
    found = tables(make_study(num_blocks=2), tmp_path)
    assert not found["launches"].duplicated(NAMES).any()
    assert not found["windows"].duplicated([*NAMES, "window"]).any()
    assert not found["ranks"].duplicated([*NAMES, "window", "rank"]).any()
    joined = found["windows"].merge(found["launches"], on=NAMES, suffixes=("", "_of_launch"))
    assert len(joined) == len(found["windows"])
    assert (joined.backend == joined.backend_of_launch).all()


@pytest.mark.parametrize("form", ["csv", pytest.param("parquet", marks=pytest.mark.requires("pyarrow"))])
def test_equal_records_in_any_order_give_equal_bytes(tmp_path, form):
    first = write_tables(make_study(num_blocks=2), tmp_path / "a", form=form, per_rank=True)
    again = write_tables(make_study(num_blocks=2)[::-1], tmp_path / "b", form=form, per_rank=True)
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_the_package_describes_each_table(tmp_path):
    written = write_tables(make_study(num_blocks=1), tmp_path, form="csv")
    package = json.loads(written[-1].read_text())
    assert [one["path"] for one in package["resources"]] == [path.name for path in written[:-1]]
    for one in package["resources"]:
        names = [field["name"] for field in one["schema"]["fields"]]
        assert names == list(pd.read_csv(tmp_path / one["path"], nrows=1))
        assert set(one["schema"]["primaryKey"]) <= set(names)


def test_no_records_are_tables_without_rows(tmp_path):
    found = tables([], tmp_path)
    assert {name: len(frame) for name, frame in found.items()} == {"launches": 0, "windows": 0, "ranks": 0}
    assert list(found["windows"]) == [one.name for one in columns_of("windows")]


def test_profiles_have_a_row_per_gradient(tmp_path):
    found = tables(
        [make_record(), profile_record(block=1), profile_record(block=2, failure="died")], tmp_path
    )
    rows = found["gradients"]
    assert rows[["place", "gradient", "num_bytes", "ready_seconds"]].values.tolist() == [
        [0, "bias", 40, 0.012],
        [1, "weight", 4000, 0.028],
    ]
    assert (rows.ready_low_seconds < rows.ready_seconds).all()
    assert (rows.ready_seconds < rows.ready_high_seconds).all()
    assert rows.counts.all()
    assert (rows.block == 1).all()
    assert "gradients" not in tables([make_record()], tmp_path / "without")


def test_a_prediction_is_a_row_of_its_own_table_and_no_launch_s(tmp_path):
    found = tables(make_study(num_blocks=2), tmp_path, predicted=predictions(ranks=(2, 64)))
    rows = found["predictions"]
    assert rows["num_ranks"].tolist() == [2, 64]
    assert set(rows["evidence"]) == {"simulated"}
    assert (rows["samples_per_second_low"] < rows["samples_per_second"]).all()
    assert (rows["seconds_per_step"] * rows["samples_per_second"]).tolist() == pytest.approx([16, 512])
    assert set(found["launches"]["evidence"]) == {"measured"}
    package = json.loads((tmp_path / "datapackage.json").read_text())
    (described,) = [one["schema"] for one in package["resources"] if one["name"] == "predictions"]
    assert "foreignKeys" not in described
    fields = {field["name"] for field in described["fields"]}
    assert set(described["primaryKey"]) <= fields
    assert not rows.duplicated(described["primaryKey"]).any()
