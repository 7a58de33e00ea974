import math

import numpy as np
import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.load import Study
from tests.made_records import make_record, make_study


def rows_of(study):
    """The rows, without NaN."""
    return [
        {name: None if value is None or value != value else value for name, value in row.items()}
        for row in scaling.FINDING.of(study).to_dict("records")
    ]


def row_of(study, **fields):
    """The one row whose cell has these fields."""
    (row,) = (row for row in rows_of(study) if all(row[name] == value for name, value in fields.items()))
    return row


def test_a_backend_whose_launches_all_failed_has_a_row_that_says_so():
    records = [make_record(backend="ring", block=block, failure="hung") for block in range(6)]
    row = row_of(Study([*records, make_record()]), backend="ring")
    assert (row["samples_per_second"], row["num_launches"], row["num_planned"]) == (None, 0, 6)
    assert row["evidence"] == "measured"
    assert "every launch failed" in row["notes"]


@pytest.mark.parametrize("mode", ["weak", "strong"])
def test_an_ideal_series_has_efficiency_1(mode):
    ideal = dict.fromkeys(("none", "ring"), (1.0, 1.0, 1.0))
    records = make_study(
        efficiency=ideal, rank_counts=(1, 2, 4), noise=0.0, global_batch=64 if mode == "strong" else None
    )
    for row in rows_of(Study(records)):
        for name in ("efficiency_none", "efficiency_backend"):
            assert row[name] == pytest.approx(1.0)
            assert row[f"{name}_low"] in (None, pytest.approx(1.0))
        assert row["samples_per_second_n"] == 6


def test_efficiency_is_given_against_both_base_cases():
    table = Study(make_study(efficiency={"none": (1.0, 0.95), "ring": (0.8, 0.6)}, noise=0.0))
    row = row_of(table, backend="ring", num_ranks=2)
    assert row["efficiency_none"] == pytest.approx(0.6)
    assert row["speed_up"] == pytest.approx(0.6 * row["num_ranks"])
    assert row["efficiency_backend"] == pytest.approx(0.75)
    assert row["efficiency_none_method"] == "paired t"
    base = row_of(table, backend="ring", num_ranks=1)
    assert base["efficiency_none"] == pytest.approx(0.8)
    assert (base["efficiency_backend"], base["efficiency_backend_method"]) == (1.0, "base case")
    none = row_of(table, backend="none", num_ranks=2)
    assert none["efficiency_none"] == none["efficiency_backend"]


def test_without_own_base_cases_nothing_is_said_of_them():
    records = make_study(efficiency={"none": (1.0, 0.95), "ring": (0.8, 0.6)}, noise=0.0)
    study = Study([one for one in records if (one.case.cell.backend, one.case.cell.num_ranks) != ("ring", 1)])
    row = row_of(study, backend="ring", num_ranks=2)
    assert row["efficiency_none"] == pytest.approx(0.6)
    frame = scaling.FINDING.of(study)
    assert frame["efficiency_backend"].isna().all()
    assert not [heading for heading in scaling.FINDING.table(frame) if "same backend" in heading]
    assert not frame["notes"].str.contains("same backend").any()


def test_drift_common_to_a_block_widens_the_rate_but_not_the_efficiency():
    row = row_of(Study(make_study(noise=0.005)), backend="ring", num_ranks=2)
    rate, ratio = (
        (row[f"{name}_high"] - row[f"{name}_low"]) / row[name]
        for name in ("samples_per_second", "efficiency_none")
    )
    assert rate > 10 * ratio


def test_a_delayed_rank_lowers_rate_and_efficiency():
    records = [make_record(block=block) for block in range(6)]
    records += [
        make_record(backend="ring", num_ranks=2, block=block, samples_per_second=200.0, rank_delays=[0, 0.4])
        for block in range(6)
    ]
    row = row_of(Study(records), backend="ring")
    assert row["samples_per_second"] == pytest.approx(100.0)  # rank 0 alone would say 200
    assert row["efficiency_none"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("base", "why"),
    [
        ([], "none on 1 rank was not measured"),
        ([{"failure": "hung"}], "every launch of none on 1 rank failed"),
    ],
)
def test_a_base_case_without_a_number_is_told(base, why):
    records = [make_record(block=block, **fields) for fields in base for block in range(6)]
    records += [make_record(backend="ring", num_ranks=2, block=block) for block in range(6)]
    table = Study(records)
    row = row_of(table, num_ranks=2)
    assert (row["efficiency_none"], row["efficiency_backend"]) == (None, None)
    assert row["samples_per_second"] is not None
    assert f"vs 1 rank: {why}" in row["notes"]
    assert "vs same backend" not in row["notes"]


