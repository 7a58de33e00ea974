"""What studies refuse: each is one line that says what was asked, what was found and what to do."""

import pytest

from dlscale.base.errors import UsageError
from tests.benchmarks.study.test_study import cells, plan

MAPS = {"metric": "pixel_distance", "threshold": 0.5, "goals": {}}
OF_GLOO = [
    ({"batch": [2, 2]}, "batch has the value 2 twice"),
    ({"batch": []}, "batch has an empty value"),
    ({"precision": ["fp32", "fp8"]}, "precision"),
    ({"backend_options": {"gloo": {"nix": [1, 2]}}}, "has no option 'nix'"),
    ({"backend_options": {"gloo": {"bucket_cap_mb": [1, "a"]}}}, "bucket_cap_mb of backend gloo is 'a'"),
    ({"backend_options": {"horovod": {"cycle_time_ms": [1, 2]}}}, "horovod is not in the study"),
    ({"backend_options": {"gloo": {"bucket_cap_mb": list(range(1, 66))}}}, "65 curves of gloo, and 64"),
    ({"environment_variables": {"OMP_NUM_THREADS": "1"}}, "OMP_NUM_THREADS is dlscale's own"),
    ({"environment_variables": {"MY_TOKEN": ["a", "b"]}}, "looks like a secret"),
    ({"environment_variables": {"lower": ["a", "b"]}}, "'lower' is no environment variable"),
    ({"axes": {"learning_rate": [1e-3, 2e-3]}}, "learning_rate is of a study's target"),
]
OF_RING = [
    (
        {"algorithms": ["easgd"], "algorithm_options": {"easgd": {"interval": 999}}},
        "easgd.interval=999: 10 windows of whole rounds are more than rules.max_steps = 5000 leaves",
    ),
    ({"algorithms": ["nix"]}, "no algorithm 'nix'; choose one of: sync, easgd"),
    ({"algorithms": []}, "algorithms"),
    ({"algorithms": ["sync", "sync"]}, "has the value sync twice"),
    ({"algorithms": ["easgd"], "backends": ["none"]}, "none of these carries it; add one of: mpi, gloo"),
    ({"algorithm_options": {"easgd": {"interval": 2}}}, "easgd has options, but easgd is not in the study"),
    ({"algorithm_options": {"nix": {"interval": 2}}}, "no algorithm 'nix'"),
    (
        {"algorithms": ["easgd"], "algorithm_options": {"easgd": {"interval": [1, 0]}}},
        "interval of algorithm",
    ),
    ({"algorithms": ["easgd"], "algorithm_options": {"easgd": {"momentum": 0.9}}}, "is that of plain SGD"),
]
OF_SPEED = [
    ({"workloads": ["hepcnn"]}, "'hepcnn'.*hep_cnn"),
    ({"frameworks": ["caffe"]}, "'caffe'.*torch"),
    ({"frameworks": ["tf"]}, "did you mean tensorflow"),
    ({"backends": ["fsdp"]}, "did you mean --shard parameters"),
    ({"backends": ["allreduce"]}, "did you mean ring or mpi"),
    ({"split": 2, "ranks": [1]}, "--split 2 on 1 rank: only several ranks share a sample; add --ranks 2"),
    ({"backends": ["none", "rings"]}, "'rings'.*none, mpi, gloo, ring"),
    ({"frameworks": ["tensorflow"], "backends": ["none", "gloo"]}, "gloo does not .*; choose .*: torch"),
    ({"preset": "huge"}, "'huge'.*paper, small, rpv, tiny"),
    ({"preset": "paper"}, r"224.*--data|224.*hep_events"),
    ({"precision": "fp8"}, "'fp32'.*'fp8'"),
    ({"budget": "soon"}, "'soon'.*duration"),
    ({"batch": 0}, "batch.*more than 0"),
    ({"batch": 3000}, "4000"),
    ({"ranks": [1, 2048], "num_cores": 2048}, "4000"),
    ({"seed": -5}, "seed.*at least 0"),
    ({"launches": 0}, "launches.*more than 0"),
    ({"rules": {"warmup_steps": 6000}}, "6000.*max_steps"),
    (
        {"name": "strong-scaling", "ranks": [1, 3]},
        "global batch 8 is not .* 3 ranks; choose --ranks from: 1, 2, 4, 8",
    ),
    (
        {"name": "strong-scaling", "ranks": [1, 2], "batch": 9},
        "global batch 9 is not a multiple of 2 ranks.*: 1, 3, 9; --split auto; or another --batch",
    ),
    ({"workloads": ["inception_v3"], "batch": 1}, "local batch of 1, but .* needs 2 images or more"),
    (
        {
            "name": "strong-scaling",
            "workloads": ["inception_v3"],
            "preset": "tiny",
            "ranks": [1, 4],
            "num_cores": 4,
        },
        "local batch of 1, but .* needs 2 images or more",
    ),
    ({"target": {"learning_rate": 1e-3}}, r"belongs to time-to-solution: leave target\.learning_rate out"),
]
OF_TARGETS = [
    ({"warm_up_samples": 10}, "set target.learning_rate_scaling to linear or sqrt"),
    ({"warm_up_samples": -1, "learning_rate_scaling": "sqrt"}, "warm_up_samples: at least"),
    ({"decay_samples": [9, 5]}, "9,5 are not in ascending order"),
    ({"learning_rate": float("inf")}, "learning_rate.*finite"),
    ({"optimizer": "sgd"}, "optimizer sgd needs a learning rate"),
    ({"optimizer": "adam", "learning_rate": 0.1, "momentum": 0.5}, "adam has no momentum"),
    ({"momentum": 0.5}, "momentum 0.5 needs an optimizer by name"),
    ({"optimizer": "sgd", "learning_rate": 0.1, "momentum": 1.0}, "target.momentum: less than"),
    ({"metric": "auc", "threshold": 1.2}, "can never be reached"),
    ({"metric": "auc", "threshold": -0.1}, "can never be reached"),
    ({"metric": "f1", "threshold": 0.5}, "no metric 'f1'; choose one of: auc"),
    ({"metric": "signal_efficiency"}, "has no target; give one, e.g. --target signal_efficiency=0.9"),
    ({"held_out": 1e-6}, "holds out 0 and leaves 4000"),
    ({"held_out": 0.9999}, "one global batch of 32"),
    ({"max_seconds": 0.001}, "an evaluation on 503 held-out samples takes about 0.033 s alone"),
]
OF_SOLUTIONS = [
    (
        {
            "frameworks": ["tensorflow"],
            "ranks": [2],
            "backends": ["grpc_ps"],
            "backend_options": {"grpc_ps": {"backup_workers": 1}},
        },
        r"grpc_ps\.backup_workers in time-to-solution: gradients of some ranks",
    ),
    (
        {"workloads": ["cosmogan"], "preset": "tiny", "backends": ["grpc_ps"], "target": MAPS},
        "cosmogan over grpc_ps: servers do not have what batch norm keeps",
    ),
    (
        {"backends": ["grpc_ps"], "rules": {"checkpoint_every": 50}},
        "does not work with backend grpc_ps, whose servers hold part",
    ),
    *(
        ({"backends": ["grpc_ps"], "target": target}, words)
        for target, words in (
            (
                {"decay_samples": [50]},
                "target.decay_samples over grpc_ps: its servers make the updates, with one",
            ),
            (
                {"warm_up_samples": 50, "learning_rate_scaling": "linear"},
                "target.warm_up_samples over grpc_ps",
            ),
        )
    ),
]
CASES = [
    *(({"backends": ["gloo"], "preset": "tiny"} | changes, words) for changes, words in OF_GLOO),
    *(({"backends": ["none", "ring"], "preset": "tiny"} | changes, words) for changes, words in OF_RING),
    *OF_SPEED,
    *(({"name": "time-to-solution", "target": target}, words) for target, words in OF_TARGETS),
    *(({"name": "time-to-solution"} | changes, words) for changes, words in OF_SOLUTIONS),
]


@pytest.mark.parametrize(("changes", "words"), CASES)
def test_a_mistake_is_one_line(changes, words):
    with pytest.raises(UsageError, match=words) as caught:
        plan(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("workload", ["cosmogan", "hep_cnn", "resnet50"])
def test_a_batch_of_one_is_enough_for_networks_that_can_train_on_it(workload):
    assert {c.local_batch for c in cells(plan(workloads=[workload], batch=1))} == {1}
