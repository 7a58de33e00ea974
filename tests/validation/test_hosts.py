"""Emulated hosts' records as a file, and predictions for more hosts than they are calibrated on."""

import click
import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import cli
from tests.analysis.made_scenarios import allreduces, with_exchange
from tests.made_records import CONFIGURATION, make_record, profile_record
from tests.validation import emulated_hosts
from tests.validation.emulated_hosts import hosts_lines
from tests.validation.measure_hosts import MODEL, allreduces_words, parts, study_words
from tests.validation.measured_hosts import MeasuredHosts, load_measured, measured_hosts

MIB = 1 << 20
RATE, LATENCY, STEP = 24e6, 30e-6, 0.033  # the last is the profile's
WHERE = {"system": "emulated-16", "evidence": "emulated", "study": "a"}
LINKS = CONFIGURATION.model_copy(update={"fabric": {"bandwidth": 25e6}})


def ring_seconds(num_nodes, num_bytes):
    return 2 * (num_nodes - 1) * (LATENCY + num_bytes / num_nodes / RATE)


@pytest.fixture
def records():
    """Gloo on 2, 4 and 8 hosts, whose steps take 4 % longer, 4 % less and 2 % longer than on one: all is hidden."""

    def over(num_nodes, **fields):
        return make_record(
            **{"backend": "gloo", "num_ranks": num_nodes, "num_nodes": num_nodes, **WHERE, **fields}
        )

    made = [profile_record(**WHERE), over(1, backend="none", samples_per_second=8 / STEP)]
    for num_nodes, factor in ((2, 1.04), (4, 0.96), (8, 1.02)):
        sizes = [MIB, 2 * MIB, 2 * MIB]
        seconds = [ring_seconds(num_nodes, size) for size in sizes]
        made.append(with_exchange(over(num_nodes, control="exchange"), sizes, seconds))
        made.append(over(num_nodes, samples_per_second=8 * num_nodes / (factor * STEP)))
    made.append(over(8, backend="mpi", failure="gone"))
    return [record.model_copy(update={"configuration": LINKS}) for record in made]


@pytest.fixture
def runs():
    """An allreduce of 8 MiB and of 1 MiB by Gloo between two hosts."""
    calls = {size: [ring_seconds(2, size)] for size in (8 * MIB, MIB)}
    return [allreduces(2, calls, operation="gloo")]


@pytest.fixture
def hosts(records, runs):
    return measured_hosts([records], runs, date="2026-11-20")


def test_the_file_has_profiles_exchanges_and_steps(hosts, tmp_path):
    assert hosts.profile("hep_cnn").backward_seconds == pytest.approx(0.03)
    assert [(b.num_nodes, b.num_bytes, b.count) for b in hosts.buckets if b.workload] == [
        (nodes, size, count) for nodes in (2, 4, 8) for size, count in ((MIB, 1), (2 * MIB, 2))
    ]
    assert [b.num_bytes for b in hosts.buckets if not b.workload] == [MIB, 8 * MIB]
    assert {(s.backend, s.num_nodes): len(s.seconds) for s in hosts.steps} == {
        **{("gloo", nodes): 1 for nodes in (2, 4, 8)},
        ("mpi", 8): 0,
        ("none", 1): 1,
    }
    path = tmp_path / "hosts.json"
    path.write_text(hosts.model_dump_json())
    assert load_measured(path) == hosts
    path.write_text("{}")
    with pytest.raises(UsageError, match=r"hosts.json: date: Field required; run make validate-emulated"):
        load_measured(path)


def test_every_case_every_failure_and_the_cause_of_every_miss_are_on_the_page(hosts, monkeypatch):
    page = "\n".join(hosts_lines(hosts))
    assert "2 exchanges: half of them within 0.1 %, the worst 0.2 % off" in page
    assert "1 of 1 inside the band" in page
    assert "* Failed: hep_cnn over mpi on 8 hosts: gone." in page
    assert "Missed" not in page
    steps = [
        step.model_copy(update={"seconds": [[1.0]]}) if step.num_nodes == 8 and step.seconds else step
        for step in hosts.steps
    ]
    slow = MeasuredHosts.model_validate(hosts.model_dump() | {"steps": [step.model_dump() for step in steps]})
    monkeypatch.delitem(emulated_hosts.CAUSES, "gloo")
    assert "* Missed, step of hep cnn over gloo: not explained." in "\n".join(hosts_lines(slow))
    monkeypatch.setitem(emulated_hosts.CAUSES, "gloo", "a reason")
    assert "* Missed, step of hep cnn over gloo: a reason." in "\n".join(hosts_lines(slow))


def test_what_hosts_take_without_an_exchange_is_on_the_page(hosts):
    two = next(step for step in hosts.steps if step.backend == "none")
    two = two.model_copy(update={"num_nodes": 2, "seconds": [[0.04]]})
    assert "Without" not in "\n".join(hosts_lines(hosts))
    page = "\n".join(hosts_lines(hosts.model_copy(update={"steps": [*hosts.steps, two]})))
    assert "Without an exchange, a step of hep cnn on 1, 2 hosts takes 33, 40 ms" in page


def test_the_command_line_takes_every_command_that_measures(tmp_path):
    """Half an hour of measuring does not end at an option that is gone."""
    model = tmp_path / "four_mib.py"
    model.write_text(MODEL)
    commands = [allreduces_words(tmp_path, 1)]
    for part in parts(model):
        study = tmp_path / f"{part.name}.toml"
        study.write_text(part.study(1))
        commands.append(study_words(part, study, tmp_path, ["--set", "emulation=link_rate=100Mb/s"]))
    root = click.Context(cli)
    for verb, *words in commands:
        cli.get_command(root, verb).make_context(verb, words, parent=root)
