"""A user's own model in one file, from the command to the records."""

import json
import shutil

import pytest

from tests.models.own.conftest import TORCH
from tests.studies.conftest import STUDY

pytestmark = [pytest.mark.requires("mpiexec", "ring"), pytest.mark.timeout(300)]
OWN = (
    STUDY.replace('"hep_cnn"', '"mine.py"')
    .replace('["none", "mpi", "gloo", "ring"]', '["gloo", "ring"]')
    .replace('preset = "tiny"\n', "")
)


def test_a_file_is_a_workload_as_any_other(bench):
    """Dropout, two backends, every gate; the study keeps the file, and nothing has its path."""
    path = bench.folder / "mine.py"
    path.write_text(TORCH)
    bench.study.write_text(OWN.replace("mine.py", str(path)))
    done = bench.run("--ranks", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no second framework" in " ".join(done.stdout.split())
    records = bench.records()
    assert {record.case.cell.backend for record in records} == {"gloo", "ring"}
    for record in records:
        cell = record.case.cell
        assert record.good
        assert all(gate.passed for gate in record.gates)
        assert {"gradient", "audit_step", "audit_window", "identity"} <= {gate.name for gate in record.gates}
        assert cell.workload == f"mine.py@{cell.own.digest}"
    for record in bench.record_files():
        assert str(bench.folder) not in record.read_text().replace(str(bench.folder / "results"), "")
    (copy,) = bench.folder.glob("results/*/*/own/*/mine.py")
    assert copy.read_text() == TORCH
    path.unlink()
    shutil.rmtree(copy.parents[3] / "figures", ignore_errors=True)
    cautions = json.loads(bench.ask("report", "--json").stdout)["cautions"]
    assert any(records[0].case.cell.own.unchecked in row["text"] for row in cautions)


RAISES = """
import os

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        if os.environ.get("PMI_RANK") == "1" and index == 37:
            raise OSError("the disk is gone")
        return np.ones(6, np.float32), index % 2

def data():
    return Samples()
"""


@pytest.mark.nightly
@pytest.mark.requires("hydra")
def test_data_that_raise_on_one_rank_end_all_with_the_line(bench):
    path = bench.folder / "mine.py"
    path.write_text(TORCH + RAISES)
    bench.study.write_text(OWN.replace("mine.py", str(path)).replace('"gloo", ', ""))
    done = bench.run("--ranks", "2")
    assert done.returncode == 2
    (record,) = [record for record in bench.records() if record.case.cell.control == "train"]
    assert record.failure.kind == "error"
    line = (TORCH + RAISES).splitlines().index('            raise OSError("the disk is gone")') + 1
    assert (
        f"mine.py, line {line}: sample 37 of data() raised OSError: the disk is gone"
        in record.failure.message
    )