@pytest.mark.parametrize(
    "different",
    [
        {"control": "whole_machine", "cores_per_rank": 2},
        {"control": "synthetic"},
        {"control": "loader"},
        {"cores_per_rank": 2},
        {"precision": "bf16"},
        {"compiled": True},
        {"device": "gpu"},
        {"framework": "tensorflow"},
        {"environment": "openmpi"},
        {"local_batch": 16},
        {"data": "events.h5:0123456789ab"},
        {"scaling_mode": "strong"},
        {"system": "other"},
    ],
)
def test_only_the_same_program_on_the_same_cores_is_a_base_case(different):
    records = [make_record(block=block, **different) for block in range(6)]
    records += [make_record(num_ranks=2, block=block) for block in range(6)]
    row = row_of(Study(records), num_ranks=2)
    assert row["efficiency_none"] is None


def test_controls_have_a_rate_and_no_efficiency():
    records = make_study()
    for control in ("synthetic", "loader", "whole_machine"):
        records += [make_record(block=block, control=control, samples_per_second=300) for block in range(6)]
    table = Study(records)
    for control in ("synthetic", "loader", "whole_machine"):
        row = row_of(table, control=control)
        assert row["samples_per_second"] == pytest.approx(300)
        assert (row["efficiency_none"], row["efficiency_backend"]) == (None, None)
    assert table.cells["family"].nunique() == 1


def test_too_few_launches_have_numbers_but_no_intervals():
    row = row_of(Study(make_study(num_blocks=2)), backend="ring", num_ranks=2)
    assert (row["samples_per_second_low"], row["samples_per_second_high"]) == (None, None)
    assert (row["efficiency_none_low"], row["efficiency_none_high"]) == (None, None)
    assert "fewer than 6 launches: no 95 % interval of samples/s" in row["notes"]
    assert "vs 1 rank: fewer than 3 blocks, no interval" in row["notes"]


@pytest.mark.parametrize(
    ("blocks", "other"),
    [
        (range(6, 12), {}),
        (range(6), {"started_at": "2026-11-25T07:00:00Z"}),  # days after the base case
        (range(6), {"study": "later"}),
    ],
)
def test_without_common_blocks_the_efficiency_is_flagged(blocks, other):
    records = [make_record(block=block) for block in range(6)]
    records += [make_record(backend="ring", num_ranks=2, block=block, **other) for block in blocks]
    row = row_of(Study(records), backend="ring")
    assert row["efficiency_none_method"] == "unpaired t"
    assert "vs 1 rank: no block in common with none on 1 rank, so unpaired" in row["notes"]


def test_a_pair_whose_launches_are_days_apart_is_none():
    """Stopped inside block 5 and resumed four days later, on a machine that is a third slower by then."""
    later = {"started_at": "2026-11-25T07:00:00Z", "samples_per_second": 130.0}
    records = [make_record(block=block) for block in range(6)]
    records += [
        make_record(backend="ring", num_ranks=2, block=block, samples_per_second=195.0) for block in range(5)
    ]
    resumed = make_record(backend="ring", num_ranks=2, block=5, **later)
    row = row_of(Study([*records, resumed]), backend="ring")
    assert (row["efficiency_none_method"], row["efficiency_none_n"]) == ("paired t", 5)
    assert row["efficiency_none"] == pytest.approx(0.975)
    assert row["num_launches"] == 6
    assert (
        "1 block resumed 4.0 days later: launches before and after the pause are not paired" in row["notes"]
    )


def test_the_median_block_is_told_where_launches_of_one_side_are_held_up():
    records = [make_record(block=block) for block in range(8)]
    records += [
        make_record(
            backend="ring", num_ranks=2, block=block, samples_per_second=190.0 / (1.4 if block < 2 else 1.0)
        )
        for block in range(8)
    ]
    row = row_of(Study(records), backend="ring")
    assert row["efficiency_none_median"] == pytest.approx(0.95)
    assert row["efficiency_none"] == pytest.approx(0.95 / 1.4**0.25)
    assert "efficiency vs 1 rank is 95.0 % in the median block, 87.3 % by geometric means" in row["notes"]


