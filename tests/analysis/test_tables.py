"""The tables for other programs: what a reader computes from them is what the study says."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from dlscale.analysis import tables
from dlscale.analysis.findings import load_all
from dlscale.analysis.load import Study
from dlscale.analysis.render import text
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Phases
from tests.made_records import Window, make_record, make_study, rows_of, windows_of

KEY = ["study", "case_id", "attempt"]


def written(records, folder, form="csv"):
    """Name -> frame, as another program reads them."""
    study = Study(records)
    paths = text.write_tables(study, load_all(), folder, form=form, per_rank=True)
    read = pd.read_csv if form == "csv" else pd.read_parquet
    return {path.stem: read(path) for path in paths if path.suffix == f".{form}"}


def changed(record, change):
    """The record with other windows."""
    rows = [change(place, one) for place, one in enumerate(rows_of(record.windows))]
    return record.model_copy(update={"windows": windows_of(rows)})


def test_every_field_of_a_cell_and_every_phase_is_a_column():
    # Variables are in the column of the environment; an own model's name and digest are its workload's.
    unsaid = {"variables", "own", "unchecked"}
    assert set(Cell.model_fields) - unsaid <= {*tables.columns("launches")}
    phases = Phases.model_fields.keys() - {"set_up"}  # of a training with a target, whose columns are apart
    assert {f"{name}_seconds" for name in phases} <= {*tables.columns("launches")}


def test_launches_and_windows_say_what_the_study_does(tmp_path):
    study = Study(make_study(num_blocks=3))
    found = written(study.records, tmp_path)
    launches = found["launches"].merge(study.good, left_on=KEY, right_on=["study", "case", "attempt"])
    assert len(launches) == len(study.good)
    assert launches["seconds_per_step"].tolist() == launches["step_seconds"].tolist()
    windows = found["windows"].query("counts")
    medians = windows.groupby(KEY)["seconds_per_step"].median()
    assert medians.tolist() == pytest.approx(
        launches.set_index(KEY)["seconds_per_step"].loc[medians.index].tolist()
    )
    assert windows["num_samples"].sum() == found["launches"]["num_samples"].sum()
    assert (windows["fastest_rank_seconds"] <= windows["slowest_rank_seconds"]).all()
    assert not found["ranks"].duplicated([*KEY, "window", "rank"]).any()


def test_failed_attempts_are_there_and_do_not_count(tmp_path):
    records = [
        make_record(block=0, attempt=1, failure='died\nbadly, with "quotes"'),
        make_record(block=0, attempt=2),
        make_record(block=0, attempt=3, failure="died"),
    ]
    found = written(records, tmp_path)
    launches = found["launches"].set_index(["control", "attempt"])
    assert launches["counts"].to_dict() == {
        ("train", 1): False, ("train", 2): True, ("train", 3): False
    }  # fmt: skip
    assert launches["reason"]["train", 1] == 'hang on rank 0: died badly, with "quotes"'
    assert launches["failure_kind"]["train", 1] == "hang"
    assert math.isnan(launches["seconds_per_step"]["train", 1])
    assert set(found["windows"].query("counts")["attempt"]) == {2}


def test_a_window_without_all_ranks_has_no_world_time(tmp_path):
    def lost(place: int, window: Window) -> Window:
        return window._replace(seconds=[0.4, 0.0]) if place == 4 else window

    found = written([changed(make_record(num_ranks=2, rank_delays=(0.5,)), lost)], tmp_path)
    windows = found["windows"].set_index("window")
    for name in ("slowest_rank", "slowest_rank_seconds", "seconds_per_step", "samples_per_second"):
        assert math.isnan(windows[name][4])
    assert windows["slowest_rank"][5] == 0
    assert not windows["counts"].any()  # a launch with such a window gives no number


def test_ranks_that_do_not_step_together_are_counted_by_what_was_applied(tmp_path):
    def apart(_: int, window: Window) -> Window:
        return window._replace(num_applied=6, rank_steps=[4, 2], num_steps=4, seconds=[2.0, 2.0])

    found = written([changed(make_record(num_ranks=2, local_batch=8), apart)], tmp_path)
    windows = found["windows"]
    for name, value in (("num_samples", 48), ("samples_per_second", 24), ("seconds_per_step", 2 / 3)):
        assert set(windows[name]) == {value}
    assert found["ranks"]["num_steps"].tolist() == [4, 2] * 11


def test_communication_only_has_seconds_and_no_samples_and_sequences_have_tokens(tmp_path):
    exchanges = [make_record(backend="ring", num_ranks=2, control="exchange", block=b) for b in range(2)]
    found = written([*exchanges, make_record(workload="gpt", preset="tiny")], tmp_path)
    for name in ("launches", "windows"):
        rows = found[name].query("control == 'exchange'")
        assert rows["seconds_per_step"].notna().all()
        assert rows["samples_per_second"].isna().all()
        assert (rows["num_samples"] == 0).all()
    (row,) = found["launches"].query("workload == 'gpt'").to_dict("records")
    assert row["tokens_per_second"] == pytest.approx(128 * row["samples_per_second"])


def test_a_count_beyond_64_bits_is_one_line(tmp_path):
    with pytest.raises(UsageError, match="table x: num_samples of 1e\\+30 is more than 64 bits hold"):
        text._typed(pd.DataFrame({"num_samples": [1e30]}), "x")
    with pytest.raises(UsageError, match="num_bytes of"):
        text._typed(pd.DataFrame({"num_bytes": [2**70, 1]}, dtype=object), "x")


@pytest.mark.requires("pyarrow")
def test_both_formats_say_the_same_and_parquet_says_what_its_columns_are(tmp_path):
    import pyarrow.parquet

    records = [*make_study(num_blocks=2), make_record(block=7, failure="died")]
    csv, parquet = (written(records, tmp_path / form, form) for form in ("csv", "parquet"))
    assert csv.keys() == parquet.keys()
    assert {"launches", "windows", "ranks", "finding-scaling"} <= csv.keys()
    for name, one in csv.items():
        other = parquet[name]
        assert list(one) == list(other)
        for column in other.select_dtypes("number"):
            assert np.array_equal(one[column].astype(float), other[column].astype(float), equal_nan=True)
    schema = pyarrow.parquet.read_schema(tmp_path / "parquet" / "windows.parquet")
    assert schema.field("phase").metadata[b"description"] == b"warmup or steady"
    assert Study(records).data_hash in schema.metadata[b"dlscale"].decode()


def test_equal_records_in_any_order_give_equal_bytes_and_the_package_describes_each_table(tmp_path):
    records = make_study(num_blocks=2)
    written(records, tmp_path / "a")
    written(records[::-1], tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name
    package = json.loads((tmp_path / "a" / "datapackage.json").read_text())
    for one in package["resources"]:
        names = [field["name"] for field in one["schema"]["fields"]]
        assert names == list(pd.read_csv(tmp_path / "a" / one["path"], nrows=1))
        assert set(one["schema"].get("primaryKey", ())) <= set(names)
        if not one["name"].startswith("finding-"):
            assert all(field["description"] for field in one["schema"]["fields"])


def test_no_record_is_tables_without_rows(tmp_path):
    found = written([], tmp_path)
    for name in ("launches", "windows", "ranks"):
        assert list(found[name]) == list(tables.columns(name))
        assert not len(found[name])


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("=1+2", "'=1+2"),
        (" =1", "' =1"),
        ("-1.5", "-1.5"),
        ("@x", "'@x"),
        ("|x", "'|x"),
        ("\uff1dx", "'\uff1dx"),
        ("a=b", "a=b"),
    ],
)
def test_no_text_is_a_formula(cell, shown):
    assert (
        text.as_csv(pd.DataFrame({"text": [cell, None], "value": [-1.0, 2.0]})).splitlines()[1]
        == f"{shown},-1.0"
    )


def test_markdown_and_latex_escape_what_records_say():
    table = pd.DataFrame({"name_x": ["a|b <i> $x$", "[4] 50 %"], "n": ["1.2 [1, 2]", "3"]}, dtype=object)
    assert text.markdown(table).splitlines() == [
        "| name_x | n |", "| --- | ---: |", r"| a\|b \<i> \$x\$ | 1.2 [1, 2] |", "| [4] 50 % | 3 |"
    ]  # fmt: skip
    latex = text.latex(table, caption="50 % of it", name="x")
    assert r"{[4] 50\,\%} & {3} \\" in latex
    assert r"\caption{50\,\% of it}" in latex


def test_a_wide_latex_table_is_several_with_the_keys_in_each():
    wide = pd.DataFrame({name: [name * 12] for name in "abcdefghi"}, dtype=object)
    latex = text.latex(wide, caption="Wide.", name="w", num_keys=2)
    heads = [line for line in latex.splitlines() if line.startswith("    {a} & {b} &")]
    assert len(heads) > 1
    assert [name for name in "cdefghi" if sum(f"{{{name}}}" in head for head in heads) != 1] == []
