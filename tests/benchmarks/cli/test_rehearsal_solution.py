"""A rehearsal of time to solution: samples of local trainings, rates of a prediction, no batch extrapolated."""

import json
from types import SimpleNamespace

import pytest

from dlscale.analysis.predict.solution import SamplesToTarget, samples_of
from dlscale.analysis.statistics import Interval
from dlscale.benchmarks.cli import cli, rehearsal_solution
from dlscale.benchmarks.cli.rehearsal_solution import same_rules
from dlscale.benchmarks.records.prediction import Band, read_predictions
from dlscale.benchmarks.records.record import Cell
from dlscale.benchmarks.records.target import Target
from dlscale.benchmarks.study.study import load_study

SAMPLES = {16: (8000, 16_000, 32_000), 32: (10_000, 20_000, 40_000)}


def trained(batch):
    low, center, high = SAMPLES[batch]
    return SamplesToTarget(
        global_batch=batch,
        framework="torch",
        preset="tiny",
        samples=Band(low=low, center=center, high=high),
        target="AUC 0.993",
        source=f"8 measured trainings at global batch {batch}",
    )


@pytest.fixture
def rehearsed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(rehearsal_solution, "local_samples", lambda *_: [trained(16), trained(32)])
    command = [
        "run",
        "time-to-solution",
        "--system",
        "cori",
        "--nodes",
        "1,2,4,32,64",
        "--backends",
        "none,ring",
    ]
    assert cli.main([*command, "--results", str(tmp_path)], standalone_mode=False) == 0
    (folder,) = tmp_path.glob("cori/rehearsal-time-to-solution-*")
    return folder, capsys.readouterr().out


def test_the_time_is_samples_over_the_rate_at_the_batch_they_were_trained_at(rehearsed):
    folder, text = rehearsed
    assert text.startswith(
        "rehearsal: this machine is not cori; nothing is submitted and nothing was measured\n"
    )
    assert "no time to solution on 64 nodes" in text
    assert "none is extrapolated" in text
    stem = "hep_cnn-tiny-solution-predicted"
    records = read_predictions(folder / "figures" / f"{stem}.jsonl")
    assert {(it.global_batch, it.num_nodes) for it in records} == {
        *((16, nodes) for nodes in (1, 2, 4)),
        *((32, nodes) for nodes in (1, 2, 4, 32)),
    }
    for record in records:
        low, center, high = SAMPLES[record.global_batch]
        rate, seconds = record.samples_per_second, record.seconds_to_target
        assert (record.evidence, record.target, record.scaling_mode) == ("simulated", "AUC 0.993", "strong")
        assert seconds.center == pytest.approx(center / rate.center)
        assert (seconds.low, seconds.high) == pytest.approx((low / rate.high, high / rate.low))
    rows = json.loads((folder / "figures" / f"{stem}.json").read_text())["rows"]
    assert [row["seconds_to_target"] for row in rows] == [it.seconds_to_target.center for it in records]
    assert {path.suffix for path in (folder / "figures").glob(f"{stem}.*")} >= {
        ".png",
        ".pdf",
        ".svg",
        ".csv",
    }
    assert list(folder.glob("job-*.sh"))


def test_only_trainings_by_the_same_rules_count():
    study = load_study("time-to-solution")
    stored = study.model_dump(mode="json")
    assert same_rules(stored, study, "hep_cnn")
    stored["target"]["max_seconds"] = 5.0
    stored["target"]["goals"]["hep_cnn"]["tiny"]["samples"] = 1
    assert same_rules(stored, study, "hep_cnn"), "neither changes how many samples it takes"
    for changes in (
        {"threshold": 0.9, "metric": "auc"},
        {"learning_rate": 0.1},
        {"learning_rate_scaling": "linear"},
    ):
        assert not same_rules(stored | {"target": stored["target"] | changes}, study, "hep_cnn")
    assert not same_rules(stored | {"target": None}, study, "hep_cnn")


def test_samples_are_those_of_synchronous_trainings_with_an_interval():
    def row(batch, trainings, limits, algorithm="sync"):
        cell = Cell.model_construct(
            workload="hep_cnn",
            preset="tiny",
            framework="torch",
            backend="ring",
            backend_options={},
            precision="fp32",
            algorithm=algorithm,
            global_batch=batch,
        )
        low, high = limits
        samples = Interval(center=15_000.0, low=low, high=high, level=0.95, method="m", n=trainings)
        target = Target.model_construct(metric="auc", threshold=0.993, evaluate_seconds=None)
        return SimpleNamespace(
            cell=cell, samples=samples, target=target, trainings=[None] * trainings, evidence="measured"
        )

    rows = [
        row(16, 6, (10_000, 20_000)),
        row(16, 8, (9000, 20_000)),
        row(32, 8, (9000, None)),
        row(64, 8, (9000, 20_000), algorithm="easgd"),
    ]
    (found,) = samples_of(rows, "hep_cnn", "a-study")
    assert (found.global_batch, found.samples.low) == (16, 9000)
    assert found.source.startswith(
        "8 measured trainings of hep_cnn tiny in torch over ring at global batch 16"
    )
    assert samples_of(rows, "resnet50", "a-study") == []
