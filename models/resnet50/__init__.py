"""ResNet-50: the residual network of 50 layers, in the variant called v1.5.

A bottleneck that halves height and width does so in its 3x3 convolution, not in its first 1x1 convolution as in the
paper; so do torchvision (its documentation of `resnet50` counts 25,557,032 parameters) and Goyal et al., whose
section 5.1 the training follows: SGD with Nesterov momentum 0.9, weight decay 1e-4 on everything but batch norm, a
learning rate of 0.1 for 256 images. No convolution has a bias, for batch norm follows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlscale.models.layers import Layer, convolution_norm, dense
from dlscale.models.weights import he_normal, normal
from dlscale.models.workload import Preset, Workload

MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4
LEARNING_RATE = 0.1  # for REFERENCE_BATCH images over all ranks, and in proportion for other batches
REFERENCE_BATCH = 256
BLOCK_ROWS = 32  # five halvings: the stem, the pool, and each stage but the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """A residual block: 1x1 to `width` channels, 3x3 with `stride`, 1x1 to 4 `width`; added to its input.

    Where the shapes differ, a 1x1 convolution with the same stride takes the input there.
    """

    inputs: int
    width: int
    stride: int

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return 4 * self.width

    @property
    def projects(self) -> bool:
        """True if the input has to be brought to the shape of the result."""
        return self.stride != 1 or self.inputs != self.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Widths and depths of the stages; each but the first halves height and width and has twice the channels."""

    num_filters: int = 64  # of the first convolution, and inside the blocks of the first stage
    num_blocks: tuple[int, ...] = (3, 4, 6, 3)  # of the stages

    @property
    def stages(self) -> tuple[tuple[Bottleneck, ...], ...]:
        """The blocks of every stage, in order."""
        stages = []
        inputs = self.num_filters
        for stage, num_blocks in enumerate(self.num_blocks):
            blocks = []
            for block in range(num_blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(Bottleneck(inputs=inputs, width=self.num_filters << stage, stride=stride))
                inputs = blocks[-1].outputs
            stages.append(tuple(blocks))
        return tuple(stages)

    @property
    def num_features(self) -> int:
        return self.stages[-1][-1].outputs


NETWORKS = {"paper": Network(), "small": Network(), "tiny": Network(num_filters=8, num_blocks=(2, 1, 1, 1))}


def learning_rate(global_batch: int) -> float:
    """The published rate for a preset's global batch, 0.1 x batch / 256; what other batches need is not guessed."""
    return LEARNING_RATE * global_batch / REFERENCE_BATCH


def step_layers(preset: Preset, network: Network | None = None) -> list[Layer]:
    """What a step of a preset computes; of another network of the kind on the preset's images."""
    network = network or NETWORKS[preset.name]
    channels, height, width = preset.input_shape
    pixels = height * width // 4
    found = convolution_norm("stem", channels, network.num_filters, window=49, pixels=pixels, first=True)
    pixels //= 4
    for stage, blocks in enumerate(network.stages):
        for index, block in enumerate(blocks):
            name, before = f"stages.{stage}.{index}", pixels
            pixels //= block.stride**2
            inner = block.width
            found += convolution_norm(f"{name}.reduce", block.inputs, inner, window=1, pixels=before)
            found += convolution_norm(f"{name}.spatial", inner, inner, window=9, pixels=pixels)
            found += convolution_norm(f"{name}.expand", inner, block.outputs, window=1, pixels=pixels)
            if block.projects:
                found += convolution_norm(
                    f"{name}.shortcut", block.inputs, block.outputs, window=1, pixels=pixels
                )
    return [*found, dense("classifier", network.num_features, preset.num_classes)]


WORKLOAD = Workload(
    name="resnet50",
    title="ResNet-50",
    presets={
        "paper": Preset(
            name="paper",
            input_shape=(3, 224, 224),
            num_parameters=25_557_032,
            forward_flops_per_sample=8_178_368_512,
            local_batch=32,
            global_batch=256,
            learning_rate=learning_rate(256),
            num_classes=1000,
            block_rows=BLOCK_ROWS,
            source="Goyal et al. 2017, arXiv:1706.02677, section 5.1: n = 32 images per worker, kn = 256",
        ),
        "small": Preset(
            name="small",
            input_shape=(3, 64, 64),
            num_parameters=25_557_032,
            forward_flops_per_sample=671_383_552,
            local_batch=4,  # ours: 0.2 to 0.3 s per step on one core
            global_batch=16,
            learning_rate=learning_rate(16),
            num_classes=1000,
            block_rows=BLOCK_ROWS,
            source="the published network on 64x64 images, with batches of ours",
        ),
        "tiny": Preset(
            name="tiny",
            input_shape=(3, 32, 32),
            num_parameters=132_146,
            forward_flops_per_sample=1_606_656,
            local_batch=4,
            global_batch=8,
            learning_rate=learning_rate(8),
            num_classes=10,
            block_rows=BLOCK_ROWS,
            source="an eighth of the channels and five of the 16 blocks: for tests, not published",
        ),
    },
    default_preset="small",
    target_metric="top-1 accuracy on the validation images",
    optimizer="sgd",
    num_slots=1,  # the momentum
    layers=step_layers,
    references=(
        "K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016, arXiv:1512.03385",
        "P. Goyal et al., Accurate, Large Minibatch SGD, 2017, arXiv:1706.02677",
    ),
)


def initial(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """`initial.Initial` of both frameworks' networks."""
    if name.endswith("expand.norm.weight"):
        return np.zeros(shape, np.float32)
    return initial_of_gate(rng, name, shape)


def initial_of_gate(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The same with all scales 1: behind a scale of 0 all gradients are 0, and none could be seen to be lost."""
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    if name == "classifier.weight":
        return normal(rng, shape, std=0.01)
    return he_normal(rng, shape, fan_out=True)
