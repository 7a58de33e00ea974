"""Use of the hardware: operations per second of a rank, and their share of a stated peak."""

import pytest

from dlscale.analysis.findings.hardware import FINDING, PASSES
from dlscale.analysis.load import Study
from dlscale.benchmarks.systems.system import load_system
from dlscale.models import load_workload
from tests.made_records import make_record

FLOPS = PASSES * load_workload("hep_cnn").presets["tiny"].forward_flops_per_sample


def test_a_rank_of_a_known_system_has_its_part_of_the_nodes_peak() -> None:
    cori = load_system("cori")
    peak, cores = cori.node.peak["fp32"].number, cori.node.cores.value  # type: ignore[union-attr]
    launches = [
        make_record(
            backend="ring", num_ranks=2, block=block, system="cori", cores_per_rank=34, samples_per_second=80
        )
        for block in range(7)
    ]
    (row,) = FINDING.of(Study(launches)).to_dict("records")
    assert row["flops_per_second_and_rank"] == pytest.approx(40 * FLOPS)
    assert row["peak_flops_per_second"] == pytest.approx(peak * 34 / cores)
    assert row["peak_share_low"] == pytest.approx(40 * FLOPS * cores / peak / 34)
    assert row["peak_share_n"] == 7
    assert "NERSC" in row["peak_source"]
    assert row["peak_refused"] == FINDING.sentence(FINDING.of(Study(launches))) == ""


def test_more_than_the_peak_is_no_share() -> None:
    (row,) = FINDING.of(Study([make_record(system="cori", samples_per_second=1e9)])).to_dict("records")
    assert row["peak_share"] != row["peak_share"]
    assert "correct the file" in row["peak_refused"]


def test_without_a_peak_it_says_what_to_write() -> None:
    frame = FINDING.of(Study([make_record(), make_record(precision="bf16", backend="ring")]))
    assert frame["peak_share"].isna().all()
    assert "local states no peak of its cores for bf16 and fp32. Write node.peak.bf16 =" in FINDING.sentence(
        frame
    )


def test_an_adversarial_training_has_no_count() -> None:
    assert FINDING.of(Study([make_record(workload="cosmogan")])).empty
