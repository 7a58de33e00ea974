"""Which pairs are compared, and what may be claimed of them."""

import math

import numpy as np
import pandas as pd
import pytest

from dlscale.analysis.declaration import PAIR, declared
from dlscale.analysis.finding import frame_of
from dlscale.analysis.findings import comparison
from dlscale.analysis.load import Study
from dlscale.base.errors import UsageError
from tests.made_records import make_record, make_study, rows_of, windows_of

DRIFT = np.array([1.0, 0.82, 1.1, 0.95, 1.2, 0.9, 1.05, 0.85, 1.15, 1.0])
WOBBLE = np.array([2, -1, 3, -2, 1, -3, 2, -2, 1, -1]) / 1000
NUM_STUDIES = 200


def judged(unclaimable="", **logs):
    """The verdicts on contenders against `mpi`, each given by its log ratios; the machine drifts between blocks."""
    rates = pd.DataFrame({"mpi": 100 * np.resize(DRIFT, max(map(len, logs.values())))})
    for name, values in logs.items():
        rates[name] = rates["mpi"] * np.exp(pd.Series(values, dtype=float))
    pairs = frame_of(
        [{"cell": name, "reference_cell": "mpi", "contender": name, "reference": "mpi"} for name in logs]
    )
    found = comparison.judged(pairs.reindex(columns=[*PAIR]), rates, unclaimable)
    return found.set_index("contender")


def steadily(log, num_blocks, noise=1.0):
    return log + noise * np.resize(WOBBLE, num_blocks)


def test_a_difference_an_equality_and_what_is_neither():
    found = judged(
        ring=steadily(0.1, 8),
        gloo=steadily(-0.1, 8),
        nccl=steadily(0, 8),
        horovod=steadily(0.02, 8, noise=20),
    )
    assert [*found["verdict"]] == ["faster", "slower", "alike", "not shown"]
    assert found.loc["ring", "ratio"] == pytest.approx(math.exp(0.1 + np.resize(WOBBLE, 8).mean()))
    assert (found["num_blocks"] == 8).all()
    assert (found["p_adjusted"] >= found["p_value"]).all()
    assert (found["reason"] == "").all()


def test_too_few_launches_can_show_only_that_two_are_alike():
    found = judged(ring=steadily(0.1, 6), gloo=steadily(0, 6))
    assert [*found["verdict"]] == ["cannot be shown", "alike"]
    assert found.loc["ring", "reason"] == "too few launches: 6 cannot decide 2 comparisons, --launches 7 can"
    assert judged(ring=steadily(0.1, 6)).loc["ring", "verdict"] == "faster"


def test_a_side_that_failed_counts_in_the_correction_and_a_busy_machine_claims_nothing():
    found = judged(ring=steadily(0.1, 6), gloo=[np.nan] * 6)
    assert [*found["verdict"]] == ["cannot be shown"] * 2
    assert found.loc["gloo", "reason"] == "every launch of gloo failed"
    assert np.isnan(found.loc["gloo", "p_adjusted"])
    busy = judged("the machine was busy", ring=steadily(0.1, 8))
    assert busy.loc["ring", ["verdict", "reason"]].tolist() == ["cannot be shown", "the machine was busy"]
    assert busy.loc["ring", "ratio"] == pytest.approx(1.105, abs=0.001)


def test_without_a_common_block_there_is_a_ratio_and_no_claim():
    rates = pd.DataFrame({"mpi": [100.0] * 4 + [np.nan] * 4, "ring": [np.nan] * 4 + [120.0] * 4})
    pairs = pd.DataFrame([dict.fromkeys(PAIR, "") | {"cell": "ring", "reference_cell": "mpi"}])
    (row,) = comparison.judged(pairs, rates).to_dict("records")
    assert (row["ratio"], row["ratio_method"], row["num_blocks"]) == (pytest.approx(1.2), "unpaired t", 0)
    assert row["reason"].startswith("no block in common")


def claims(num_blocks, *truths, noise=0.02, outliers=0.05):
    """Verdicts of simulated studies; the contenders' true log ratios to the reference are given."""
    generator = np.random.default_rng(1979)
    found = []
    for _ in range(NUM_STUDIES):
        launches = noise * generator.standard_normal((len(truths) + 1, num_blocks))
        launches -= 0.2 * (generator.random(launches.shape) < outliers)  # a launch that something held up
        logs = launches[1:] - launches[0] + np.array(truths)[:, None]  # these share the reference's noise
        found.append([*judged(**dict(zip("abcd", logs, strict=False)))["verdict"]])
    return found


@pytest.mark.parametrize(("num_blocks", "num_contenders"), [(6, 1), (8, 4)])
def test_of_equal_ones_hardly_any_is_called_faster_or_slower(num_blocks, num_contenders):
    found = claims(num_blocks, *[0.0] * num_contenders)
    wrong = sum(any(one in ("faster", "slower") for one in study) for study in found)
    assert wrong / NUM_STUDIES <= 0.05


def test_one_at_the_end_of_the_band_hardly_passes_for_alike_and_what_is_there_is_found():
    found = claims(10, math.log(1.02), noise=0.005, outliers=0.0)
    assert sum(study == ["alike"] for study in found) / NUM_STUDIES <= 0.05
    found = claims(8, 0.06, -0.06, 0.0, noise=0.01, outliers=0.0)
    assert sum(study[:2] == ["faster", "slower"] for study in found) / NUM_STUDIES >= 0.99


# What is declared


def names(study, **options):
    pairs, _ = declared(study, **options)
    return {(pair.contender, pair.reference) for pair in pairs.itertuples()}