def jobs(*, backends=("none", "ring"), num_blocks=6):
    """Two jobs, of 1, 2 and 4 ranks and of 4, 8 and 16, the second on a machine that is 10 % slower by then.

    Every doubling of `ring` keeps 97 %, of `none` 99 %; launches spread by 0.5 %.
    """
    noise = np.random.default_rng(7)
    kept = {"none": 0.99, "ring": 0.97}
    return [
        make_record(
            backend=backend,
            num_ranks=ranks,
            block=job * num_blocks + block,
            samples_per_second=100
            * ranks
            * (0.9 if job else 1.0)
            * kept[backend] ** math.log2(ranks)
            * (1 + 0.2 * math.sin(block))
            * math.exp(0.005 * noise.standard_normal()),
        )
        for job, sizes in enumerate(((1, 2, 4), (4, 8, 16)))
        for block in range(num_blocks)
        for ranks in sizes
        for backend in backends
    ]


@pytest.mark.parametrize(("num_blocks", "method"), [(3, "chained t"), (2, "insufficient data, unpaired")])
def test_a_chain_takes_3_blocks_in_common(num_blocks, method):
    row = row_of(Study(jobs(num_blocks=num_blocks)), backend="ring", num_ranks=16)
    assert row["efficiency_none_method"] == method
    assert ("chained through" in row["notes"]) == (num_blocks >= 3)


def test_sizes_of_different_jobs_are_paired_through_the_one_that_they_share():
    row = row_of(Study(jobs()), backend="ring", num_ranks=16)
    low, high = row["efficiency_none_low"], row["efficiency_none_high"]
    assert (row["efficiency_none_method"], row["efficiency_none_n"]) == ("chained t", 6)
    assert low < 0.97**4 < high
    assert high - low < 0.03  # unpaired it has the 20 % by which blocks differ
    assert row["efficiency_none_median"] == pytest.approx(0.97**4, rel=0.01)
    chain = "chained through ring on 4 ranks, which ran in both jobs"
    assert f"vs 1 rank: no block in common with none on 1 rank; {chain}" in row["notes"]
    near = row_of(Study(jobs()), backend="ring", num_ranks=4)
    assert near["efficiency_none_method"] == "paired t"


def test_a_chain_may_go_through_none_and_never_through_a_third_backend():
    def sizes(backend, ranks):
        return [one for one in jobs() if one.case.cell.backend != backend or one.case.cell.num_ranks != ranks]

    row = row_of(Study(sizes("ring", 4)), backend="ring", num_ranks=16)
    assert row["efficiency_none_method"].startswith("chained t")
    assert "chained through none on 4 ranks" in row["notes"]
    mpi = [
        make_record(backend="mpi", num_ranks=one.case.cell.num_ranks, block=one.case.block)
        for one in jobs(backends=("ring",))
    ]
    alone = [one for one in jobs() if one.case.cell.num_ranks != 4]
    row = row_of(Study([*alone, *mpi]), backend="ring", num_ranks=16)
    assert row["efficiency_none_method"].startswith("unpaired t")


@pytest.mark.parametrize(
    ("shared", "method"), [((0, 1, 6, 7, 8), "unpaired t"), ((0, 1, 2, 6, 7, 8), "chained t")]
)
def test_a_link_needs_three_blocks_on_either_side(shared, method):
    few = [one for one in jobs() if one.case.cell.num_ranks != 4 or one.case.block in shared]
    row = row_of(Study(few), backend="ring", num_ranks=16)
    assert row["efficiency_none_method"].startswith(method)


def test_the_plan_counts_what_left_no_record():
    records = [make_record(block=block) for block in range(2)]
    planned = [make_record(block=block).case for block in range(6)]
    planned += [make_record(backend="ring", num_ranks=2, block=block).case for block in range(6)]
    table = Study(records, planned=planned)
    row = row_of(table, backend="none")
    assert (row["num_launches"], row["num_planned"]) == (2, 6)
    row = row_of(table, backend="ring")
    assert (row["num_launches"], row["num_planned"], row["samples_per_second"], row["notes"]) == (
        0,
        6,
        None,
        "not run",
    )


def test_flaws_are_noted():
    flawed = {"steady": False, "oversubscribed": True, "start_skew": 0.05, "window_factors": [1.0] * 4}
    records = [make_record(num_ranks=2, block=block, **flawed) for block in range(6)]
    records.append(make_record(num_ranks=2, block=0, attempt=2, **flawed | {"oversubscribed": False}))
    assert set(row_of(Study(records))["notes"].split("; ")) >= {
        "not steady in 6 of 6 launches",
        "oversubscribed: more ranks x cores than the machine has",
        "ranks start 5% of a window apart",
        "a launch of only 4 windows",
        "1 launch repeated after other attempts",
    }
    alone = row_of(Study([make_record(window_factors=[1.0])]))
    assert alone["num_launches"] == 1
    assert "a launch of only 1 windows" in alone["notes"]


