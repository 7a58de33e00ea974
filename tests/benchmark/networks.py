"""Training steps of our networks beside others' definition of the same network, interleaved in one process.

python tests/benchmark/networks.py --case resnet50-tensorflow --pairs 20 --threads 1 --batch 4

| case | compared with |
| --- | --- |
| resnet50-tensorflow, inception_v3-tensorflow | keras.applications |
| resnet50-torch, inception_v3-torch | timm if it is installed, else (resnet50) transformers |
| hep_cnn-torch, cosmogan-torch | our own in bf16, the other memory format, and torch.compile |
| hep_cnn-tensorflow, cosmogan-tensorflow | our own in bf16, and compiled by XLA |

Both sides of a pair take their steps in dlscale's own trainer, on the same resident tensors, with the same kind of
optimizer; who goes first is drawn by lot. keras.applications' ResNet-50 has biases and the stride of the first variant
(v1), its Inception v3 no auxiliary head: their floating-point operations are printed for that reason.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from dlscale.benchmarks.rank import affinity
from dlscale.models import load_workload
from dlscale.models.frameworks import MEMORY_FORMATS
from dlscale.models.workload import Execution, Input, Shard

Step = Callable[[], None]
CASES = tuple(
    f"{workload}-{framework}"
    for workload in ("resnet50", "inception_v3", "hep_cnn", "cosmogan")
    for framework in ("tensorflow", "torch")
)
MIN_SECONDS = 0.15  # of a window; short steps are taken several at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Somebody else's network with what a trainer asks of a replica."""

    objectives: tuple[Any, ...]
    next_batch: Callable[[], tuple[Any, ...]]
    differentiate: Callable[..., Any] | None = None  # TensorFlow's trainer asks for it
    compiled: bool = False


def main() -> None:
    arguments = read_arguments()
    workload, framework = arguments.case.split("-")
    affinity.bind(arguments.threads)
    limit_threads(framework, arguments.threads)
    front = importlib.import_module(f"dlscale.collectives.training._{framework}")

    def replica(precision: str = arguments.precision, **execution: Any) -> Any:
        factory = load_workload(workload).factory(
            framework=framework,
            preset=arguments.preset,
            local_batch=arguments.batch,
            source=Input(),
            execution=Execution(precision=precision, **execution),
        )
        return factory(shard=Shard(), seed=1)

    ours = replica()
    others: Mapping[str, Callable[[], Any]]
    if workload in ("hep_cnn", "cosmogan"):
        others = variants(framework, replica)
    elif framework == "torch":
        name = "timm" if importlib.util.find_spec("timm") else "transformers"
        others = {name: lambda: torch_peer(workload, ours, arguments)}
    else:
        others = {"keras.applications": lambda: keras_peer(workload, ours, arguments)}
    mine = front.alone(ours).step
    for name, make in others.items():
        other = make()
        compare(name, mine, front.alone(other).step, num_pairs=arguments.pairs)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--precision", default="fp32")
    return parser.parse_args()


