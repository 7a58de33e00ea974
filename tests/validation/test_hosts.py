"""What emulated hosts measured as a file, and predictions for more hosts than they are calibrated on."""

import pytest

from dlscale.base.errors import UsageError
from tests.validation import emulated_hosts
from tests.validation.emulated_hosts import hosts_lines
from tests.validation.measured_hosts import BucketTime, MeasuredHosts, StepTime, load_measured

MIB = 1 << 20
RATE, LATENCY, STEP = 24e6, 30e-6, 0.033  # the last is the profile's


def bucket(num_nodes, num_bytes, count=1, workload="hep_cnn"):
    seconds = 2 * (num_nodes - 1) * (LATENCY + num_bytes / num_nodes / RATE)
    return BucketTime(
        backend="gloo",
        workload=workload,
        num_nodes=num_nodes,
        num_bytes=num_bytes,
        count=count,
        num_launches=1,
        seconds=seconds,
    )


def step(num_nodes, seconds, backend="gloo", failures=()):
    return StepTime(
        workload="hep_cnn",
        backend=backend,
        backend_options={},
        num_nodes=num_nodes,
        num_servers=0,
        seconds=[[seconds]] if seconds else [],
        failures=list(failures),
        foreign_cpu=[],
    )


@pytest.fixture
def hosts():
    """Gloo on 2, 4 and 8 hosts, whose steps take 4 % longer, 4 % less and 2 % longer than on one: all is hidden."""
    stored = load_measured()
    profile = {
        **next(found for found in stored.profiles if found["workload"] == "hep_cnn"),
        "local_batch": 8,
        "forward_seconds": 0.01,
        "backward_seconds": 0.03,
        "update_seconds": 0.003,
        "gradients": [{"name": "weight", "num_bytes": 5 * MIB, "ready_seconds": 0.02}],
        "step_seconds": [STEP] * 200,
    }
    return stored.model_copy(
        update={
            "profiles": [profile],
            "buckets": [
                *(bucket(nodes, MIB) for nodes in (2, 4, 8)),
                *(bucket(nodes, 2 * MIB, 2) for nodes in (2, 4, 8)),
                *(bucket(2, size, workload=None) for size in (MIB, 8 * MIB)),
            ],
            "steps": [
                step(1, STEP, "none"),
                *(step(nodes, factor * STEP) for nodes, factor in ((2, 1.04), (4, 0.96), (8, 1.02))),
                step(8, None, "mpi", ["gone"]),
            ],
        }
    )


def test_a_damaged_file_is_one_line(hosts, tmp_path):
    path = tmp_path / "hosts.json"
    path.write_text(hosts.model_dump_json())
    assert load_measured(path) == hosts
    path.write_text("{}")
    with pytest.raises(UsageError, match=r"hosts.json: date: Field required"):
        load_measured(path)


def test_every_case_every_failure_and_the_cause_of_every_miss_are_on_the_page(hosts, monkeypatch):
    page = "\n".join(hosts_lines(hosts))
    assert "2 exchanges: half of them within 0.1 %, the worst 0.2 % off" in page
    assert "* Failed: hep_cnn over mpi on 8 hosts: gone." in page
    steps = [
        own.model_copy(update={"seconds": [[1.0]]}) if own.num_nodes == 8 and own.seconds else own
        for own in hosts.steps
    ]
    slow = MeasuredHosts.model_validate(hosts.model_dump() | {"steps": [own.model_dump() for own in steps]})
    monkeypatch.delitem(emulated_hosts.CAUSES, "gloo")
    assert "* Missed, step of hep cnn over gloo: not explained." in "\n".join(hosts_lines(slow))
    monkeypatch.setitem(emulated_hosts.CAUSES, "gloo", "a reason")
    assert "* Missed, step of hep cnn over gloo: a reason." in "\n".join(hosts_lines(slow))


def test_what_hosts_take_without_an_exchange_is_on_the_page(hosts):
    assert "Without" not in "\n".join(hosts_lines(hosts))
    page = "\n".join(hosts_lines(hosts.model_copy(update={"steps": [*hosts.steps, step(2, 0.04, "none")]})))
    assert "Without an exchange, a step of hep cnn on 1, 2 hosts takes 33, 40 ms" in page
