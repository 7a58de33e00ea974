"""`dlscale accept`: expectations from baselines, and the verdict on a study that was measured since."""

import ast
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from dlscale.analysis.findings.acceptance import telling_order
from dlscale.benchmarks.cli import cli
from dlscale.benchmarks.cli.accept import QUICK_SECONDS, quick_launches
from dlscale.benchmarks.launch.campaign import describe_campaign
from dlscale.benchmarks.launch.preparing import prepare_campaign
from dlscale.benchmarks.records.expectations import read_expectations
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.plan import Launch
from dlscale.benchmarks.study.sizes import shape
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import load_system
from tests.made_histories import make_history
from tests.made_records import in_detail, make_record, write_study


def ask(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["accept", *map(str, words)], standalone_mode=False)


@pytest.fixture
def bench(tmp_path):
    """Makes baselines with expectations of theirs, and further studies; gives results folder and the last study."""

    def make(*, baselines=3, **fields):
        fields = {"spread": 0.004, "common": 0.01, **fields}
        studies = make_history(tmp_path / "r", studies=baselines + 1, **fields)
        last = shutil.move(studies[-1], tmp_path / "new")
        return tmp_path / "r", Path(last)

    return make


def test_a_loss_of_7_percent_in_one_backend_after_three_baselines_is_named_and_that_cell_alone(bench):
    results, new = bench(lost={(3, "ring", 2): 0.07}, versions={3: {"mpi": "MPICH 5.0"}})
    assert ask("--record", "--results", results).return_value == 0
    said = ask(new, "--results", results)
    assert said.return_value == 2
    told = " ".join(said.stdout.split())
    assert "7 of 8 cells as expected" in told
    assert "slower: ring on 2 ranks, throughput, -" in told
    assert told.count("slower:") == 1
    assert "Since the last baseline: mpi MPICH 4.3 -> MPICH 5.0" in told
    assert "With 3 baselines a change of throughput by " in told
    assert len(said.stdout.splitlines()) <= 40


def test_an_unchanged_machine_is_as_expected(bench):
    results, new = bench()
    ask("--record", "--results", results)
    said = ask(new, "--results", results, "--json")
    assert said.return_value == 0
    assert {row["verdict"] for row in json.loads(said.stdout)["rows"]} == {"as expected"}


def test_a_busy_machine_is_said_to_have_been(bench, monkeypatch):
    results, new = bench()
    ask("--record", "--results", results)
    assert "busy" not in ask(new, "--results", results).stderr
    monkeypatch.setattr(Record, "disturbed", property(lambda record: record.case.cell.backend == "ring"))
    assert "the machine was busy in 12 of 48 cases" in ask(new, "--results", results).stderr


def test_another_machine_or_measured_code_is_not_comparable(bench):
    results, new = bench(node={3: {"cpu_model": "Xeon"}})
    ask("--record", "--results", results)
    said = ask(new, "--results", results)
    assert said.return_value == 3
    assert "not comparable: cpu_model EPYC, here Xeon" in said.stdout
    for path in new.glob("records/*"):
        path.write_text(path.read_text().replace("Xeon", "EPYC").replace("abababababababab", "c" * 16))
    said = ask(new, "--results", results)
    assert said.return_value == 3
    assert "measured code of dlscale is another" in " ".join(said.stdout.split())


def test_an_expected_cell_that_was_not_measured_is_named_and_the_rest_is_answered(bench):
    results, new = bench(lost={(3, "ring", 2): 0.07})
    ask("--record", "--results", results)
    for path in new.glob("records/*gloo-2r*"):
        path.unlink()
    said = ask(new, "--results", results)
    assert said.return_value == 2
    assert "Not measured: gloo on 2 ranks." in said.stdout
    assert "slower: ring on 2 ranks, throughput" in said.stdout


@pytest.mark.parametrize(("baselines", "node", "expected"), [
    (1, {}, "1 baseline in"),
    (2, {}, "2 baselines in"),
    (4, {3: {"cpu_model": "Xeon"}}, "1 baseline in"),
])  # fmt: skip
def test_too_few_baselines_of_one_machine_are_refused_in_one_line(bench, baselines, node, expected):
    results, _ = bench(baselines=baselines, node=node)
    said = ask("--record", "--results", results)
    assert type(said.exception).__name__ == "UsageError"
    assert str(said.exception).startswith(expected)
    assert "\n" not in str(said.exception)


def test_baselines_of_another_machine_are_left_out_and_the_rest_recorded(bench):
    results, _ = bench(baselines=4, node={0: {"cpu_model": "Xeon"}, 1: {"cpu_model": "EPYC"}})
    said = ask("--record", "--results", results)
    assert said.return_value == 0
    assert "left out: 2026-11-01/local/weak-scaling-1a2b, not like" in said.stderr
    assert len(read_expectations(results / "local" / "expectations.toml").baselines) == 3


