"""GPT: a decoder-only transformer that predicts each next token of a text. `paper` is GPT-2's smallest network.

The network is that of OpenAI's published code (github.com/openai/gpt-2, src/model.py): layer norm before attention and
before the MLP (pre-norm) and once behind the last block, learned positions, GELU by tanh, one kernel for queries, keys
and values, and an embedding that is also the output layer's kernel. It has no dropout. `tiny` and `small` are the same
network with other sizes, on bytes.

First weights are that code's: normal with standard deviation 0.02, positions 0.01, biases 0; and the kernels that add
to the residual are scaled by 1 / sqrt(number of such layers), two in a block (Radford et al. 2019, section 2.3).

A sample is a sequence of T tokens and, as labels, the T tokens that follow each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dlscale.models.layers import Layer, dense
from dlscale.models.weights import normal
from dlscale.models.workload import Preset, Workload

EPSILON = 1e-5  # of layer norm
STD, POSITIONS_STD = 0.02, 0.01  # of first weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The sizes of a network. `num_positions` is the longest sequence that it takes."""

    num_layers: int  # blocks of attention and MLP
    width: int  # features of a token
    num_heads: int
    num_positions: int
    vocabulary: int

    @property
    def num_hidden(self) -> int:
        """Units of an MLP."""
        return 4 * self.width

    @property
    def residual_std(self) -> float:
        """Standard deviation of the first kernels that add to the residual."""
        return STD / math.sqrt(2 * self.num_layers)


NETWORKS = {
    "paper": Network(num_layers=12, width=768, num_heads=12, num_positions=1024, vocabulary=50_257),
    "small": Network(num_layers=4, width=256, num_heads=4, num_positions=256, vocabulary=256),
    "tiny": Network(num_layers=2, width=64, num_heads=2, num_positions=128, vocabulary=256),
}


def step_layers(preset: Preset) -> list[Layer]:
    """What a step of a preset computes.

    The embedding is the output layer's kernel too, whose operations come last: its gradient is complete when the
    backward pass is. Attention's products of activations count with the kernel before them.
    """
    network, (length,) = NETWORKS[preset.name], preset.input_shape
    width, hidden = network.width, network.num_hidden

    def norm(name: str) -> Layer:
        return Layer(name, kernel=width, bias=width, forward_flops=0)

    found = [
        Layer("embedding", kernel=network.vocabulary * width, bias=0, forward_flops=0),
        Layer("positions", kernel=network.num_positions * width, bias=0, forward_flops=0),
    ]
    for index in range(network.num_layers):
        block = f"blocks.{index}"
        inputs = dense(f"{block}.attention.inputs", width, 3 * width, samples=length)
        found += [
            norm(f"{block}.attention.norm"),
            replace(inputs, forward_flops=inputs.forward_flops + 4 * length**2 * width),
            dense(f"{block}.attention.projection", width, width, samples=length),
            norm(f"{block}.mlp.norm"),
            dense(f"{block}.mlp.hidden", width, hidden, samples=length),
            dense(f"{block}.mlp.projection", hidden, width, samples=length),
        ]
    logits = Layer("logits", kernel=0, bias=0, forward_flops=2 * length * width * network.vocabulary)
    return [*found, norm("norm"), logits]


WORKLOAD = Workload(
    name="gpt",
    title="GPT",
    presets={
        "paper": Preset(
            name="paper",
            input_shape=(1024,),
            num_parameters=124_439_808,
            forward_flops_per_sample=291_648_307_200,
            local_batch=8,  # ours
            global_batch=512,
            learning_rate=6e-4,
            num_classes=50_257,
            tokens_per_sample=1024,
            source="network: openai/gpt-2, src/model.py, and Radford et al. 2019, section 2.3, as is the global batch; "
            "learning rate: karpathy/nanoGPT, train.py",
        ),
        "small": Preset(
            name="small",
            input_shape=(256,),
            num_parameters=3_290_624,
            forward_flops_per_sample=1_912_602_624,
            local_batch=2,  # ours: about 0.1 s per step on one core
            global_batch=8,
            learning_rate=1e-3,
            num_classes=256,
            tokens_per_sample=256,
            source="the published network with 4 layers of width 256, on 256 bytes: ours, not published",
        ),
        "tiny": Preset(
            name="tiny",
            input_shape=(128,),
            num_parameters=124_672,
            forward_flops_per_sample=37_748_736,
            local_batch=4,
            global_batch=8,
            learning_rate=2e-3,
            num_classes=256,
            tokens_per_sample=128,
            source="the published network with 2 layers of width 64, on 128 bytes: for tests, not published",
        ),
    },
    default_preset="small",
    target_metric="bits per byte of held-out text",
    optimizer="adam",
    num_slots=2,
    running_statistics=False,
    layers=step_layers,
    references=(
        "A. Radford et al., Language Models are Unsupervised Multitask Learners, OpenAI 2019",
        "OpenAI, github.com/openai/gpt-2, src/model.py",
    ),
)


def initial(
    network: Network, rng: np.random.Generator, name: str, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """`weights.Initial` of all frameworks' networks, once it is bound to a network."""
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    if name.endswith("projection.weight"):
        return normal(rng, shape, std=network.residual_std)
    return normal(rng, shape, std=POSITIONS_STD if name == "positions.weight" else STD)
