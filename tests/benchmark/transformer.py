"""Training steps of `gpt` beside the same network written plainly, interleaved in one process.

    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1 python -m tests.benchmark.transformer torch --pairs 20

torch: `nn.Module`s with `scaled_dot_product_attention`, trained by a plain loop. tensorflow: layers of Keras, with
`MultiHeadAttention`, trained by a `tf.function` around a tape and Keras's Adam. Ours is the replica in the trainer of
backend `none`. Both take steps on the same resident tokens, one thread on one core; who goes first is drawn by lot. The
variables are those of each launch (docs/decisions/0006-memory-is-kept-between-steps.md).
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from scipy import stats

from dlscale.collectives.registry import connect
from dlscale.models import load_workload
from dlscale.models.frameworks import framework_module
from dlscale.models.gpt import EPSILON, NETWORKS, Network
from dlscale.models.workload import Execution, Input, Shard

MIN_SECONDS = 0.1  # of a window
Step = Callable[[], float]  # one training step, done when it returns; its loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("framework", choices=("torch", "tensorflow"))
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--compiled", action="store_true", help="by torch.compile or XLA, both sides")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"), help="of both sides")
    asked = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    framework_module(asked.framework).prepare(1)
    facts = load_workload("gpt")
    preset = facts.preset(asked.preset)
    make = facts.factory(
        framework=asked.framework,
        preset=asked.preset,
        local_batch=asked.batch or preset.local_batch,
        source=Input(),
        execution=Execution(compiled=asked.compiled, precision=asked.precision),
    )
    replica = make(shard=Shard(), seed=1)
    trainer = connect("none", control=None, framework=asked.framework).distribute(
        lambda **_: replica, shard=Shard(), seed=1
    )

    def ours() -> float:
        trainer.step()
        trainer.synchronize()
        return float(trainer.loss())

    plain = {"torch": plain_torch, "tensorflow": plain_keras}[asked.framework]
    theirs = plain(NETWORKS[asked.preset], replica.next_batch(), preset.learning_rate, asked)
    compare(ours, theirs, num_pairs=asked.pairs)


def compare(ours: Step, theirs: Step, *, num_pairs: int) -> None:
    """Print the medians of the pairs' ratios of throughputs with 95 % intervals, which are two of the ratios.

    By wall time, and by the processor's time of all threads, which other programs on the machine disturb less.
    """
    lot = np.random.default_rng(1)
    num_steps = math.ceil(
        MIN_SECONDS / max(min(timed(step, 1)[0] for _ in range(5)) for step in (ours, theirs))
    )
    found: dict[Step, list[tuple[float, float]]] = {ours: [], theirs: []}
    for _ in range(num_pairs):
        for place in lot.permutation(2):
            step = (ours, theirs)[place]
            found[step].append(timed(step, num_steps))
    rank = int(stats.binom.ppf(0.025, num_pairs, 0.5))
    for place, clock in enumerate(("wall time", "processor time")):
        ratios = sorted(b[place] / a[place] for a, b in zip(found[ours], found[theirs], strict=True))
        mine, other = (
            1e3 * statistics.median(both[place] for both in found[step]) for step in (ours, theirs)
        )
        print(
            f"{clock}: ours / plain {statistics.median(ratios):.3f} [{ratios[rank - 1]:.3f}, {ratios[-rank]:.3f}]; "
            f"steps {mine:.1f} and {other:.1f} ms"
        )
    print(f"{num_pairs} pairs of {num_steps} steps; losses {ours():.4f} and {theirs():.4f}")


def timed(step: Step, num_steps: int) -> tuple[float, float]:
    """Seconds per step, of the wall and of the processor."""
    begin = time.perf_counter(), time.process_time()
    for _ in range(num_steps):
        step()
    return (time.perf_counter() - begin[0]) / num_steps, (time.process_time() - begin[1]) / num_steps


def plain_torch(sizes: Network, batch: tuple[Any, ...], rate: float, asked: argparse.Namespace) -> Step:
    import torch
    import torch.nn.functional as F  # noqa: N812 - torch's own convention
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width = sizes.width
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n, t, d = x.shape
            q, k, v = self.qkv(self.norm1(x)).split(d, dim=2)
            q, k, v = (part.view(n, t, sizes.num_heads, -1).transpose(1, 2) for part in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(n, t, d))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(sizes.vocabulary, sizes.width)
            self.places = nn.Embedding(sizes.num_positions, sizes.width)
            self.blocks = nn.Sequential(*(Block() for _ in range(sizes.num_layers)))
            self.norm = nn.LayerNorm(sizes.width)
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
            return self.norm(self.blocks(x)) @ self.tokens.weight.T

    model, (inputs, labels) = Gpt(), batch
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    network = torch.compile(model) if asked.compiled else model

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=asked.precision == "bf16"):
            logits = network(inputs)
        loss = F.cross_entropy(logits.view(-1, sizes.vocabulary).float(), labels.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def plain_keras(sizes: Network, batch: tuple[Any, ...], rate: float, asked: argparse.Namespace) -> Step:
    import keras
    import tensorflow as tf

    if asked.precision == "bf16":
        keras.config.set_dtype_policy("mixed_bfloat16")
    layers, (inputs, labels) = keras.layers, batch
    tokens = layers.Embedding(
        sizes.vocabulary, sizes.width, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.02)
    )
    places = layers.Embedding(sizes.num_positions, sizes.width)
    given = keras.Input((inputs.shape[1],), dtype="int64")
    x = tokens(given) + places(keras.ops.arange(inputs.shape[1]))
    for _ in range(sizes.num_layers):
        y = layers.LayerNormalization(epsilon=EPSILON)(x)
        attention = layers.MultiHeadAttention(sizes.num_heads, sizes.width // sizes.num_heads)
        x = x + attention(y, y, use_causal_mask=True)
        y = layers.LayerNormalization(epsilon=EPSILON)(x)
        y = layers.Dense(4 * sizes.width, activation=lambda z: keras.activations.gelu(z, approximate=True))(y)
        x = x + layers.Dense(sizes.width)(y)
    body = keras.Model(given, layers.LayerNormalization(epsilon=EPSILON)(x))
    optimizer = keras.optimizers.Adam(rate)
    optimizer.build(body.trainable_variables)

    @tf.function(jit_compile=asked.compiled)  # type: ignore[untyped-decorator]
    def train() -> Any:
        with tf.GradientTape() as tape:
            values = body(inputs, training=True)
            logits = keras.ops.matmul(
                values, keras.ops.transpose(keras.ops.cast(tokens.embeddings, values.dtype))
            )
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, [variable.value for variable in body.trainable_variables])
        optimizer.apply(gradients)
        return loss

    return lambda: float(train())


if __name__ == "__main__":
    main()
