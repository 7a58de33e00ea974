"""What ranks share samples: which points a study has, their batches and rows, and what is refused in one line."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.plan import row_carriers
from dlscale.benchmarks.study.settings import OPTIONS
from dlscale.collectives.neighbours import MPI, TORCH
from tests.benchmarks.study.test_axes import SMALL, trained
from tests.benchmarks.study.test_study import plan as plan_of

STRONG = {"name": "strong-scaling", "preset": "tiny"}
RING = {**STRONG, "backends": ["ring"]}


def plan(name="weak-scaling", **changes):
    return plan_of(name, **SMALL | changes)


def points(planned):
    """(backend, ranks, split, samples per replica, over all) of all trainings."""
    cells = [case.cell for launch in planned.launches for case in launch.cases]
    return sorted(
        {
            (c.backend, c.num_ranks, c.split, c.local_batch, c.global_batch)
            for c in cells
            if c.control == "train"
        }
    )


def test_strong_scaling_goes_on_beyond_the_batch_and_has_one_base_case():
    planned = plan(**RING, batch=2, ranks=[1, 2, 4, 8], split=[1, "auto"])
    assert points(planned) == [
        ("ring", 1, 1, 2, 2),
        ("ring", 2, 1, 1, 2),
        ("ring", 4, 2, 1, 2),
        ("ring", 8, 4, 1, 2),
    ]
    assert [text for text in planned.warnings if "split 1 on 4, 8 ranks is left out: strong" in text]


def test_auto_is_the_fewest_ranks_per_sample_that_divide_ranks_and_batch():
    planned = plan(**RING, batch=6, ranks=[2, 4, 8], split="auto")
    assert {(ranks, split) for _, ranks, split, *_ in points(planned)} == {(1, 1), (2, 1), (4, 2), (8, 4)}


def test_weak_scaling_keeps_the_samples_of_a_rank():
    planned = plan(preset="tiny", backends=["ring"], ranks=[1, 2, 4], split=[1, 2])
    assert points(planned) == [
        ("ring", 1, 1, 2, 2),
        ("ring", 2, 1, 2, 4),
        ("ring", 2, 2, 4, 4),
        ("ring", 4, 1, 2, 8),
        ("ring", 4, 2, 4, 8),
    ]


def test_whoever_exchanges_nothing_computes_on_the_same_rows():
    planned = plan(**STRONG, backends=["none", "ring"], batch=2, ranks=[1, 2, 4], split=2)
    for backend in ("none", "ring"):
        own = [(1, 1)] if backend == "none" else []
        assert [point[1:3] for point in points(planned) if point[0] == backend] == [*own, (2, 2), (4, 2)]
    cells = [case.cell for launch in planned.launches for case in launch.cases]
    assert row_carriers(cells) == {MPI: ["ring"]}


def alone(planned):
    """(split, samples) of all launches of 1 rank that computes what one of several does."""
    cells = [launch.cell for launch in planned.launches if launch.cell.control == "alone"]
    found = [(c.split, c.local_batch, c.global_batch) for c in cells]
    assert len(found) == len(set(found))
    return sorted(found)


def test_one_rank_computes_alone_what_a_smaller_batch_and_thin_blocks_are():
    own = {"backends": ["none", "ring"], "ranks": [1, 2, 4], "controls": ["alone"]}
    assert alone(plan(**STRONG | own, batch=4, split=[1, 2])) == [
        *((1, 1, 1), (1, 2, 2)),  # as 2 ranks with split 2 have the whole batch, and 4 ranks the half of it
        *((2, 2, 2), (2, 4, 4)),
    ]
    assert alone(plan(preset="tiny", batch=4, split=[1, 2], **own)) == [(2, 8, 8)]


def test_rows_go_over_torch_beside_its_backends_and_over_mpi_beside_all_others():
    def carriers(framework, backends):
        planned = plan(preset="tiny", frameworks=[framework], backends=backends, ranks=[2], split=2)
        return row_carriers(trained(planned, 2))

    assert carriers("torch", ["ring", "gloo", "horovod"]) == {MPI: ["horovod", "ring"], TORCH: ["gloo"]}
    assert carriers("tensorflow", ["ring", "tf_collective"]) == {MPI: ["ring", "tf_collective"]}


def test_what_ranks_exchange_that_share_samples_is_a_control_in_place_of_gradients_alone():
    planned = plan(**RING, batch=2, ranks=[2, 4], split="auto", controls=["exchange"])
    cells = [case.cell for launch in planned.launches for case in launch.cases]
    assert {(c.num_ranks, c.split) for c in cells if c.control == "exchange"} == {(2, 1)}
    assert {(c.num_ranks, c.split) for c in cells if c.control == "halos"} == {(4, 2)}


def test_usual_sizes_are_those_of_any_split():
    planned = plan(**RING, batch=2, split=[1, 2], num_cores=4)
    assert [point[:3] for point in points(planned)] == [
        ("ring", 1, 1),
        ("ring", 2, 1),
        ("ring", 2, 2),
        ("ring", 4, 2),
    ]


@pytest.mark.parametrize("text", ["1,2,auto", "1|2|auto"])
def test_splits_are_separated_by_commas_or_bars(text):
    assert OPTIONS["split"].read(text) == {"split": [1, 2, "auto"]}


TINY = {"preset": "tiny", "backends": ["ring"], "ranks": [2], "split": 2}
REFUSED = [
    (
        {**TINY, "ranks": [3]},
        "^split 2 does not divide 3 ranks; choose --split from: 1, 3; or other --ranks$",
    ),
    ({**TINY, "ranks": [1, 2, 4], "split": 4}, "^split 4 does not divide 2 ranks"),
    (
        {**TINY, "ranks": [16], "split": 16},
        r"^split 16 of hep_cnn \(tiny\): its 64 rows are 8 blocks of 8, and a rank .*; give --split 8 at most$",
    ),
    ({**TINY, "workloads": ["inception_v3"]}, "^split 2 of inception_v3: its network has no form for rows"),
    (
        {**RING, "workloads": ["inception_v3"], "batch": 1, "ranks": [2], "split": "auto"},
        "^split 2 of inception_v3: its network has no form for rows",
    ),
    ({**RING, "workloads": ["gpt"], "split": 2}, "^split 2 of gpt: its network has no form for rows"),
    ({**TINY, "workloads": ["gpt"]}, "^split 2 of gpt: its network has no form for rows"),
    ({**RING, "batch": 1, "ranks": [16], "split": "auto"}, r"^split 16 of hep_cnn \(tiny\): its 64 rows"),
    (
        {**RING, "batch": 3, "ranks": [4], "split": 2},
        "global batch 3 is not a multiple of the 2 replicas of 4 ranks; choose --ranks from: 2, 6; or another",
    ),
    ({**TINY, "algorithms": ["easgd"]}, "^split 2 with algorithm easgd, whose ranks train alone"),
    ({**TINY, "shard": "optimizer"}, "^split 2 with shard=optimizer; leave one of the two out$"),
    ({**TINY, "compiled": True}, "^split 2 with compiled networks"),
    (
        {**TINY, "backend_options": {"ring": {"compression": "topk"}}},
        "^split 2 with ring.compression=topk, which averages not all gradients",
    ),
    (
        {**TINY, "backends": ["grpc_ps"], "backend_options": {"grpc_ps": {"asynchronous": True}}},
        "^split 2 with grpc_ps.asynchronous=True, which averages not all",
    ),
    (
        {**TINY, "frameworks": ["tensorflow"], "backends": ["grpc_ps"]},
        "^split 2 with grpc_ps in tensorflow, which trains in a graph of TensorFlow 1",
    ),
    ({**TINY, "split": 0}, "split"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_cannot_be_split_is_refused_in_one_line(changes, words):
    with pytest.raises(UsageError, match=words) as caught:
        plan(**changes)
    assert "\n" not in str(caught.value)
