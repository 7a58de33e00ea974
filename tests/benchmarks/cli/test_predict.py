"""`dlscale predict`: rows with stable keys, what is written, and refusals in one line."""

import csv
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from dlscale.analysis.predict.calibration import Calibration, CalibrationPoint
from dlscale.analysis.predict.exchange import NetworkExchange
from dlscale.analysis.predict.profile import Gradient
from dlscale.analysis.predict.published_profiles import load_stored
from dlscale.analysis.records import prediction_row
from dlscale.benchmarks.cli import calibration, cli, main
from dlscale.benchmarks.records.prediction import read_predictions
from dlscale.benchmarks.systems.system import load_system

GOLDEN = Path(__file__).parents[2] / "golden" / "records"

KEYS = [
    *("system", "workload", "backend", "num_nodes", "num_ranks", "samples_per_second", "efficiency"),
    *("low", "high", "evidence"),
]
ASKED = ["predict", "weak-scaling", "--system", "cori", "--replicates", "200"]


def said(*words):
    done = CliRunner().invoke(cli, [*ASKED, *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_the_whole_machine_by_doubling_as_json():
    words = ["--workloads", "hep_cnn", "--backends", "ring,grpc_ps", "--nodes", "1:8192:x2", "--json"]
    answer = json.loads(said(*words))
    rows = answer["rows"]
    assert answer["schema"] == 1
    assert list(rows[0])[: len(KEYS)] == KEYS
    assert [row["num_nodes"] for row in rows if row["backend"] == "ring"] == [2**k for k in range(14)]
    assert {row["evidence"] for row in rows} == {"simulated"}
    assert all(0 < row["low"] <= row["efficiency"] <= row["high"] < 1.1 for row in rows)
    ring, servers = ([row for row in rows if row["backend"] == name][-1] for name in ("ring", "grpc_ps"))
    assert ring["efficiency"] > servers["efficiency"] + 0.1  # servers' time grows with ranks
    assert ring["samples_per_second"] == pytest.approx(8192 * 128 / ring["step_seconds"], rel=0.01)


def test_without_nodes_all_that_the_machine_has():
    rows = json.loads(said("--backends", "grpc_ps", "--servers", "1/2", "--json"))["rows"]
    assert [row["num_nodes"] for row in rows][-1] == 4096  # with 2048 servers; 8192 with 4096 are too many
    assert rows[-1]["num_servers"] == 2048


def test_table_figure_and_csv_say_that_nothing_was_measured(tmp_path):
    words = ["--backends", "ring", "--nodes", "1,64", "--explain", "--results", str(tmp_path)]
    text = said(*words)
    first, *lines = text.splitlines()
    assert first.startswith(
        "predicted, nothing was measured on cori here: published profile, 40 ms per sample"
    )
    assert first.endswith("engine loggp 1")
    assert any("stragglers" in line and "exposed communication" in line for line in lines)
    assert any("half the latency" in line for line in lines)
    stem = tmp_path / "cori" / "predictions" / "hep_cnn-paper-tensorflow-weak-scaling"
    with open(f"{stem}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["num_nodes"] for row in rows] == ["1", "64"]
    assert {row["evidence"] for row in rows} == {"simulated"}
    records = read_predictions(stem.with_suffix(".jsonl"))
    assert [str(prediction_row(record)["efficiency"]) for record in records] == [
        row["efficiency"] for row in rows
    ]
    assert [record.num_replicates for record in records] == [200, 200]
    assert [sum(record.parts.values()) for record in records] == [
        pytest.approx(1 - record.efficiency.center, abs=0.01) for record in records
    ]
    drawn = stem.with_suffix(".png").stat().st_mtime_ns
    assert said(*words) == text
    assert stem.with_suffix(".png").stat().st_mtime_ns == drawn  # the same numbers are not drawn again
    said(*words[:3], "1,32", *words[4:])
    assert stem.with_suffix(".png").stat().st_mtime_ns != drawn
    assert [record.num_nodes for record in read_predictions(stem.with_suffix(".jsonl"))] == [1, 32]


def test_a_record_says_what_was_asked_for(tmp_path):
    words = ["--nodes", "4", "--results", str(tmp_path), "--algorithm", "two_level_ring"]
    said(*words, "--backend-options", "ring.pipelined=true")
    (record,) = read_predictions(
        tmp_path / "cori" / "predictions" / "hep_cnn-paper-tensorflow-weak-scaling.jsonl"
    )
    assert (record.backend, record.backend_options) == ("ring", {"pipelined": True})
    assert record.exchange_algorithm == "two_level_ring"
    assert (record.system, record.num_nodes, record.batch) == ("cori", 4, 128)
    assert record.profile_evidence == "published"
    assert "Cray" in record.network_source


def test_the_sensitivity_is_data_too():
    answer = json.loads(said("--nodes", "8", "--explain", "--json"))
    changes = {row["change"]: row["efficiency"] for row in answer["sensitivity"]}
    assert list(changes) == [
        *("as it is", "twice the bandwidth", "half the latency", "half the jitter", "bf16 gradients")
    ]
    assert changes["as it is"] == answer["rows"][0]["efficiency"]


def test_options_change_what_is_predicted():
    def efficiency(*words):
        return json.loads(said("--nodes", "8192", "--json", *words))["rows"][0]["efficiency"]

    ring = efficiency()
    assert efficiency("--algorithm", "two_level_ring") > ring
    assert efficiency("--backend-options", "ring.pipelined=true") > ring
    assert efficiency("--batch", "8") < ring


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--nodes", "16384"], "16384 nodes on cori, which has 9688"),
        (
            ["--backends", "grpc_ps", "--nodes", "8192", "--servers", "1/2"],
            "12288 nodes (4096 servers included)",
        ),
        (["--system", "local"], "local states no [fabric]"),
        (["--system", "frontier"], "frontier states no fabric.latency"),
        (["--workloads", "resnet50"], "no stored profile of resnet50 on cori"),
        (["--workloads", "resnet51"], "no workload 'resnet51'"),
        (["--preset", "tiny"], "is of preset paper in tensorflow; leave --preset"),
        (["--frameworks", "torch"], "is of preset paper in tensorflow; leave --preset"),
        (["--servers", "0"], "--servers '0' is not a number of servers"),
        (["--backends", "gloo"], "backend gloo does not train in tensorflow"),
        (["--backend-options", "gloo.bucket_cap_mb=5"], "gloo, which is not among --backends ring"),
        (["--backend-options", "ring.teams=0|1"], "ring.teams has several values"),
        (["--backend-options", "ring.topk_share=0.1"], "predictions do not model ring.topk_share"),
        (["--nodes", "0"], "'0' is not an ascending range"),
        (["--from", "none-such"], "no study"),
    ],
)
def test_a_mistake_is_one_line(words, text, capsys, tmp_path):
    with pytest.raises(SystemExit) as caught:
        main([*ASKED, *words, "--results", str(tmp_path)])
    assert caught.value.code == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert text in line
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_measured_profile_comes_from_a_studys_records(monkeypatch, tmp_path):
    """With a stand-in for the reader of profiles, which has tests of its own."""
    asked = []

    def profile_of(records, workload, framework, **wanted):
        asked.append((len(records), workload, framework, wanted))
        steps = tuple(0.1 + 0.01 * (index % 10) for index in range(200))
        return replace(
            load_stored(load_system("cori"), workload),
            framework=framework,
            local_batch=2,
            forward_seconds=0.04,
            backward_seconds=0.14,
            gradients=(Gradient(name="all", num_bytes=4_000_000, ready_seconds=0.14),),
            step_seconds=steps,
            evidence="measured",
            source="weak-scaling-2c2a4218",
        )

    monkeypatch.setitem(
        sys.modules, "dlscale.analysis.predict.measured_profiles", SimpleNamespace(profile_of=profile_of)
    )
    study = "weak-scaling-2c2a4218"
    shutil.copytree(GOLDEN / study, tmp_path / "local" / study)
    words = ["--from", study, "--results", str(tmp_path), "--nodes", "1,64", "--preset", "tiny", "--json"]
    rows = json.loads(said(*words, "--frameworks", "torch,tensorflow", "--backends", "mpi"))["rows"]
    assert [row["framework"] for row in rows] == ["torch"] * 2 + ["tensorflow"] * 2
    assert {row["profile_evidence"] for row in rows} == {"measured"}
    assert {row["evidence"] for row in rows} == {"simulated"}
    # The slowest of 64 takes as long as the longest of the measured steps.
    assert rows[1]["stragglers_loss"] == pytest.approx((0.19 - 0.145) / 0.19, abs=0.03)
    assert asked[0][1:] == ("hep_cnn", "torch", {"preset": "tiny"})
    assert asked[0][0] > 0


@pytest.fixture
def calibrated_on_four(monkeypatch, tmp_path):
    """A stand-in for the fit, which has tests of its own: 4 nodes, and an error that a test may change."""
    asked = SimpleNamespace(held_out_error=0.04)
    largest = CalibrationPoint(
        exchange=NetworkExchange(algorithm="ring", num_nodes=4), num_bytes=1 << 20, seconds=1e-3
    )

    def calibrated(points, start, *, source):
        assert points == [largest]
        return Calibration(
            network=replace(
                start, latency_seconds=2e-6, latency_factors=(0.9, 1.1), source=f"calibrated: {source}"
            ),
            num_points=1,
            held_out=largest,
            held_out_error=asked.held_out_error,
            scatter=0.02,
        )

    def points_of_study(_, backend, *, fingerprint):
        assert (backend, fingerprint) == ("ring", None)
        return [largest]

    monkeypatch.setattr(calibration, "calibrated", calibrated)
    monkeypatch.setattr(calibration, "points_of_study", points_of_study)
    monkeypatch.setattr(calibration, "exchanges_of", lambda *_: [])  # the records are of another system
    study = "weak-scaling-2c2a4218"
    shutil.copytree(GOLDEN / study, tmp_path / "local" / study)
    asked.words = ["--calibrate", study, "--results", str(tmp_path)]
    return asked


def test_a_calibrated_network_says_what_it_was_held_to(calibrated_on_four):
    words = [*calibrated_on_four.words, "--nodes", "1,256", "--backends", "ring,none"]
    ring, none = (
        [row for row in json.loads(said(*words, "--json"))["rows"] if row["backend"] == name][-1]
        for name in ("ring", "none")
    )
    assert (ring["calibrated_nodes"], ring["held_out_error"], ring["doubts"]) == (4, 0.04, "")
    assert none["calibrated_nodes"] is None
    plain = json.loads(said("--nodes", "256", "--json"))["rows"][0]
    assert plain["network_digest"] != ring["network_digest"]


@pytest.mark.parametrize(
    ("error", "nodes", "doubt"),
    [
        (0.04, "257", "257 nodes are more than 64 times the 4 of the calibration"),
        (-0.2, "4", "wrong by -20 % for its largest point"),
    ],
)
def test_what_a_calibration_cannot_carry_is_refused_unless_forced(
    calibrated_on_four, error, nodes, doubt, capsys
):
    calibrated_on_four.held_out_error = error
    words = [*ASKED, *calibrated_on_four.words, "--nodes", nodes, "--json"]
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert doubt in line
    assert line.endswith("or --force to see it all the same")
    with pytest.raises(SystemExit):
        main([*words, "--force"])
    assert doubt in json.loads(capsys.readouterr().out)["rows"][0]["doubts"]


def test_strong_scaling_needs_nodes_that_divide_the_batch(capsys):
    with pytest.raises(SystemExit):
        main(["predict", "strong-scaling", "--system", "cori", "--nodes", "1,48"])
    assert "global batch 64 is not a multiple of 48 ranks" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["predict", "strong-scaling", "--system", "cori", "--replicates", "100", "--json"])
    assert caught.value.code == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["local_batch"] for row in rows] == [64, 32, 16, 8, 4, 2, 1]