def test_a_file_of_another_system_or_none_is_one_line(bench, tmp_path):
    results, _ = bench()
    said = ask("--results", results)
    assert "no expectations in" in str(said.exception)
    ask("--record", "--results", results)
    file = results / "local" / "expectations.toml"
    file.write_text(file.read_text().replace('system = "local"\nstudy', 'system = "cori"\nstudy'))
    said = ask("--results", results)
    assert "is for cori" in str(said.exception)


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Expectations of a study as it is planned here, and launches that take no time; gives what was launched."""
    system = load_system("local")
    study = load_study("weak-scaling", system=system, launches=4, backends=["none", "ring"], budget=600)
    campaign = prepare_campaign(study, system, environment_name=None, data=None, results=tmp_path / "plan")
    generator = np.random.default_rng(4)
    launched: list[Launch] = []

    def write(launches, folder, day, lost=""):
        rates = {launch.cell.id: 100 * np.exp(0.004 * generator.standard_normal()) for launch in launches}
        records = []
        for case in (case for launch in launches for case in launch.cases if case.cell.control == "train"):
            rate = rates[case.cell.id] * case.cell.num_ranks * (0.93 if case.cell.backend == lost else 1)
            record = in_detail(make_record(num_ranks=case.cell.num_ranks, samples_per_second=rate))
            begun = f"2026-11-{day:02d}T03:{case.block:02d}:00+00:00"
            records.append(record.model_copy(update={"case": case, "started_at": begun}))
        shutil.rmtree(folder, ignore_errors=True)
        write_study(folder, records, **describe_campaign(campaign))

    for day in (1, 2, 3):
        write(campaign.plan.launches, tmp_path / "r" / f"day{day}" / "local" / "weak-scaling-1a2b", day)
    assert ask("--record", "--results", tmp_path / "r").return_value == 0

    def measure(asked, _):
        launched.extend(asked.plan.launches)
        write(asked.plan.launches, asked.store.folder, 4, lost="ring")

    monkeypatch.setattr("dlscale.benchmarks.cli.accept.measure_here", measure)
    return tmp_path / "r", campaign.plan, launched


def test_the_cells_are_measured_again_into_a_folder_of_their_own(planned):
    results, plan, launched = planned
    said = ask("--results", results)
    assert said.return_value == 2, said.stdout
    told = " ".join(said.stdout.split())
    assert "slower: ring on 2 ranks, throughput, -" in told
    assert "Not measured" not in told
    trained = [launch.id for launch in plan.launches if launch.cell.control == "train"]
    assert [launch.id for launch in launched] == trained
    assert len(list(results.glob("*/local/*/study.json"))) == 4
    assert ask("--results", results, "--json").return_value == 2


def test_an_expected_cell_that_no_plan_has_any_more_is_named(planned):
    results, *_ = planned
    file = results / "local" / "expectations.toml"
    file.write_text(
        file.read_text().replace('\\"backends\\":[\\"none\\",\\"ring\\"]', '\\"backends\\":[\\"none\\"]')
    )
    said = ask("--results", results)
    assert "Not measured: ring on 1 rank, ring on 2 ranks." in said.stdout
    assert said.return_value == 4


def test_quick_takes_fewer_launches(planned):
    results, plan, launched = planned
    said = ask("--results", results, "--quick")
    assert said.return_value in (0, 2)
    assert said.stdout.startswith("quick: ")
    assert 0 < len(launched) <= len([launch for launch in plan.launches if launch.cell.control == "train"])


def test_reframe_has_its_references_from_the_same_file(bench):
    results, _ = bench()
    ask("--record", "--results", results)
    file = results / "local" / "expectations.toml"
    words = ["export", "reframe", "local", "--expectations", str(file)]
    said = CliRunner().invoke(cli, words, standalone_mode=False)
    (line,) = [line for line in said.stdout.splitlines() if line.strip().startswith("reference = ")]
    references = ast.literal_eval(line.partition(" = ")[2])["*"]
    known = read_expectations(file)
    cells = known.baselines[-1].cells.items()
    ring = next(i for i, past in cells if (past.cell.backend, past.cell.num_ranks) == ("ring", 2))
    value, low, high, unit = references["hep_cnn_torch_ring_default_1n_2r"]
    assert (value, unit) == (known.expected["throughput"][ring].median, "samples/s")
    assert -0.2 < low < 0 < high < 0.2
    assert references["hep_cnn_torch_ring_default_1n_2r_efficiency"][3] == "1"
    assert "def label(row)" in said.stdout


def test_quick_has_base_cases_and_each_backend_within_its_budget(bench):
    results, _ = bench()
    ask("--record", "--results", results)
    known = read_expectations(results / "local" / "expectations.toml")
    baselines = known.baselines
    order = telling_order(baselines, launches=3)
    cells = baselines[-1].cells
    assert (cells[order[0]].cell.backend, cells[order[0]].cell.num_ranks) == ("none", 1)
    assert {cells[cell_id].cell.backend for cell_id in order[1:5]} == {"none", "ring", "mpi", "gloo"}
    system = load_system("local")
    study = load_study("weak-scaling", system=system, launches=8, backends=["none", "ring", "mpi", "gloo"])
    plan = expand(study, environment="", shape=shape(study, system), data=None, policy=system.policy)
    trained = (launch.cell for launch in plan.launches if launch.cell.control == "train")
    planned = list(dict.fromkeys(cell.id for cell in trained))
    chosen = quick_launches(plan, plan.launches, planned)
    assert 0 < plan.seconds(chosen) <= QUICK_SECONDS
    counts = {launch.cell.id: 0 for launch in chosen}
    for launch in chosen:
        counts[launch.cell.id] += 1
    assert min(counts.values()) >= 3
    assert planned[0] in counts
