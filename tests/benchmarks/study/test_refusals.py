"""What studies refuse: each is one line that says what was asked, what was found and what to do."""

import pytest

from dlscale.base.errors import UsageError
from tests.benchmarks.study.plans import plan

MAPS = {"metric": "pixel_distance", "threshold": 0.5, "goals": {}}
GLOO = {"backends": ["gloo"], "preset": "tiny"}
RING = {"backends": ["ring"], "preset": "tiny"}
SERVED = {"backends": ["grpc_ps"], "preset": "tiny"}
STRONG = {"name": "strong-scaling"}
TARGET = {"name": "time-to-solution"}
SPLIT = {**RING, "ranks": [2], "split": 2}


def of_target(**target):
    return {**TARGET, "target": target}


CASES = [
    # values
    ({**GLOO, "batch": []}, "batch"),
    ({**GLOO, "precision": ["fp32", "fp8"]}, "precision"),
    ({**GLOO, "backend_options": {"gloo": {"nix": [1, 2]}}}, "has no option 'nix'"),
    (
        {**GLOO, "backend_options": {"gloo": {"bucket_cap_mb": [1, "a"]}}},
        "bucket_cap_mb of backend gloo is 'a'",
    ),
    ({**GLOO, "backend_options": {"gloo": {"bucket_cap_mb": list(range(1, 66))}}}, "at most 64"),
    ({**GLOO, "environment_variables": {"OMP_NUM_THREADS": "1"}}, "OMP_NUM_THREADS cannot be set"),
    ({**GLOO, "environment_variables": {"MY_TOKEN": ["a", "b"]}}, "MY_TOKEN cannot be set"),
    ({**GLOO, "environment_variables": {"lower": "a"}}, "lower cannot be set"),
    ({"precision": "fp8"}, "'fp32'.*'fp8'"),
    ({"budget": "soon"}, "'soon'.*duration"),
    ({"batch": 0}, "batch: input"),
    ({"seed": -5}, "seed: input"),
    ({"launches": 0}, "launches: input"),
    ({"rules": {"warmup_steps": 6000}}, "6000.*max_steps"),
    ({**RING, "shard": "all"}, "shard"),
    ({**SPLIT, "split": 0}, "split"),
    # names
    ({"workloads": ["hepcnn"]}, "'hepcnn'.*hep_cnn"),
    ({"frameworks": ["caffe"]}, "'caffe'.*torch"),
    ({"frameworks": ["tf"]}, "did you mean tensorflow"),
    ({"backends": ["fsdp"]}, "did you mean --shard parameters"),
    ({"backends": ["allreduce"]}, "did you mean ring or mpi"),
    ({"backends": ["none", "rings"]}, "'rings'.*none, mpi, gloo, ring"),
    ({"preset": "huge"}, "'huge'.*paper, small, rpv, tiny"),
    ({**RING, "algorithms": ["nix"]}, "no algorithm 'nix'; choose one of: sync, easgd"),
    ({**RING, "algorithms": []}, "algorithms"),
    # options of what is not in the study, and that do not go together
    (
        {**GLOO, "backend_options": {"horovod": {"cycle_time_ms": [1, 2]}}},
        "horovod has options, but is not among",
    ),
    ({**RING, "algorithm_options": {"easgd": {"interval": 2}}}, "easgd has options, but is not among"),
    (
        {**RING, "algorithms": ["easgd"], "algorithm_options": {"easgd": {"interval": 999}}},
        "give at most 496",
    ),
    (
        {**RING, "algorithms": ["easgd"], "algorithm_options": {"easgd": {"interval": [1, 0]}}},
        "interval of algorithm",
    ),
    ({"algorithms": ["easgd"], "backends": ["none"]}, "none of these carries it; add one of: mpi, gloo"),
    (
        {"frameworks": ["tensorflow"], "backends": ["none", "gloo"]},
        "gloo does not support tensorflow, only torch",
    ),
    ({"backends": ["none", "tf_collective"], "device": "gpu"}, "tf_collective does not support device gpu"),
    ({**SERVED, "servers": ["3"]}, "3 servers for 2 workers: more servers than workers"),
    ({**SERVED, "rules": {"checkpoint_every": 50}}, "servers hold a part of it"),
    (
        {"algorithms": ["easgd"], "backends": ["ring"], "rules": {"checkpoint_every": 50}},
        "with algorithm=easgd",
    ),
    (
        {
            "backends": ["mpi"],
            "backend_options": {"mpi": {"pipelined": True}},
            "rules": {"checkpoint_every": 50},
        },
        "with pipelined=True",
    ),
    # data and batches
    ({"preset": "paper"}, r"224.*--data|224.*hep_events"),
    ({"workloads": ["hep_cnn", "cosmogan"], "data": "some.h5"}, "some.h5: need an HDF5 file"),
    ({**STRONG, "ranks": [1, 3]}, "global batch 8 is not .* 3 ranks; choose --ranks that divide it"),
    ({"workloads": ["inception_v3"], "batch": 1}, "local batch of 1, but .* needs 2 images or more"),
    # shards
    (
        {"backends": ["mpi"], "shard": "parameters"},
        "mpi has no shard=parameters in torch; choose from: gloo, nccl$",
    ),
    (
        {**RING, "frameworks": ["torch", "tensorflow"], "shard": "optimizer"},
        "no shard=optimizer in tensorflow",
    ),
    ({"backends": ["none"], "shard": "optimizer"}, "shard=optimizer over none: none of these exchanges"),
    ({**RING, "algorithms": ["easgd"], "shard": "optimizer"}, "shard=optimizer with algorithm easgd"),
    ({**GLOO, "shard": "parameters", "compiled": True}, "shard=parameters with compiled networks"),
    (
        {**RING, "shard": "optimizer", "backend_options": {"ring": {"pipelined": True}}},
        "ring.pipelined=True with shard=optimizer",
    ),
    ({**RING, "shard": "optimizer", "device": "gpu"}, "shard=optimizer works on host memory"),
    # rows
    ({"split": 2, "ranks": [1]}, "--split 2 on 1 rank: only several ranks share a sample; add --ranks 2"),
    ({**SPLIT, "ranks": [3]}, "^split 2 does not divide 3 ranks; give another"),
    ({**SPLIT, "ranks": [1, 2, 4], "split": 4}, "^split 4 does not divide 2 ranks"),
    ({**SPLIT, "ranks": [16], "split": 16}, r"its 64 rows are 8 blocks of 8; give another"),
    (
        {**SPLIT, **STRONG, "batch": 1, "ranks": [16], "split": "auto"},
        r"^split 16 of hep_cnn \(tiny\): its 64 rows",
    ),
    ({**SPLIT, **STRONG, "batch": 3, "ranks": [4]}, "the 2 replicas of 4 ranks; choose --ranks that"),
    *(
        ({**SPLIT, "workloads": [name]}, f"^split 2 of {name}: its network has no")
        for name in ("gpt", "inception_v3")
    ),
    ({**SPLIT, "algorithms": ["easgd"]}, "^split 2 with algorithm=easgd; leave one of the two out$"),
    ({**SPLIT, "shard": "optimizer"}, "^split 2 with shard=optimizer"),
    ({**SPLIT, "compiled": True}, "^split 2 with compiled=True"),
    ({**SPLIT, "backend_options": {"ring": {"compression": "topk"}}}, "^split 2 with compression=topk"),
    (
        {**SPLIT, **SERVED, "backend_options": {"grpc_ps": {"asynchronous": True}}},
        "^split 2 with asynchronous=True",
    ),
    ({**SPLIT, **SERVED, "frameworks": ["tensorflow"]}, "^split 2 with grpc_ps in tensorflow"),
    # targets
    ({"target": {"learning_rate": 1e-3}}, r"belongs to time-to-solution: leave target\.learning_rate out"),
    (
        {"axes": {"learning_rate": [1e-3, 2e-3]}},
        r"belongs to time-to-solution: leave target\.learning_rate out",
    ),
    ({**TARGET, "controls": ["exchange"]}, "whose trainings have none"),
    (of_target(warm_up_samples=-1, learning_rate_scaling="sqrt"), "warm_up_samples: input"),
    (of_target(decay_samples=[9, 5]), "9,5 are not in ascending order"),
    (of_target(learning_rate=float("inf")), "learning_rate.*finite"),
    (of_target(optimizer="sgd"), "optimizer sgd needs a learning rate"),
    (of_target(optimizer="adam", learning_rate=0.1, momentum=0.5), "adam has no momentum"),
    (of_target(momentum=0.5), "momentum 0.5 needs an optimizer by name"),
    (of_target(optimizer="sgd", learning_rate=0.1, momentum=1.0), "target.momentum: input"),
    (of_target(metric="auc", threshold=1.2), "can never be reached"),
    (of_target(metric="auc", threshold=-0.1), "can never be reached"),
    (of_target(metric="auc", threshold="x"), "threshold: input"),
    (of_target(metric="f1", threshold=0.5), "no metric 'f1'; give --target METRIC=THRESHOLD, of: auc"),
    (of_target(metric="signal_efficiency"), "has no target; give --target"),
    (of_target(held_out=1e-6), "holds out 0 and leaves 4000"),
    (of_target(held_out=0.9999), "one global batch of 32"),
    ({**TARGET, "data": "synthetic"}, "there is nothing to learn; give --data"),
    (
        {**TARGET, **SERVED, "workloads": ["cosmogan"], "target": MAPS},
        "its servers lack what batch norm of cosmogan keeps",
    ),
    (
        {**TARGET, **SERVED, "frameworks": ["tensorflow"], "target": {"decay_samples": [50]}},
        "its servers have one learning rate for good",
    ),
    ({**TARGET, "backends": ["none"], "ranks": [2], "base": "smallest"}, "has no training on these ranks"),
]


@pytest.mark.parametrize(("changes", "words"), CASES)
def test_a_mistake_is_one_line(changes, words):
    with pytest.raises(UsageError, match=words) as caught:
        plan(**changes)
    assert "\n" not in str(caught.value)
