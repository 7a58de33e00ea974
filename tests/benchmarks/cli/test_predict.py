"""`dlscale predict`: rows with stable keys, what is written, and refusals in one line."""

import csv
import importlib
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from dlscale.analysis.predict.profile import Gradient
from dlscale.analysis.predict.public_profiles import stored_profile
from dlscale.analysis.predict.show import prediction_row
from dlscale.benchmarks.cli import cli
from dlscale.benchmarks.records.prediction import read_predictions
from dlscale.benchmarks.systems.system import load_system
from tests.made_records import profile_record

KEYS = [
    *("system", "workload", "preset", "framework", "scaling_mode", "backend", "backend_options"),
    *("shard", "curve", "num_nodes", "num_ranks", "num_servers"),
    *("samples_per_second", "samples_per_second_low", "samples_per_second_high"),
]
ASKED = ["predict", "weak-scaling", "--system", "cori"]
STEM = "cori/predictions/hep_cnn-paper-tensorflow-weak-scaling"


def said(*words):
    done = CliRunner().invoke(cli, [*ASKED, *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def rows_of(*words):
    return json.loads(said(*words, "--json"))["prediction"]


def test_the_whole_machine_by_doubling_as_json():
    answer = json.loads(said("--backends", "ring,grpc_ps", "--nodes", "1:8192:x2", "--json"))
    rows = answer["prediction"]
    assert answer["schema"] == 2
    assert list(rows[0])[: len(KEYS)] == KEYS
    assert [row["num_nodes"] for row in rows if row["backend"] == "ring"] == [2**k for k in range(14)]
    assert {row["evidence"] for row in rows} == {"simulated"}
    assert all(0 < row["efficiency_low"] <= row["efficiency"] <= row["efficiency_high"] < 1.1 for row in rows)
    ring, servers = ([row for row in rows if row["backend"] == name][-1] for name in ("ring", "grpc_ps"))
    assert ring["efficiency"] > servers["efficiency"] + 0.1  # servers' time grows with ranks
    assert ring["samples_per_second"] == pytest.approx(8192 * 128 / ring["step_seconds"], rel=0.01)


def test_without_nodes_all_that_the_machine_has():
    rows = rows_of("--backends", "grpc_ps", "--set", "servers=1/2")
    assert [row["num_nodes"] for row in rows][-1] == 4096  # with 2048 servers; 8192 with 4096 are too many
    assert rows[-1]["num_servers"] == 2048


def test_table_figure_csv_and_records_say_that_nothing_was_measured(tmp_path):
    words = ["--nodes", "1,64", "--results", str(tmp_path)]
    text = said(*words, "--set", "ring.pipelined=true")
    first, *lines = text.splitlines()
    assert first.startswith("Predicted, not measured on cori: on 64 nodes ring (pipelined=")
    for needed in ("[ms]", "not modelled: ", "figure, CSV and records: "):
        assert any(needed in line for line in lines)
    stem = tmp_path / STEM
    with open(f"{stem}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["num_nodes"] for row in rows] == ["1", "64"]
    assert {row["evidence"] for row in rows} == {"simulated"}
    records = read_predictions(stem.with_suffix(".jsonl"))
    assert [str(prediction_row(record)["efficiency"]) for record in records] == [
        row["efficiency"] for row in rows
    ]
    for record in records:
        assert (record.backend, record.backend_options) == ("ring", {"pipelined": True})
        assert record.batch == 128
        assert sum(record.parts.values()) == pytest.approx(1 - record.efficiency.center, abs=0.01)
        assert any("Cray" in origin.source for origin in record.origins)
    assert stem.with_suffix(".png").is_file()
    said("--nodes", "1,32", *words[2:])
    assert [record.num_nodes for record in read_predictions(stem.with_suffix(".jsonl"))] == [1, 32]


def test_options_change_what_is_predicted():
    def efficiency(*words):
        return rows_of("--nodes", "8192", *words)[0]["efficiency"]

    ring = efficiency()
    assert efficiency("--set", "ring.pipelined=true") > ring
    assert efficiency("--set", "batch=8") < ring
    assert rows_of("--nodes", "4", "--set", "ranks_per_node=2")[0]["num_ranks"] == 8


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--nodes", "16384"], "16384 nodes on cori, which has 9688"),
        (
            ["--backends", "grpc_ps", "--nodes", "8192", "--set", "servers=1/2"],
            "12288 nodes (4096 servers included)",
        ),
        (["--system", "local"], "local states no [fabric]"),
        (["--profile", "none-such.toml"], "none-such.toml"),
        (["--profile", "a.toml", "--from", "b"], "--from and --profile are mutually exclusive"),
        (["--workloads", "resnet51"], "no workload 'resnet51'"),
        (["--set", "servers=0"], "servers=0: string should match"),
        (["--backends", "gloo"], "backend gloo does not train in tensorflow"),
        (["--set", "gloo.bucket_cap_mb=5"], "gloo is not among --backends ring"),
        (["--set", "ring.teams=0|1"], "option teams of backend ring is [0, 1]"),
        (["--set", "batch=8|16"], "batch has several values"),
        (["--set", "ring.topk_share=0.1"], "predictions do not model ring.topk_share"),
        (["--set", "launches=3"], "--set launches: nothing here depends on it; choose from: frameworks"),
        (["--nodes", "0"], "'0' is not among positive counts"),
        (["--from", "none-such"], "no study"),
    ],
)
def test_a_mistake_is_one_line(words, text, mistake, tmp_path):
    assert text in mistake(*ASKED, *words, "--results", tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_measured_profile_comes_from_a_studys_records(monkeypatch, tmp_path):
    """With a stand-in for the reader of profiles, which has tests of its own."""
    asked = []

    def profile_of(records, workload, framework, **wanted):
        asked.append((len(records), workload, framework, wanted))
        return replace(
            stored_profile(load_system("cori"), workload),
            framework=framework,
            local_batch=2,
            forward_seconds=0.04,
            backward_seconds=0.14,
            gradients=(Gradient(name="all", num_bytes=4_000_000, ready_seconds=0.14),),
            step_seconds=tuple(0.1 + 0.01 * (index % 10) for index in range(200)),
            evidence="measured",
            source="a study",
        )

    monkeypatch.setitem(
        sys.modules, "dlscale.analysis.predict.measured", SimpleNamespace(profile_of=profile_of)
    )
    module = importlib.import_module("dlscale.benchmarks.cli.predict")
    monkeypatch.setattr(module, "load_records", lambda _: ([profile_record()], []))
    folder = tmp_path / "local" / "mine-1"
    folder.mkdir(parents=True)
    (folder / "study.json").write_text("{}")
    words = ["--from", "mine", "--results", str(tmp_path), "--nodes", "1,64", "--set", "preset=tiny"]
    rows = rows_of(*words, "--set", "frameworks=torch,tensorflow", "--backends", "mpi")
    assert [row["framework"] for row in rows] == ["torch"] * 2 + ["tensorflow"] * 2
    # The slowest of 64 takes as long as the longest of the measured steps.
    assert rows[1]["stragglers_loss"] == pytest.approx((0.19 - 0.145) / 0.19, abs=0.03)
    assert asked[0] == (1, "hep_cnn", "torch", {"preset": "tiny"})


def test_a_system_without_a_profile_is_predicted_as_its_rehearsal_is(dlscale, tmp_path):
    """Perlmutter's file states no latency, and nothing is published of its nodes."""
    words = ["--system", "perlmutter", "--workloads", "resnet50", "--backends", "ring,mpi"]
    given = ["--nodes", "1,4", "--results", str(tmp_path)]
    text = said(*words, *given)
    assert (
        len(
            [
                line
                for line in text.splitlines()
                if line.startswith(("Predicted", "assumed", "not mod", "figure"))
            ]
        )
        == 4
    )
    assert "assumed: latency of a message, congestion between" in text
    status, _, err = dlscale(
        "run", "weak-scaling", *words, *given, "--data", "synthetic", "--walltime", "24h"
    )
    assert status == 0, err
    predicted, rehearsed = (
        {
            (it.backend, it.num_nodes): it
            for it in read_predictions(next(tmp_path.glob(f"perlmutter/{place}.jsonl")))
        }
        for place in ("predictions/*", "rehearsal-*/figures/*")
    )
    assert predicted.keys() == rehearsed.keys()
    for key, record in predicted.items():
        assert record.efficiency == rehearsed[key].efficiency
        assert record.origins == rehearsed[key].origins
        assert any(origin.kind == "assumed" for origin in record.origins)


PROFILE = """
system = "cori"
workload = "resnet50"
preset = "paper"
framework = "tensorflow"
local_batch = { value = 16, source = "mine" }
sample_time = { value = "20 ms", source = "mine" }
variation = { low = 0.01, high = 0.02, source = "mine", note = "half an hour of steps" }
[sources]
mine = "our log of 3 May"
"""


def test_a_profile_of_a_users_own_has_a_source_for_each_number(tmp_path, mistake):
    path = tmp_path / "mine.toml"
    path.write_text(PROFILE)
    (row,) = rows_of("--profile", str(path), "--nodes", "1")
    assert (row["workload"], row["preset"], row["local_batch"]) == ("resnet50", "paper", 16)
    assert row["samples_per_second"] == pytest.approx(50, rel=0.02)
    told = json.loads(said("--profile", str(path), "--nodes", "1", "--json"))["assumptions"][0]
    assert (told["value"], told["kind"], told["source"]) == ("20 ms", "stated", "our log of 3 May")
    for words, text in (
        (["--system", "theta"], "is of cori, and the system is theta"),
        (["--workloads", "resnet50"], "leave out workloads"),
    ):
        assert text in mistake(*ASKED, "--profile", path, *words)
    path.write_text(PROFILE.replace('value = 16, source = "mine"', "value = 16"))
    assert "local_batch.source: field required" in mistake(*ASKED, "--profile", path)


def test_strong_scaling_needs_nodes_that_divide_the_batch(dlscale, mistake):
    asked = ("predict", "strong-scaling", "--system", "cori")
    assert "global batch 64 is not a multiple of 48 ranks" in mistake(*asked, "--nodes", "1,48")
    status, out, _ = dlscale(*asked, "--json")
    assert status == 0
    rows = json.loads(out)["prediction"]
    assert [row["local_batch"] for row in rows] == [64, 32, 16, 8, 4, 2, 1]