def test_memory_is_the_largest_launch_s():
    records = [make_record(block=block, peak_rss_bytes=[100 + block]) for block in range(3)]
    records.append(make_record(block=3, peak_rss_bytes=[900], failure="out of memory"))
    row = row_of(Study(records))
    assert row["peak_rss_bytes"] == 102
    assert row_of(Study([make_record(peak_rss_bytes=[0])]))["peak_rss_bytes"] is None


def test_kinds_of_evidence_have_rows_of_their_own():
    records = [make_record(block=block) for block in range(6)]
    for kind in ("measured", "simulated"):
        records += [
            make_record(backend="ring", num_ranks=2, block=block, study=kind, evidence=kind)
            for block in range(6)
        ]
    table = Study(records)
    assert [row["evidence"] for row in rows_of(table)] == ["measured", "measured", "simulated"]
    assert "vs 1 rank: none on 1 rank is measured, not simulated" in rows_of(table)[2]["notes"]


def test_a_failed_launch_of_a_cell_with_two_kinds_of_evidence_counts_once():
    kinds = {"measured": 3, "emulated": 2}
    records = [make_record(block=b, study=kind, evidence=kind) for kind, n in kinds.items() for b in range(n)]
    records.append(make_record(block=9, failure="killed"))
    assert sum(row["num_planned"] for row in rows_of(Study(records))) == 6


def test_the_order_of_records_does_not_matter():
    records = make_study()
    there, back = (rows_of(Study(each)) for each in (records, records[::-1]))
    assert there == back


def test_the_control_of_the_batch_is_no_family_of_its_own():
    """Strong scaling's 1 rank at the local batch of 2 ranks belongs to the waterfall."""
    strong = {"scaling_mode": "strong"}
    records = [
        make_record(num_ranks=n, backend=backend, block=b, local_batch=8 // n, **strong)
        for n, backend in ((1, "none"), (2, "none"), (2, "ring"))
        for b in range(6)
    ]
    records += [make_record(block=b, local_batch=4, control="alone", **strong) for b in range(6)]
    table = Study(records)
    assert table.cells["family"].nunique() == 1
    control = row_of(table, local_batch=4, num_ranks=1)
    assert (control["control"], control["efficiency_none"]) == ("alone", None)


KEPT = {"none": {4: 1.0, 8: 1.0, 16: 1.0}, "ring": {4: 0.95, 8: 0.9, 16: 0.75}}


def sizes(alone=None):
    """Records on 4, 8 and 16 ranks, 8 of them per node, and on 1 rank if it keeps `alone` of 100 samples per second."""
    kept = {name: {**({1: alone} if alone else {}), **shares} for name, shares in KEPT.items()}
    return make_study(efficiency=kept, noise=0.0, num_nodes={16: 2})


def efficiencies(study):
    return {
        row["num_ranks"]: row["efficiency_none"] and round(row["efficiency_none"], 6)
        for row in rows_of(study)
        if row["backend"] == "ring"
    }


def test_without_1_rank_there_is_none_unless_another_base_is_chosen():
    assert efficiencies(Study(sizes())) == {4: None, 8: None, 16: None}
    assert efficiencies(Study(sizes(), base="smallest")) == {4: 0.95, 8: 0.9, 16: 0.75}
    assert efficiencies(Study(sizes(1.0)))[16] == 0.75


def test_a_node_is_the_most_ranks_on_one():
    study = Study(sizes(1.25), base="node")
    assert {row["base_ranks"] for row in rows_of(study)} == {8}
    assert efficiencies(study) == {1: 1.25, 4: 0.95, 8: 0.9, 16: 0.75}
    assert row_of(study, backend="ring", num_ranks=16)["efficiency_backend"] == pytest.approx(0.75 / 0.9)


def test_a_base_that_failed_is_no_base():
    failed = [record for record in sizes() if record.case.cell.num_ranks != 4]
    failed += [make_record(num_ranks=4, block=block, failure="died", local_batch=8) for block in range(6)]
    study = Study(failed, base="smallest")
    assert efficiencies(study)[16] is None
    assert any("vs 4 ranks: every launch of none on 4 ranks failed" in row["notes"] for row in rows_of(study))


def test_speed_up_is_relative_to_the_base():
    row = row_of(Study(sizes(), base="smallest"), backend="ring", num_ranks=16)
    assert (row["base_ranks"], row["speed_up"]) == (4, pytest.approx(3.0))  # 1200 over 400
