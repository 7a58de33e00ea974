"""Logs of trainings to a target, judged by MLPerf's own compliance checker."""

import importlib
import json
from pathlib import Path

import pytest

from dlscale.benchmarks.cli import export as exports
from dlscale.benchmarks.exports.mllog import log_text, training_rules
from dlscale.benchmarks.records.record import Failure
from tests.analysis.findings.test_solutions import EVALUATING, LAUNCH, SET_UP, training
from tests.benchmarks.cli.test_export_records import export, study

__all__ = ["export", "study"]  # fixtures

pytestmark = pytest.mark.requires("mlperf_logging")
BATCH, STEP_SECONDS = 32, 0.1


def made(*, metric="auc", workload="hep_cnn", **fields):
    record = training(
        **{"steps": 40, "step_seconds": STEP_SECONDS, "num_training": 3497, "num_ranks": 2} | fields,
        backend="ring",
        workload=workload,
    )
    if metric == "auc":
        return record
    target = record.case.cell.target.model_copy(update={"metric": metric, "threshold": 0.4})
    cell = record.case.cell.model_copy(update={"target": target})
    evaluations = [
        evaluation.model_copy(update={"metrics": {metric: value}})
        for evaluation, value in zip(record.solution.evaluations, (0.7, 0.35), strict=True)
    ]
    solution = record.solution.model_copy(update={"evaluations": evaluations})
    return record.model_copy(
        update={"case": record.case.model_copy(update={"cell": cell}), "solution": solution}
    )


def events_of(record):
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in log_text(record).splitlines()]


@pytest.fixture
def accepts(tmp_path):
    """Whether the checker of MLPerf Training 6.0 accepts a log by these rules, its warnings taken as errors."""
    checker = importlib.import_module("mlperf_logging.compliance_checker.mlp_compliance")

    def check(text, rules=None):
        log, file = tmp_path / "training.log", tmp_path / "rules.yaml"
        log.write_text(text)
        file.write_text(rules or training_rules())
        own = checker.make_checker("training", "6.0.0", quiet=False, werror=True)
        accepted, *_ = checker.main(str(log), str(file), own)
        return accepted

    return check


@pytest.mark.parametrize(
    "record",
    [
        made(),
        made(end="budget", auc=0.7),
        made(metric="pixel_distance", workload="cosmogan"),
        made().model_copy(update={"failure": Failure(kind="gate", rank=None, message="weights differ")}),
    ],
    ids=["reached", "missed", "less is better", "gate failed"],
)
def test_the_checker_accepts_it(record, accepts):
    assert accepts(log_text(record))


def test_it_keeps_the_common_rules_of_the_checker_itself(accepts):
    """All that does not depend on the benchmark's name, which has to be one of MLPerf's."""
    package = importlib.import_module("mlperf_logging.compliance_checker")
    rules = (Path(package.__file__).parent / "training_6.0.0" / "common.yaml").read_text().splitlines()
    chain = [line for line in rules if "enqueue_config" in line and "POST" in line]
    assert len(chain) == 1
    kept = [line for line in rules if line not in chain]
    assert accepts(
        log_text(made()), "\n".join(kept).replace("'compile_time_mins': 0", "'compile_time_mins': 240")
    )


def test_a_training_that_diverged_before_any_metric_is_aborted_and_accepted(accepts):
    record = made(end="diverged")
    evaluations = [record.solution.evaluations[0].model_copy(update={"loss": None, "metrics": {}})]
    record = record.model_copy(
        update={"solution": record.solution.model_copy(update={"evaluations": evaluations})}
    )
    assert accepts(log_text(record))
    found = events_of(record)
    assert found[-1]["metadata"]["status"] == "aborted"
    assert not [event for event in found if event["key"] in ("eval_accuracy", "train_loss")]


@pytest.mark.parametrize(
    "key",
    [
        "seed",
        "opt_name",
        "opt_base_learning_rate",
        "train_samples",
        "quality_target",
        "block_stop",
        "eval_stop",
    ],
)
def test_the_checker_complains_of_a_missing_event(key, accepts):
    lines = log_text(made()).splitlines()
    assert not accepts("\n".join(line for line in lines if f'"key": "{key}"' not in line))


def test_a_success_that_reached_nothing_is_refused(accepts):
    text = log_text(made(end="budget", auc=0.7))
    assert not accepts(text.replace('"status": "aborted"', '"status": "success"'))


def test_events_have_the_record_s_times_samples_and_values():
    record = made()
    found = events_of(record)
    times = [event["time_ms"] for event in found]
    assert times == sorted(times)
    values = {event["key"]: event["value"] for event in found}
    assert (values["seed"], values["global_batch_size"], values["opt_name"]) == (1, BATCH, "adam")
    assert (values["opt_base_learning_rate"], values["train_samples"]) == (1e-3, 3497)
    evaluations = [event for event in found if event["key"] == "eval_accuracy"]
    assert [event["value"] for event in evaluations] == [0.5, 0.95]
    assert [event["metadata"]["samples_count"] for event in evaluations] == [20 * BATCH, 40 * BATCH]
    assert evaluations[-1]["metadata"]["epoch_num"] == pytest.approx(40 * BATCH / 3497)
    at = {event["key"]: event["time_ms"] / 1000 for event in found}
    gates = 1
    assert at["run_start"] - at["init_start"] == pytest.approx(LAUNCH + gates + SET_UP, abs=2e-3)
    assert at["run_stop"] - at["run_start"] == pytest.approx(40 * STEP_SECONDS + EVALUATING, abs=2e-3)
    rates = [event["value"]["throughput"] for event in found if event["key"] == "tracked_stats"]
    assert rates == [pytest.approx(BATCH / STEP_SECONDS)] * 2


def test_the_command_writes_logs_and_rules_and_says_how_to_check(study, export, accepts):
    record = made()
    folder = study(record)
    status, text = export(exports.mllog)
    assert status == 0
    assert text.splitlines()[0] == f"1 logs in {folder / 'mllog'}"
    assert (
        f"mlperf_logging.compliance_checker --ruleset 6.0.0 --config {folder / 'mllog' / 'rules.yaml'} LOG"
        in text
    )
    log = (folder / "mllog" / f"{record.case.id}.1.log").read_text()
    assert accepts(log, (folder / "mllog" / "rules.yaml").read_text())
