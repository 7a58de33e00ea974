import json

import pytest
from click.testing import CliRunner

from dlscale.analysis.figures.write import write_figures
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import scaling_row
from dlscale.analysis.measured import measure
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.cli.report import report
from dlscale.benchmarks.records.files import PARITIES
from dlscale.benchmarks.records.record import Gate, Parity
from tests.analysis.reading import table_text
from tests.made_records import make_record, write_study

FAILED = "not comparable between frameworks: tiny: gradient, tiny: loss"


def verdict(passed, workload="hep_cnn", **fields):
    checks = [("tiny: layers", True), ("tiny: gradient", passed), ("tiny: loss", passed)]
    return Parity(
        workload=workload,
        preset=fields.get("preset", "tiny"),
        precision=fields.get("precision", "fp32"),
        num_parameters={"torch": 1, "tensorflow": 1},
        checks=[Gate(name=name, passed=ok, value=0.1, tolerance=0.01, detail="d") for name, ok in checks],
    )


def rows_of(table):
    """As --json has them."""
    return [scaling_row(row) for row in scaling.FINDING.of(table)]


def both(num_blocks=6, **fields):
    """One cell of one workload in both frameworks."""
    return [
        make_record(framework=framework, block=block, **fields)
        for framework in ("torch", "tensorflow")
        for block in range(num_blocks)
    ]


def test_a_pair_that_passed_is_comparable():
    table = measure(both(), parities=[verdict(True)])
    assert [row["comparable"] for row in rows_of(table)] == [True, True]
    assert not any(
        "compar" in note or "parity" in note for row in scaling.FINDING.of(table) for note in row.notes
    )
    assert table_text(table).count("torch and tensorflow: same network (parity gate passed)") == 1


def test_a_pair_that_failed_is_not_comparable_in_any_report(tmp_path):
    table = measure(both(), parities=[verdict(False)])
    rows = rows_of(table)
    assert [row["comparable"] for row in rows] == [False, False]
    assert all(row["notes"][0] == FAILED for row in rows)
    text = table_text(table)
    assert "torch and tensorflow: NOT COMPARABLE, the parity gate failed: tiny: gradient, tiny: loss" in text
    assert FAILED in text
    for path in write_figures(table, tmp_path):
        content, name = path.read_bytes(), path.stem.rpartition("-")[2]
        if path.stem.startswith("start-up"):
            continue  # of launches, not of networks
        if path.suffix == ".png":
            assert f"{name}: NOT COMPARABLE between torch and tensorflow: HEP-CNN tiny".encode() in content
        elif path.suffix == ".csv":
            assert (b",False," if name == "ecdf" else FAILED.encode()) in content


@pytest.mark.parametrize(
    "others",
    [
        [],
        [{"workload": "resnet50", "passed": True}],
        [{"preset": "paper", "passed": True}],
        [{"precision": "bf16", "passed": True}],
        [{"precision": "bf16", "passed": False}],
    ],
)
def test_the_verdict_on_something_else_is_none(others):
    table = measure(both(), parities=[verdict(**other) for other in others])
    assert [row["comparable"] for row in rows_of(table)] == [None, None]
    assert all(row.notes[0] == "parity not checked" for row in scaling.FINDING.of(table))
    assert "torch and tensorflow: parity not checked, so do not compare them" in table_text(table)


def test_one_framework_alone_needs_no_parity():
    records = [make_record(block=block) for block in range(6)]
    records += [
        make_record(block=block, framework="tensorflow", workload="resnet50", evidence="measured")
        for block in range(6)
    ]
    table = measure(records, parities=[verdict(False)])
    assert [row["comparable"] for row in rows_of(table)] == [None, None]
    assert "arity" not in table_text(table)


def test_a_framework_that_is_only_planned_makes_a_pair():
    records = both()
    planned = [record.case for record in records]
    table = measure(
        [record for record in records if record.case.cell.framework == "torch"],
        planned=planned,
        parities=[verdict(False)],
    )
    assert [(row.pair.comparable, row.notes[0]) for row in scaling.FINDING.of(table)] == [(False, FAILED)] * 2
    assert "not run" in scaling.FINDING.of(table)[0].notes


def test_every_workload_has_its_own_verdict():
    records = [*both(), *both(workload="resnet50"), *both(workload="cosmogan")]
    table = measure(records, parities=[verdict(True), verdict(False, workload="resnet50")])
    found = {row["workload"]: row["comparable"] for row in rows_of(table)}
    assert found == {"hep_cnn": True, "resnet50": False, "cosmogan": None}


@pytest.fixture
def report_status(tmp_path):
    """The exit status of `dlscale report --json` on a folder with these records and verdicts, and its rows."""

    def ask(records, parities):
        folder = tmp_path / "results" / "local" / "weak-scaling-01234567"
        write_study(folder, records, launches=[])
        (folder / "parity.json").write_bytes(PARITIES.dump_json(parities))
        runner = CliRunner()
        result = runner.invoke(
            report, ["--json", "--results", str(tmp_path / "results")], standalone_mode=False
        )
        assert result.exception is None, result.output
        return result.return_value, json.loads(result.stdout)["rows"]

    return ask


@pytest.mark.parametrize(
    ("passed", "num_blocks", "failure", "status"),
    [
        (True, 6, None, 0),
        (False, 6, None, NOT_COMPARABLE),
        (False, 6, "hung", FAILED_CASES),
        (False, 2, None, NOT_COMPARABLE),
        (True, 2, None, INSUFFICIENT_DATA),
    ],
)
def test_a_report_exits_with_the_worst_of_what_it_shows(report_status, passed, num_blocks, failure, status):
    failed = [make_record(block=6, failure=failure)] if failure else []
    found, rows = report_status([*both(num_blocks=num_blocks), *failed], [verdict(passed)])
    assert (found, {row["comparable"] for row in rows}) == (status, {passed})