def test_backends_are_compared_with_the_first_in_the_order_of_the_study_where_gradients_are_exchanged():
    study = Study(make_study(num_blocks=1), order=["none", "mpi", "ring"])
    assert names(study) == {("ring", "mpi"), ("gloo", "mpi")}
    assert names(Study(study.records)) == {("ring", "gloo"), ("mpi", "gloo")}
    assert names(study, reference="ri") == {("mpi", "ring"), ("gloo", "ring")}
    assert set(study.cells.loc[declared(study)[0]["cell"], "num_ranks"]) == {2}


def test_frameworks_are_compared_over_the_same_backend_and_ranks():
    records = [
        record for name in ("torch", "tensorflow") for record in make_study(num_blocks=1, framework=name)
    ]
    pairs, _ = declared(Study(records, order=["torch", "tensorflow"]), factor="framework")
    assert len(pairs) == 8
    assert {*pairs["contender"]} == {"tensorflow"}
    assert {*pairs["over"]} == {"none", "ring", "mpi", "gloo"}
    only_ring = [record for record in records if record.case.cell.backend == "ring"]
    assert {*declared(Study(only_ring))[0]["factor"]} == {"framework"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"factor": "workload"}, "no factor 'workload' to compare inside a study"),
        ({"factor": "compiled"}, "of compiled there is only not compiled in these records"),
        ({"reference": "rnig"}, "no 'rnig' of backend in these records; choose one of: gloo; mpi; ring"),
        ({"ranks": [3]}, "no ranks 3 in these records; choose from: 1, 2"),
        ({"ranks": [1]}, "nothing to compare"),
    ],
)
def test_what_cannot_be_declared(options, complaint):
    with pytest.raises(UsageError, match=complaint):
        declared(Study(make_study(num_blocks=1)), **options)


def cells(*kinds):
    return [make_record(num_ranks=2, **kind) for kind in kinds]


def gloo(bucket, **more):
    return {"backend": "gloo", "backend_options": {"bucket_cap_mb": bucket}, **more}


def test_along_an_axis_each_curve_differs_from_its_reference_in_one_setting():
    records = cells({"backend": "none"}, {"backend": "mpi"}, gloo(1), gloo(5), gloo(25))
    study = Study(records, order=["none", "mpi", "gloo"], axes={"gloo.bucket_cap_mb": [25, 1, 5]})
    assert names(study) == {
        ("gloo (bucket_cap_mb=25)", "mpi"),
        ("gloo (bucket_cap_mb=1)", "gloo (bucket_cap_mb=25)"),
        ("gloo (bucket_cap_mb=5)", "gloo (bucket_cap_mb=25)"),
    }
    batches = [
        {**kind, "local_batch": batch} for batch in (2, 4) for kind in ({"backend": "mpi"}, gloo(25), gloo(1))
    ]
    axes = {"batch": [2, 4], "gloo.bucket_cap_mb": [25, 1]}
    study = Study(cells(*batches), order=["mpi", "gloo"], axes=axes, settings=["batch"])
    assert names(study) == {
        ("gloo (bucket_cap_mb=25), batch 2", "mpi, batch 2"),
        ("gloo (bucket_cap_mb=1), batch 2", "gloo (bucket_cap_mb=25), batch 2"),
        ("mpi, batch 4", "mpi, batch 2"),
        ("gloo (bucket_cap_mb=25), batch 4", "gloo (bucket_cap_mb=25), batch 2"),
        ("gloo (bucket_cap_mb=1), batch 4", "gloo (bucket_cap_mb=25), batch 4"),
    }
    assert {*declared(study)[0]["factor"]} == {"curve"}


def test_sharded_curves_are_compared_with_the_unsharded_one_of_their_backend():
    shards = ["none", "optimizer", "parameters"]
    kinds = [{"backend": "gloo", "shard": shard} for shard in shards]
    kinds += [{"backend": "none"}, *({"backend": "ring", "shard": shard} for shard in shards[:2])]
    assert names(Study(cells(*kinds), order=["gloo", "ring"], axes={"shard": shards})) == {
        ("gloo, optimizer sharded", "gloo"),
        ("gloo, parameters sharded", "gloo"),
        ("ring", "gloo"),
        ("ring, optimizer sharded", "ring"),
    }


# The finding


def test_its_sentence_ranks_nothing_without_an_interval():
    found = comparison.FINDING.of(Study(make_study(num_blocks=8), order=["ring", "mpi", "gloo"]))
    assert [*found["verdict"]] == ["slower", "slower"]
    assert comparison.sentence(found).startswith("gloo is slower than ring on 2 ranks (-")
    few = comparison.FINDING.of(Study(make_study(num_blocks=2)))
    assert comparison.sentence(few) == (
        "mpi versus gloo on 2 ranks, ring versus gloo on 2 ranks: too few launches: 2 cannot decide 2 comparisons, "
        "--launches 7 can."
    )
    assert few["ratio_low"].isna().all()


def test_a_busy_machine_is_said_by_the_cautions_alone():
    busy = []
    for record in make_study(num_blocks=8):
        windows = [window._replace(foreign_cpu=0.5) for window in rows_of(record.windows)]
        busy.append(record.model_copy(update={"windows": windows_of(windows)}))
    found = comparison.FINDING.of(Study(busy))
    assert {*found["reason"]} == {"the machine was busy"}
    assert comparison.sentence(found) == ""


@pytest.mark.parametrize(
    "records", [[], [make_record()], [make_record(backend="ring", num_ranks=2, failure="hung")]]
)
def test_nothing_of_nothing(records):
    study = Study(records)
    found = comparison.FINDING.of(study)
    assert len(found) == 0
    assert {"ratio", "verdict"} <= {*comparison.FINDING.exported(found)}
    assert comparison.sentence(found) == ""