def limit_threads(framework: str, num_threads: int) -> None:
    if framework == "torch":
        import torch

        torch.set_num_threads(num_threads)
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def variants(framework: str, replica: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    bf16 = {"bf16": lambda: replica(precision="bf16")}
    return bf16 | {
        f"{memory_format}{', compiled' if compiled else ''}": lambda f=memory_format, c=compiled: replica(
            memory_format=f, compiled=c
        )
        for memory_format in MEMORY_FORMATS[framework]
        for compiled in (False, True)
        if (memory_format, compiled) != ("channels_last", False)
    }


def compare(name: str, ours: Step, theirs: Step, *, num_pairs: int) -> None:
    """Print every pair's ratio of throughputs, and the 95 % interval of their geometric mean (Student's t)."""
    lot = np.random.default_rng(1)
    seconds = {step: min(timed(step, 1) for _ in range(3)) for step in (ours, theirs)}  # and warm
    num_steps = math.ceil(MIN_SECONDS / max(seconds.values()))
    ratios: list[float] = []
    found: dict[Step, list[float]] = {ours: [], theirs: []}
    for pair in range(num_pairs):
        for place in lot.permutation(2):
            step = (ours, theirs)[place]
            found[step].append(timed(step, num_steps))
        ratios.append(found[theirs][-1] / found[ours][-1])
        print(f"pair {pair + 1:2d}: ours / {name} = {ratios[-1]:.3f}")
    logs = [math.log(ratio) for ratio in ratios]
    mean, half = statistics.fmean(logs), math.inf
    if num_pairs > 1:
        half = stats.t.ppf(0.975, num_pairs - 1) * statistics.stdev(logs) / math.sqrt(num_pairs)
    low, middle, high = (math.exp(mean + offset) for offset in (-half, 0, half))
    medians = [statistics.median(found[step]) * 1e3 for step in (ours, theirs)]
    print(
        f"throughput of ours / {name}: {middle:.3f} [{low:.3f}, {high:.3f}]; "
        f"median steps {medians[0]:.1f} and {medians[1]:.1f} ms, {num_steps} per window"
    )


def timed(step: Step, num_steps: int) -> float:
    """Seconds per step."""
    begin = time.perf_counter()
    for _ in range(num_steps):
        step()
    return (time.perf_counter() - begin) / num_steps


def torch_peer(workload: str, ours: Any, arguments: argparse.Namespace) -> Peer:
    import torch
    import torch.nn.functional as F  # noqa: N812 - torch's own convention

    from dlscale.models.frameworks._torch import TorchObjective, autocast

    network, name = torch_network(workload)
    network = network.train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    print(f"{name}: {sum(p.numel() for p in network.parameters()):,} parameters")

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, images: torch.Tensor, labels: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
            with autocast(Execution(precision=arguments.precision)):
                logits = network(images)
            if not isinstance(logits, tuple):
                return F.cross_entropy(getattr(logits, "logits", logits).float(), labels)
            first, auxiliary = logits
            return F.cross_entropy(first.float(), labels) + 0.4 * F.cross_entropy(auxiliary.float(), labels)

    parameters = tuple(network.parameters())
    like = ours.objectives[0].optimizer.param_groups[0]
    options = {key: like[key] for key in ("lr", "momentum", "weight_decay", "nesterov", "fused")}
    objective = TorchObjective(
        loss=Loss(),
        names=tuple(name for name, _ in network.named_parameters()),
        parameters=parameters,
        optimizer=torch.optim.SGD(parameters, **options),
    )
    return Peer(objectives=(objective,), next_batch=ours.next_batch)


def torch_network(workload: str) -> tuple[Any, str]:
    if importlib.util.find_spec("timm"):
        import timm

        options = {"aux_logits": True, "drop_rate": 0.5} if workload == "inception_v3" else {}
        return timm.create_model(workload, **options), f"timm {timm.__version__}"
    if workload == "resnet50" and importlib.util.find_spec("transformers"):
        import transformers

        config = transformers.ResNetConfig(num_labels=1000)
        return transformers.ResNetForImageClassification(config), f"transformers {transformers.__version__}"
    raise SystemExit(f"there is nothing to compare {workload} with; pip install timm torchvision")


def keras_peer(workload: str, ours: Any, arguments: argparse.Namespace) -> Peer:
    import keras
    import tensorflow as tf

    from dlscale.models.frameworks._tensorflow import TensorFlowObjective, _flops

    if arguments.precision == "bf16":
        keras.config.set_dtype_policy("mixed_bfloat16")
    make = {"resnet50": keras.applications.ResNet50, "inception_v3": keras.applications.InceptionV3}[workload]
    batch = ours.next_batch()
    network = make(
        weights=None, classes=1000, classifier_activation=None, input_shape=tuple(batch[0].shape[1:])
    )
    graph = tf.function(lambda images: network(images, training=True)).get_concrete_function(batch[0]).graph
    flops = sum(_flops(operation) for operation in graph.get_operations()) // arguments.batch
    print(
        f"keras {keras.__version__}: {sum(math.prod(v.shape) for v in network.trainable_variables):,} parameters, "
        f"{flops:,} floating-point operations per sample, forward; ours {ours.forward_flops():,}"
    )
    parameters = tuple(variable.value for variable in network.trainable_variables)

    def differentiate(images: Any, labels: Any, *_: Any) -> tuple[list[Any], list[list[Any]], list[Any]]:
        with tf.GradientTape() as tape:
            logits = tf.cast(network(images, training=True), tf.float32)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = tf.reduce_mean(losses)
        return [loss], [tape.gradient(loss, parameters)], []

    objective = TensorFlowObjective(
        names=tuple(variable.path for variable in network.trainable_variables),
        parameters=parameters,
        optimizer=ours.objectives[0].optimizer,
    )
    return Peer(objectives=(objective,), next_batch=ours.next_batch, differentiate=differentiate)


if __name__ == "__main__":
    main()
