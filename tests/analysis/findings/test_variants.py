"""Curves along axes are compared pair by pair, as backends are."""

import pytest

from dlscale.analysis.figures.write import write_figures
from dlscale.analysis.findings import backends, scaling
from dlscale.analysis.findings.contrast_declaration import declare_variants
from dlscale.analysis.findings.contrasts import study_contrasts
from dlscale.analysis.launches import launches_of
from dlscale.analysis.measured import measure
from dlscale.analysis.variants import Variants
from dlscale.benchmarks.study.plan import num_comparisons
from tests.made_records import make_record

BUCKETS = Variants(axes={"gloo.bucket_cap_mb": [25, 1, 5]})
BATCHES = Variants(axes={"batch": [2, 4], "gloo.bucket_cap_mb": [25, 1]})
NOISE = (1.0, 1.004, 0.997, 1.002, 0.999, 1.003, 0.996, 1.001)
DRIFT = (1.0, 0.8, 1.1, 0.9, 1.2, 0.85, 1.05, 0.95)


def launches(variants, *, num_blocks=8):
    """Records of (rate, what the cell is) in each of the blocks, with a drift that their pairs share."""
    return [
        make_record(
            block=block,
            samples_per_second=rate * DRIFT[block] * NOISE[(block * (place + 1)) % len(NOISE)],
            num_ranks=2,
            **cell,
        )
        for block in range(num_blocks)
        for place, (rate, cell) in enumerate(variants)
    ]


def gloo(bucket, **more):
    return {"backend": "gloo", "backend_options": {"bucket_cap_mb": bucket}, **more}


def pairs(records, variants, **options):
    declared = declare_variants(launches_of(records), variants, **options)
    return declared.factor, {(pair.contender.name, pair.reference.name) for pair in declared.pairs}


def test_values_of_an_option_are_compared_with_its_first_one_which_is_compared_with_the_first_backend():
    records = launches(
        [(100, {"backend": "none"}), (90, {"backend": "mpi"}), (80, gloo(1)), (85, gloo(5)), (88, gloo(25))]
    )
    assert pairs(records, BUCKETS, order=["none", "mpi", "gloo"]) == (
        "backend",
        {
            ("gloo (bucket_cap_mb=25)", "mpi"),
            ("gloo (bucket_cap_mb=1)", "gloo (bucket_cap_mb=25)"),
            ("gloo (bucket_cap_mb=5)", "gloo (bucket_cap_mb=25)"),
        },
    )
    # A plan gives as many launches as this many comparisons need.
    assert num_comparisons(record.case.cell for record in records) == 3


def test_each_curve_differs_from_its_reference_in_one_setting():
    records = launches(
        [
            (rate, {**cell, "local_batch": batch})
            for batch in (2, 4)
            for rate, cell in ((90, {"backend": "mpi"}), (80, gloo(25)), (70, gloo(1)))
        ]
    )
    assert pairs(records, BATCHES, order=["mpi", "gloo"]) == (
        "curve",
        {
            ("gloo (bucket_cap_mb=25), batch 2", "mpi, batch 2"),
            ("gloo (bucket_cap_mb=1), batch 2", "gloo (bucket_cap_mb=25), batch 2"),
            ("mpi, batch 4", "mpi, batch 2"),
            ("gloo (bucket_cap_mb=25), batch 4", "gloo (bucket_cap_mb=25), batch 2"),
            ("gloo (bucket_cap_mb=1), batch 4", "gloo (bucket_cap_mb=25), batch 4"),
        },
    )
    assert num_comparisons(record.case.cell for record in records) == 5


SHARDS = Variants(axes={"shard": ["none", "optimizer", "parameters"]})


def test_sharded_curves_are_compared_with_the_unsharded_one_of_their_backend_in_one_family():
    cells = [(90, {"backend": "none"})]
    cells += [
        (rate, {"backend": backend, "shard": shard})
        for backend, own in (("gloo", SHARDS.axes["shard"]), ("ring", SHARDS.axes["shard"][:2]))
        for rate, shard in zip((80, 75, 70), own, strict=False)
    ]
    assert pairs(launches(cells), SHARDS, order=["gloo", "ring"]) == (
        "backend",
        {
            ("gloo, optimizer sharded", "gloo"),
            ("gloo, parameters sharded", "gloo"),
            ("ring", "gloo"),
            ("ring, optimizer sharded", "ring"),
        },
    )


def test_the_verdict_on_a_value_is_that_of_its_comparison():
    records = launches([(90, gloo(25)), (70, gloo(1)), (90.05, gloo(5))])
    study = measure(records, order=["gloo"], variants=BUCKETS)
    found = study.once(study_contrasts).found
    verdicts = {contrast.contender.name: contrast.verdict for contrast in found}
    assert verdicts == {"gloo (bucket_cap_mb=1)": "slower", "gloo (bucket_cap_mb=5)": "alike"}
    assert all(contrast.p_adjusted >= contrast.p_value for contrast in found)
    compared = {c.cell.backend_options["bucket_cap_mb"]: c.verdict for c in backends.FINDING.of(study)}
    assert compared == {25: "reference", 1: "slower", 5: "alike"}
    # A first value that is compared with another backend keeps its verdict.
    records = launches([(90, {"backend": "mpi"}), (70, gloo(25)), (60, gloo(1))])
    compared = backends.FINDING.of(measure(records, order=["mpi", "gloo"], variants=BUCKETS))
    assert [contender.verdict for contender in compared] == ["slower", "slower", "reference"]


@pytest.mark.usefixtures("no_pictures")
def test_batches_have_base_cases_and_a_figure_of_all_curves(tmp_path):
    records = launches(
        [(rate * batch, {"backend": "ring", "local_batch": batch}) for batch, rate in ((2, 40), (4, 30))]
    )
    for batch, rate in ((2, 25), (4, 20)):
        records += [
            make_record(block=block, samples_per_second=rate * batch * DRIFT[block], local_batch=batch)
            for block in range(8)
        ]
    table = measure(records, variants=Variants(axes={"batch": [2, 4]}))
    found = {row.cell.local_batch: row for row in scaling.FINDING.of(table) if row.cell.num_ranks == 2}
    assert [round(found[batch].efficiency_none.center, 2) for batch in (2, 4)] == [0.8, 0.75]
    paths = write_figures(table, tmp_path, only=["throughput", "efficiency"])
    stem = "hep_cnn-tiny-torch-weak-curves"
    assert {f"{stem}-efficiency.png", f"{stem}-throughput.csv"} <= {path.name for path in paths}