def test_a_grid_is_a_table_and_a_page_which_report_writes_again(tmp_path):
    words = ["--nodes", "1,64", "--results", str(tmp_path)]
    told = said(*words, "--grid", "link_rate=4,latency=1,jitter=1,batch=128")
    (page,) = tmp_path.glob("cori/predictions/*-what-if.html")
    (table,) = tmp_path.glob("cori/predictions/*-grid.csv")
    (records,) = tmp_path.glob("cori/predictions/*.jsonl")
    assert page.name in told
    assert len(table.read_text().splitlines()) == 1 + 2 * 2  # rates by nodes
    before = page.read_text()
    page.unlink()
    done = CliRunner().invoke(cli, ["report", str(records)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "nothing was measured on cori" in done.output
    assert page.read_text() == before
    rows = json.loads(CliRunner().invoke(cli, ["report", str(records), "--json"]).output)["rows"]
    assert [row["num_nodes"] for row in rows] == [1, 64]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--grid", "--json"], "mutually exclusive"),
        (["--grid", "link_rate=nan"], "give numbers from"),
        (["--grid", "speed=1"], "is no axis"),
        (["--grid", "batch=" + "|".join(map(str, range(1, 2000)))], "more than 50,000"),
    ],
)
def test_grids_that_cannot_be_are_one_line(words, reason, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*ASKED, "--nodes", "1,2", *words])
    assert caught.value.code == 1
    told = capsys.readouterr().err
    assert reason in " ".join(told.split())
    assert "Traceback" not in told
