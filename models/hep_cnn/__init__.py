"""HEP-CNN: tells collisions with supersymmetric gluinos from QCD jets in calorimeter images.

The 224x224x3 benchmark network is that of the authors' repository, `networks/binary_classifier_tf.py` with
`scaling_improvements` (github.com/sparticlesteve/hep_cnn_benchmark, configs `cori_knl_224_adam.json` and
`daint_gpu_224.json`); the 64x64x3 one is the same file without that switch, three convolutions and 512 units
(`*_64.json`). Both have no batch norm, He-normal initialisation and dropout with keep probability 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlscale.models.layers import Layer, dense
from dlscale.models.weights import he_normal
from dlscale.models.workload import Preset, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Layers of a HEP-CNN: 3x3 convolutions with ReLU, each but perhaps the last followed by 2x2 pooling.

    Without `num_hidden` the last convolution ends in a global average pool and a dense layer (224x224);
    with it every convolution is pooled and a hidden dense layer with dropout follows (64x64).
    """

    num_convolutions: int
    num_filters: int
    num_hidden: int | None


NETWORKS = {
    "paper": Network(num_convolutions=5, num_filters=128, num_hidden=None),
    "small": Network(num_convolutions=3, num_filters=128, num_hidden=512),
    "rpv": Network(num_convolutions=3, num_filters=128, num_hidden=512),
    "tiny": Network(num_convolutions=3, num_filters=8, num_hidden=16),
}
KEEP_PROBABILITY = 0.5


def step_layers(preset: Preset) -> list[Layer]:
    """What a step of a preset computes."""
    network = NETWORKS[preset.name]
    channels, height, width = preset.input_shape
    filters = network.num_filters
    found = []
    for index in range(network.num_convolutions):
        kernel = 9 * (filters if index else channels) * filters
        flops = 2 * kernel * (height >> index) * (width >> index)
        found.append(Layer(f"convolutions.{index}", kernel, filters, flops, backward=2 if index else 1))
    units = filters
    if network.num_hidden:
        units = filters * (height >> network.num_convolutions) * (width >> network.num_convolutions)
        found.append(dense("hidden", units, network.num_hidden))
        units = network.num_hidden
    return [*found, dense("classifier", units, preset.num_classes)]


WORKLOAD = Workload(
    name="hep_cnn",
    title="HEP-CNN",
    presets={
        "paper": Preset(
            name="paper",
            input_shape=(3, 224, 224),
            num_parameters=594_178,
            forward_flops_per_sample=5_260_050_944,
            local_batch=128,  # per node
            global_batch=64,
            learning_rate=1e-3,
            num_classes=2,
            block_rows=16,
            source="network and local batch: sparticlesteve/hep_cnn_benchmark, cori_knl_224_adam.json; "
            "global batch of strong scaling: Kurth et al., TensorFlow at Scale, CUG 2018, slides",
        ),
        "small": Preset(
            name="small",
            input_shape=(3, 64, 64),
            num_parameters=4_494_594,
            forward_flops_per_sample=414_189_568,
            local_batch=2,  # ours: 30 to 40 ms per step on one core, and the published batch at four ranks
            global_batch=8,
            learning_rate=1e-5,
            num_classes=2,
            block_rows=8,
            source="network and global batch: sparticlesteve/hep_cnn_benchmark, *_64.json",
        ),
        "rpv": Preset(
            name="rpv",
            input_shape=(1, 64, 64),
            num_parameters=4_492_290,
            forward_flops_per_sample=395_315_200,
            local_batch=2,
            global_batch=8,
            learning_rate=1e-5,
            num_classes=2,
            block_rows=8,
            source="the small network on the single channel of the published RPV files (group `all_events`)",
        ),
        "tiny": Preset(
            name="tiny",
            input_shape=(3, 64, 64),
            num_parameters=9_634,
            forward_flops_per_sample=3_260_480,
            local_batch=2,
            global_batch=4,
            learning_rate=1e-3,
            num_classes=2,
            block_rows=8,
            source="the 64x64x3 network with 8 filters and 16 hidden units: for tests, not published",
        ),
    },
    default_preset="small",
    target_metric="signal efficiency at the published selection's background rejection",
    optimizer="adam",
    num_slots=2,
    running_statistics=False,
    layers=step_layers,
    references=(
        "T. Kurth et al., Deep Learning at 15PF, SC17, arXiv:1708.05256",
        "T. Kurth et al., TensorFlow at Scale, CUG 2018 (slides)",
    ),
)


def initial(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """`initial.Initial` of both frameworks' networks."""
    return np.zeros(shape, np.float32) if name.endswith("bias") else he_normal(rng, shape)


def mask_shapes(network: Network, *, height: int, width: int) -> list[tuple[int, ...]]:
    """Shapes of one sample's masks, in the order of the layers: (H, W, C) after each pool, (units,) after dense."""
    num_pools = network.num_convolutions if network.num_hidden else network.num_convolutions - 1
    shapes: list[tuple[int, ...]] = [
        (height >> pool, width >> pool, network.num_filters) for pool in range(1, num_pools + 1)
    ]
    return [*shapes, (network.num_hidden,)] if network.num_hidden else shapes
