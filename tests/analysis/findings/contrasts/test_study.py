"""A study's contrasts as the command line shows them, without the command line."""

import json

import pytest

from dlscale.benchmarks.cli.compare import contrast_study
from dlscale.benchmarks.cli.compare_two import contrast_studies
from dlscale.benchmarks.records.record import Gate, Parity

KEPT = {"none": (1.0, 0.98), "ring": (0.99, 0.92), "mpi": (0.985, 0.86)}


@pytest.fixture
def contrast(capsys, tmp_path):
    """(exit status, what is printed) of these records, in a folder with this study.json and verdict of the gate."""

    def run(records, *, study=None, passed=None, **options):
        if study is not None:
            (tmp_path / "study.json").write_text(json.dumps(study))
        if passed is not None:
            check = Gate(name="loss", passed=passed, value=1.0, tolerance=1.0, detail="")
            gate = Parity(
                workload="hep_cnn", preset="tiny", precision="fp32", num_parameters={}, checks=[check]
            )
            (tmp_path / "parity.json").write_text(f"[{gate.model_dump_json()}]")
        status = contrast_study(records, folder=tmp_path, **options)
        return status, " ".join(capsys.readouterr().out.split())

    return run


def test_the_reference_is_the_studys_first_backend_that_exchanges(contrast, make_study):
    study = {"study": {"backends": ["none", "ring", "mpi"], "frameworks": ["torch"]}}
    status, said = contrast(make_study(efficiency=KEPT), study=study)
    assert status == 0
    assert "mpi is 6." in said
    assert "slower than ring on 2 ranks (corrected p 0.031, 6 blocks)" in said
    assert "faster than mpi" in contrast(make_study(efficiency=KEPT), reference="mpi")[1]
    # study.json that says nothing, or none at all: by name.
    assert "faster than mpi" in contrast(make_study(efficiency=KEPT), study={})[1]


def test_frameworks_need_the_parity_gate(contrast, make_study):
    both = make_study(efficiency=KEPT, num_blocks=10, noise=0.002) + make_study(
        efficiency=KEPT, num_blocks=10, noise=0.002, framework="tensorflow"
    )
    options = {"factor": "framework", "reference": "torch", "backends": ["ring"]}
    status, said = contrast(both, **options)
    assert status == 4
    assert "parity not checked, so do not compare them" in said
    status, said = contrast(both, passed=False, **options)
    assert status == 3
    assert "NOT COMPARABLE, the parity gate failed: loss" in said
    status, said = contrast(both, passed=True, **options)
    assert status == 0
    assert "tensorflow and torch are alike over ring on 2 ranks" in said


def test_an_outlying_launch_is_told_beside(contrast, make_study, make_record):
    records = [
        record
        for record in make_study(efficiency=KEPT, num_blocks=8, noise=0.002)
        if (record.case.cell.backend, record.case.cell.num_ranks, record.case.block) != ("ring", 2, 4)
    ]
    records.append(make_record(backend="ring", num_ranks=2, block=4, samples_per_second=1.2 * 200 * 0.92 / 2))
    status, said = contrast(records)
    assert status == 0
    assert "without the block with an outlying launch 6." in said


def test_canaries_are_no_contenders(contrast, make_study, make_record):
    canaries = [make_record(backend="ring", num_ranks=2, control="canary", block=block) for block in range(2)]
    assert contrast(make_study(efficiency=KEPT) + canaries)[0] == 0


def test_two_studies(make_study):
    found = contrast_studies(make_study(), make_study(num_blocks=8), keys=("backend", "num_ranks"))
    assert {one.verdict for one in found.found} == {"cannot be shown"}
    assert len(found.found) == 8
    other = make_study(framework="tensorflow")
    keys = ("backend", "num_ranks")  # the framework is what is compared
    (reason,) = {one.reason for one in contrast_studies(make_study(), other, keys=keys).found}
    assert "parity not checked" in reason
    assert contrast_studies(make_study(rank_counts=(1, 2)), make_study(rank_counts=(3, 4)), keys=keys) is None
