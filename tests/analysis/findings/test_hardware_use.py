"""Floating-point operations per second of a rank, and their share of the stated peak, by hand."""

import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.hardware_use import (
    FINDINGS,
    HARDWARE,
    hardware_use,
    rank_peak,
    to_hardware_row,
)
from dlscale.analysis.measured import measure
from dlscale.benchmarks.systems.system import load_system
from dlscale.models import load_workload
from tests.made_records import make_record

PER_SAMPLE = 3 * load_workload("hep_cnn").preset("small").forward_flops_per_sample


def used(**options):
    """The use of the hardware in a study of six launches on 2 ranks."""
    records = [
        make_record(backend="ring", num_ranks=2, block=block, **{"preset": "small"} | options)
        for block in range(6)
    ]
    return hardware_use(scaling.FINDING.of(measure(records)))


def test_a_rank_does_its_share_of_the_throughput():
    (use,) = used(samples_per_second=100.0)
    assert use.flops.center == pytest.approx(100 * PER_SAMPLE / 2)
    assert to_hardware_row(use)["flops_per_second_and_rank"] == use.flops.center
    assert use.share is None, "nobody stated a peak of this machine"


def test_a_share_of_what_the_systems_file_states_for_the_precision():
    (use,) = used(system="cori", cores_per_rank=34, samples_per_second=100.0)
    assert use.peak == pytest.approx(6e12 / 2)
    assert use.share.center == pytest.approx(100 * PER_SAMPLE / 2 / 3e12)
    assert "NERSC" in use.peak_source
    assert to_hardware_row(use)["peak_source"] == use.peak_source
    (row,) = HARDWARE.of([use]).rows
    assert use.peak_source in [value.text for value in row.values]


def test_where_no_peak_is_stated_one_sentence_says_what_to_write():
    (finding,) = FINDINGS
    of_gpus = {"system": "perlmutter", "device": "gpu", "precision": "int8"}
    uses = [*used(system="cori", precision="bf16"), *used(system="cori", precision="tf32"), *used(**of_gpus)]
    (sentence,) = finding.sentences([*uses, *used(system="cori", precision="bf16")])
    assert sentence.text == (
        "No MFU: the file of cori states no peak of its cores for bf16 and tf32; that of perlmutter states no peak of "
        'its GPUs for int8. In a file of your own write node.peak.bf16 = { value = "... TFLOP/s", source = "..." } '
        "beside node.cores, or let dlscale system probe --measure draft it."
    )
    assert not list(finding.sentences(used(system="cori", cores_per_rank=34, samples_per_second=100.0)))
    assert [table.rows for table in finding.more(uses)] == [()]


def test_the_file_of_a_user_counts_as_the_study_kept_it():
    own = load_system("cori").model_copy(update={"name": "mine"})
    records = [make_record(num_ranks=2, block=block, preset="small", system="mine") for block in range(6)]
    (finding,) = FINDINGS
    (use,) = finding.of(measure(records, system=own))
    assert use.peak is not None
    assert use.peak_source
    (use,) = finding.of(measure(records))
    assert (use.peak, use.peak_source) == (None, "")


def test_a_peak_of_which_more_than_all_was_measured_is_refused_by_name():
    (use,) = used(system="cori", cores_per_rank=34, samples_per_second=6e12 / PER_SAMPLE * 2.0)
    assert use.share is None
    assert use.refusal == (
        "no share: cori's file states a peak of 3000 GFLOP/s per rank for fp32, 200% of which was measured; "
        "correct the file"
    )
    (text,) = (row.values[-1].text for row in HARDWARE.of([use]).rows)
    assert text == use.refusal


def test_a_gpu_is_its_own_peak():
    cell = make_record(device="gpu", precision="bf16").case.cell
    assert rank_peak(load_system("perlmutter"), cell) == pytest.approx(312e12)


def test_of_a_system_without_a_file_no_peak_is_known():
    (use,) = used(system="no-such-system")
    assert use.peak is None


def test_what_has_no_count_of_operations_is_left_out():
    assert used(workload="cosmogan", preset="tiny") == []
    assert used(control="synthetic") == []
    assert used(failure="died") == []
