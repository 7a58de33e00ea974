import subprocess
import sys
from pathlib import Path

import pytest

from dlscale.analysis.findings.scaling import scaling_table
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import number, percent, rate
from dlscale.benchmarks.records.files import BadFile


def test_each_backend_is_summarised_in_plain_words(make_study, table_text):
    text = table_text(
        scaling_table(make_study(efficiency={"none": (1.0, 0.95), "ring": (0.8, 0.6)}, noise=0.0))
    )
    assert (
        "ring: scaling efficiency 60.0 % [60.0, 60.0] at 2 ranks (75.0 % [75.0, 75.0] versus its own 1 rank)."
    ) in text
    assert "none: efficiency 95.0 % [95.0, 95.0] at 2 ranks without communication" in text
    assert "its 95 % order-statistic interval" in text


def test_without_a_base_case_the_summary_says_so(make_record, table_text):
    records = [make_record(backend="ring", num_ranks=2, block=block) for block in range(6)]
    text = table_text(scaling_table(records))
    assert "no base case, so no efficiency" in text
    assert "no base case (a), none on 1 rank: not measured" in text


def test_failures_and_bad_files_are_listed(make_study, make_record, table_text):
    records = [*make_study(), make_record(backend="ring", num_ranks=4, failure="rank 3 [died]")]
    bad = BadFile(path=Path("records/cut.json"), reason="not complete JSON")
    text = table_text(scaling_table(records), bad_files=[bad])
    assert "ring, 4 ranks, block 0, attempt 1: hang on rank 3: rank 3 [died]" in text
    assert "records/cut.json: not complete JSON" in text


def test_a_narrow_terminal_cuts_no_number_and_no_note(make_record, table_text):
    flawed = {"steady": False, "oversubscribed": True, "start_skew": 0.05, "window_factors": [1.0] * 4}
    records = [
        make_record(num_ranks=2, block=block, samples_per_second=1234.5, **flawed) for block in range(3)
    ]
    text = table_text(scaling_table(records), width=80)
    assert "1234" in text
    assert "3/3 1 2 3 4 5 6" in text
    assert "…" not in text


def test_nothing_measured_is_told(table_text):
    assert "nothing has been measured" in table_text(scaling_table([]))


@pytest.mark.parametrize("width", [100, 80, 60])
def test_intervals_go_below_their_numbers_before_anything_is_cut(make_study, table_text, width):
    table = scaling_table(make_study(drift=[120.0, 121.7, 123.1, 119.2, 118.4, 122.9], noise=0.001))
    text = table_text(table, width=width)
    assert "…" not in text
    for row in table.rows:
        shown = rate(row.throughput)
        assert (shown in text) == (width == 100)
        assert all(piece in text for piece in shown.split())
    assert all(name in text for name in ("none", "gloo", "mpi", "ring", "6/6", "0.39"))


def test_memory_is_shown_for_every_row(make_record, table_text):
    records = [make_record(block=block, num_ranks=2, peak_rss_bytes=[1 << 30, 5 << 29]) for block in range(6)]
    text = table_text(scaling_table(records))
    assert "- - 2.50 6/6" in text
    unknown = [make_record(block=block, num_ranks=2, peak_rss_bytes=[0]) for block in range(6)]
    assert "- - - 6/6" in table_text(scaling_table(unknown))


def test_the_cost_of_input_stands_below_the_table(make_record, table_text):
    records = [
        make_record(block=block, control=control, samples_per_second=rate)
        for block in range(6)
        for control, rate in (("train", 100), ("loader", 2000))
    ]
    assert "input on 1 rank: fetching a batch takes 5.00 % [5.00, 5.00] of a step." in table_text(
        scaling_table(records)
    )


def test_all_workloads_in_both_frameworks_have_tables_of_their_own(make_study, make_record, table_text):
    workloads = ("cosmogan", "hep_cnn", "inception_v3", "resnet50")
    records = [
        record
        for workload in workloads
        for framework in ("torch", "tensorflow")
        for record in make_study(workload=workload, framework=framework, num_blocks=3)
    ]
    records.append(make_record(workload="resnet50", num_ranks=2, block=7, failure="died"))
    table = scaling_table(records)
    text = table_text(table)
    assert len(table.families) == 8
    titles = [
        f"{name} tiny, {framework}, weak" for name in workloads for framework in ("tensorflow", "torch")
    ]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)
    assert text.count("n: launches that gave a number") == 1
    assert "resnet50 torch, none, 2 ranks, block 7, attempt 1: hang on rank 1: died" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.01234, "0.0123"),
        (4.56, "4.56"),
        (78.94, "78.9"),
        (812.3, "812"),
        (12345.6, "12346"),
        (2, "2"),
    ],
)
def test_numbers_have_three_digits_and_no_exponent(value, text):
    assert number(value) == text


def test_an_efficiency_gets_a_decimal_only_if_it_is_known_that_well():
    def interval(low, high):
        return Interval(center=0.912, low=low, high=high, level=0.95, method="paired t", n=6)

    assert percent(interval(0.89, 0.93)) == "91 % [89, 93]"
    assert percent(interval(0.911, 0.913)) == "91.2 % [91.1, 91.3]"
    assert percent(interval(None, None)) == "91 %"
    assert rate(None) == "-"


def test_importing_the_package_imports_no_library():
    code = (
        "import sys, dlscale.analysis; sys.exit(bool({'pandas', 'matplotlib', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
