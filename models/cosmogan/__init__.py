"""CosmoGAN: a generator that learns to draw maps of weak-lensing convergence, against a discriminator.

Layers, losses and hyper-parameters are those of the authors' code, `networks/models/dcgan.py`, `ops.py` and
`run_dcgan.py` (github.com/MustafaMustafa/cosmoGAN): 5x5 kernels with stride 2 and biases everywhere, batch norm
(epsilon 1e-5, decay 0.9) but for the first and last layer of the discriminator and the last of the generator,
leaky ReLU of slope 0.2 in the discriminator and ReLU in the generator, whose last layer ends in tanh.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dlscale.models.layers import Layer, dense
from dlscale.models.weights import normal
from dlscale.models.workload import Preset, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Both networks: in each, layers that halve or double the map four times, and one dense layer.

    `num_filters` is the width next to the map; each further layer is twice as wide as the one before. The
    discriminator goes that way and ends in one logit, the generator comes back from `LATENT_SIZE` numbers.
    """

    num_filters: int
    beta1: float = 0.5

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels from the map to the dense layer: 1, `num_filters`, twice that, and so on."""
        return (1, *(self.num_filters << index for index in range(NUM_CONVOLUTIONS)))


NETWORKS = {
    "paper": Network(num_filters=64),
    "small": Network(num_filters=32),
    "tiny": Network(num_filters=4),
}
LEARNING_RATE = 2e-4  # of Adam, in both objectives
NUM_CONVOLUTIONS = 4  # of each network
KERNEL_SIZE = 5
PADDING = 2  # before a map; 1 after it
LEAKY_SLOPE = 0.2
EPSILON = 1e-5  # of batch norm
MOMENTUM = 0.1  # of batch norm: the weight of the new batch, 1 - decay
LATENT_SIZE = 64  # z, standard normal
FLIP_PROBABILITY = 0.01  # per step, of exchanging the labels of real and generated maps, for the whole batch


def step_layers(preset: Preset) -> list[Layer]:
    """What a step of a preset computes: the discriminator passes real and generated maps, the generator makes them.

    The gradients of the discriminator's own loss come first. Those of the generator's then come back through the
    discriminator, for its input alone.
    """
    widths, size = NETWORKS[preset.name].widths, preset.input_shape[2]
    grid = (size >> NUM_CONVOLUTIONS) ** 2

    def convolution(name: str, index: int, outputs: int, **passes: int) -> Layer:
        """Between the map `index` convolutions from the largest one and the next smaller one, either way."""
        kernel = KERNEL_SIZE**2 * widths[index] * widths[index + 1]
        return Layer(name, kernel, outputs, 2 * kernel * (size >> (index + 1)) ** 2, **passes)

    def norm(name: str, channels: int) -> Layer:
        return Layer(name, channels, channels, 0)

    generator = [dense("generator.dense", LATENT_SIZE, grid * widths[-1], backward=1)]
    for place, index in enumerate(reversed(range(NUM_CONVOLUTIONS))):
        generator.append(norm(f"generator.norms.{place}", widths[index + 1]))
        generator.append(convolution(f"generator.convolutions.{place}", index, widths[index]))
    discriminator = []
    for index in range(NUM_CONVOLUTIONS):
        name, passes = f"discriminator.convolutions.{index}", {"forward": 2, "backward": 4 if index else 2}
        discriminator.append(convolution(name, index, widths[index + 1], **passes))
        if index:
            discriminator.append(norm(f"discriminator.norms.{index - 1}", widths[index + 1]))
    discriminator.append(replace(dense("discriminator.dense", grid * widths[-1], 1), forward=2, backward=4))
    again = sum(layer.forward_flops for layer in discriminator)
    through = Layer("discriminator, for the generator", 0, 0, again, forward=0, backward=1)
    return [*(replace(layer, objective=1) for layer in generator), through, *discriminator]


WORKLOAD = Workload(
    name="cosmogan",
    title="CosmoGAN",
    presets={
        "paper": Preset(
            name="paper",
            input_shape=(1, 256, 256),
            num_parameters=17_260_674,  # 12,824,449 of the generator and 4,436,225 of the discriminator
            forward_flops_per_sample=10_188_226_560,
            local_batch=64,  # per node
            global_batch=16_384,
            learning_rate=LEARNING_RATE,
            block_rows=1 << NUM_CONVOLUTIONS,
            source="network and local batch: MustafaMustafa/cosmoGAN, run_dcgan.py; global batch of strong "
            "scaling: azrael417/cosmoGAN, 55e91ff (April 2018), networks/run_dcgan_edison.py",
        ),
        "small": Preset(
            name="small",
            input_shape=(1, 128, 128),
            num_parameters=3_235_906,
            forward_flops_per_sample=644_382_720,
            local_batch=4,  # ours: about 95 ms per step on one core; the full networks take 1.5 s
            global_batch=16,
            learning_rate=LEARNING_RATE,
            block_rows=1 << NUM_CONVOLUTIONS,
            source="the published networks with half the filters, on maps of half the size: not published",
        ),
        "tiny": Preset(
            name="tiny",
            input_shape=(1, 32, 32),
            num_parameters=42_570,
            forward_flops_per_sample=733_440,
            local_batch=2,
            global_batch=4,
            learning_rate=LEARNING_RATE,
            block_rows=1 << NUM_CONVOLUTIONS,
            source="the published networks with 4 filters, on 32x32 maps: for tests, not published",
        ),
    },
    default_preset="small",
    target_metric="Kolmogorov-Smirnov p-values of generated against held-out maps",
    optimizer="adam",
    num_slots=2,
    layers=step_layers,
    references=(
        "M. Mustafa et al., CosmoGAN, Comput. Astrophys. Cosmol. 6:1 (2019), arXiv:1706.02390",
        "T. Kurth et al., TensorFlow at Scale, CUG 2018 (slides)",
    ),
)

STD = 0.02
CUT = 2.0  # standard deviations


def initial(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """`initial.Initial` of both frameworks' networks."""
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    if ".norms." in name:
        return np.ones(shape, np.float32)
    values = normal(rng, shape, std=STD)
    if name.startswith("discriminator.convolutions."):
        while (outside := np.abs(values) > CUT * STD).any():
            values[outside] = normal(rng, (int(outside.sum()),), std=STD)
    return values
