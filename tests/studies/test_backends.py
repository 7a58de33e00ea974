"""Studies over every backend, with servers, and what happens when one of them is wrong or dies."""

import os
import signal
import socket
import time

import pytest

from tests.made_records import rows_of
from tests.studies.conftest import STUDY

pytestmark = [pytest.mark.requires("mpiexec", "ring", "tensorflow"), pytest.mark.timeout(600)]

SERVED = ("--backends", "grpc_ps", "--ranks", "2")


@pytest.mark.slow
@pytest.mark.requires("horovod-torch", "grpc_ps-torch")
@pytest.mark.parametrize(
    ("backends", "frameworks"),
    [
        ("mpi,horovod,mpi_ps", "torch"),  # other studies here train over the others
        pytest.param("all", "all", marks=pytest.mark.nightly),
    ],
)
def test_every_backend(bench, backends, frameworks):
    """Each cell has a good record, or the plan says why there is none."""
    bench.study.write_text(STUDY.replace('"synthetic", "loader"', ""))
    options = ("--backends", backends, "--frameworks", frameworks, "--ranks", "2")
    options += ("--set", "rules.max_steps=60")
    done = bench.run(*options, limit=540)
    assert done.returncode == 0, done.stdout + done.stderr
    records = bench.records()
    assert all(record.good for record in records), [record.failure for record in records]
    expected = {backend: {"torch"} for backend in backends.split(",")}
    if backends == "all":
        both = {"torch", "tensorflow"}
        expected = dict.fromkeys(("none", "mpi", "ring", "horovod", "grpc_ps", "mpi_ps"), both)
        expected |= {"gloo": {"torch"}, "tf_collective": {"tensorflow"}}
    measured = {}
    for record in records:
        measured.setdefault(record.case.cell.backend, set()).add(record.case.cell.framework)
    assert {backend: measured[backend] for backend in expected} == expected
    if frameworks == "all":
        assert "backend nccl does not support device cpu: left out" in " ".join(done.stdout.split())
    for record in records:
        served = record.case.cell.backend in ("grpc_ps", "mpi_ps")
        assert len(record.servers) == record.case.cell.num_servers == int(served)
        assert all(seconds is not None for seconds in record.phases.import_backend)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", pytest.param("tensorflow", marks=pytest.mark.nightly)])
def test_asynchronous_servers_count_what_they_applied(bench, framework):
    options = [
        "--set",
        "backend_options=grpc_ps.asynchronous=true",
        "--data",
        "synthetic",
        "--set",
        "servers=2",
    ]
    done = bench.run(*SERVED, "--frameworks", framework, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = bench.records()
    assert record.case.cell.num_servers == 2
    before_and_after = {"control", "broadcast", "gradient", "finite_loss"}
    audits = {"audit_step", "audit_scale", "audit_samples", "audit_count"}
    # What can be known only where ranks step together is told as not audited.
    assert {gate.name for gate in record.gates if gate.value is not None} == before_and_after | audits
    steady = rows_of(record.counted)
    for window in steady:
        assert window.num_applied == sum(window.rank_steps)
        assert window.num_steps == max(window.rank_steps)
    assert [facts.rank for facts in record.servers] == [2, 3]
    assert "2 servers besides the ranks" in " ".join(bench.ask("report", "--full").stdout.split())


def server_pid(bench):
    """Of the launch that runs now, once it trains."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        for events in bench.spooled("00002"):
            if events and bench.running_ranks():
                return events[0]["pid"]
        time.sleep(0.05)
    raise AssertionError(bench.said())


def endless(bench):
    text = bench.study.read_text().replace('controls = ["synthetic", "loader"]', "")
    path = bench.folder / "endless.toml"
    path.write_text(text.replace("min_steps = 3", "min_steps = 200_000\nmax_steps = 1_000_000"))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "framework"),
    [
        ("grpc_ps", "torch"),
        pytest.param("grpc_ps", "tensorflow", marks=pytest.mark.nightly),
        pytest.param("mpi_ps", "torch", marks=pytest.mark.nightly),
    ],
)
def test_a_killed_server_ends_the_launch_and_is_named(bench, backend, framework):
    served = ("--backends", backend, "--ranks", "2")
    with bench.start(*served, "--frameworks", framework, study=endless(bench)) as process:
        os.kill(server_pid(bench), signal.SIGKILL)
        assert process.wait(timeout=60) == 2, bench.said()
    (record,) = bench.records()
    assert record.failure.kind == "killed"
    assert record.failure.rank == 2
    assert record.failure.message.startswith("rank 2 died")


@pytest.mark.nightly  # a rank's error as a record, and these words, are shown by day, too
@pytest.mark.parametrize(
    ("backend", "framework"),
    [("grpc_ps", "torch"), ("grpc_ps", "tensorflow"), ("tf_collective", "tensorflow")],
)
def test_a_port_in_use_is_a_record_that_says_so(bench, backend, framework):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        options = ("--set", f"backend_options={backend}.port={port}")
        done = bench.run("--backends", backend, "--ranks", "2", "--frameworks", framework, *options)
    assert done.returncode == 2
    (record,) = bench.records()
    assert record.failure.kind == "error"
    assert str(port) in record.failure.message
    assert "give another" in record.failure.message
    assert "\n" not in record.failure.message


@pytest.fixture
def broken_horovod(tmp_path):
    """A PYTHONPATH with a Horovod that cannot be loaded, as one that was built against another torch."""
    package = tmp_path / "broken" / "horovod"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "torch.py").write_text('raise ImportError("undefined symbol: _ZN2at6detail")')
    return str(package.parent)


@pytest.mark.slow
def test_what_cannot_be_used_is_one_line(bench, broken_horovod):
    done = bench.run("--backends", "none,horovod", "--ranks", "1", PYTHONPATH=broken_horovod)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "make horovod" in done.stderr
    left_out = bench.run("--backends", "all", "--ranks", "1", "--dry-run", PYTHONPATH=broken_horovod)
    assert left_out.returncode == 0
    assert "horovod in torch is left out: Horovod for torch cannot be loaded" in left_out.stdout
