"""Studies where there is no MPI: torchrun starts the ranks."""

import json
import os
import signal
import subprocess
import time

import pytest

from tests.models.own.conftest import TORCH
from tests.studies.conftest import DLSCALE, STUDY

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def without_mpi(tmp_path, monkeypatch):
    """In every Python that is started from here mpi4py cannot be found."""
    folder = tmp_path / "no-mpi"
    folder.mkdir()
    (folder / "mpi4py.py").write_text("raise ModuleNotFoundError(\"No module named 'mpi4py'\")\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))


GLOO = (
    STUDY.replace('["none", "mpi", "gloo", "ring"]', '["gloo"]')
    .replace("[1, 2]", "[2]")
    .replace('controls = ["synthetic", "loader"]', "controls = []")
)


@pytest.mark.usefixtures("without_mpi")
@pytest.mark.parametrize("workload", ["hep_cnn", pytest.param("mine.py", marks=pytest.mark.nightly)])
def test_a_study_runs_and_every_gate_passes(bench, workload):
    path = bench.folder / "mine.py"
    path.write_text(TORCH)
    own = GLOO.replace("hep_cnn", str(path)).replace('preset = "tiny"\n', "")
    bench.study.write_text(GLOO if workload == "hep_cnn" else own)
    done = bench.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(torchrun)" in done.stdout
    assert "mpi4py is not installed): torchrun does, without MPI" in done.stdout
    records = bench.records()
    assert records
    for record in records:
        assert record.good
        assert {"gradient", "audit_step", "audit_window", "identity"} <= {gate.name for gate in record.gates}
        assert "torch.distributed.run --nnodes=1" in record.command
        assert record.fingerprint.versions["launcher"] == "torchrun"
        assert "mpi" not in record.fingerprint.versions
        assert [place.local_rank for place in record.ranks] == list(range(record.case.cell.num_ranks))
    (folder,) = bench.folder.glob("results/*/*/study.json")
    assert not list(folder.parent.glob("spool/*"))


@pytest.mark.usefixtures("without_mpi")
def test_what_needs_mpi_says_so(bench):
    rows = json.loads(subprocess.check_output([DLSCALE, "doctor", "--json"], text=True))["rows"]
    usable = {row["backend"] for row in rows if row["usable"] and row["framework"] == "torch"}
    assert {"none", "gloo"} <= usable
    assert not {"mpi", "ring", "grpc_ps", "mpi_ps", "horovod"} & usable
    assert {row["reason"] for row in rows if row["backend"] == "ring"} == {"mpi4py is not installed"}
    done = bench.run("--backends", "ring", "--ranks", "2")
    assert done.returncode == 1
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .endswith("ring needs ranks of MPI, which torchrun does not start")
    )


@pytest.mark.slow
def test_a_rank_that_dies_is_named_and_all_ends(bench):
    """With MPI at hand: torchrun was asked for."""
    options = ["--backends", "gloo", "--ranks", "2", "--set", "launcher=torchrun", "--set", "budget=1h"]
    with bench.start(*options) as study:
        while 1 not in (ranks := bench.running_ranks()):
            assert study.poll() is None, bench.said()
            time.sleep(0.1)
        os.kill(ranks[1], signal.SIGKILL)
        assert study.wait(60) == 2
    (record,) = [record for record in bench.records() if not record.good]
    assert (record.failure.kind, record.failure.rank) == ("killed", 1)
    assert record.failure.message.startswith("rank 1 died (Signal 9 (SIGKILL))")
    for pid in ranks.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
