"""Inception v3, with the auxiliary head that takes part in training.

Szegedy et al. 2015, arXiv:1512.00567, as torchvision defines it: its documentation of `Inception_V3_Weights` counts
27,161,264 parameters, auxiliary head included, with batch norm that has scale and shift and an epsilon of 1e-3. One
thing differs: where an average pool is padded, the padding is not counted, as in TensorFlow-Slim's
`research/slim/nets/inception_v3.py` with its SAME pools. No parameter depends on that.

Training is that of the published throughput numbers, plain SGD: tensorflow/benchmarks, scripts/tf_cnn_benchmarks,
whose `models/inception_model.py` has a learning rate of 0.005. The weight 0.4 of the auxiliary loss is
`research/slim/train_image_classifier.py`'s; dropout with p = 0.5 is torchvision's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlscale.models.inception_v3.layers import counted, layers, num_outputs
from dlscale.models.layers import Layer, dense
from dlscale.models.weights import normal
from dlscale.models.workload import Preset, Workload

LEARNING_RATE = 0.005
AUXILIARY_WEIGHT = 0.4  # of the auxiliary head's loss
KEEP_PROBABILITY = 0.5
EPSILON = 1e-3  # of batch norm
NUM_FEATURES = 2048  # channels that dropout and classifier see

DIVISORS = {"paper": 1, "small": 1, "tiny": 16}
"""What the published numbers of channels are divided by, per preset."""


def step_layers(preset: Preset) -> list[Layer]:
    """What a step of a preset computes; the auxiliary head is passed before the last blocks."""
    network, (channels, height, width) = layers(DIVISORS[preset.name]), preset.input_shape
    stem, size = counted("stem", network.stem, channels, (height, width), first=True)
    inputs = num_outputs(network.stem, channels)
    blocks, size = counted("blocks", network.blocks, inputs, size)
    inputs = num_outputs(network.blocks, inputs)
    auxiliary, _ = counted("auxiliary", network.auxiliary, inputs, size)
    last, _ = counted("last_blocks", network.last_blocks, inputs, size)
    heads = [
        dense(name, num_outputs(head, inputs), preset.num_classes)
        for name, head in (("classifier", network.last_blocks), ("auxiliary_classifier", network.auxiliary))
    ]
    return [*stem, *blocks, *auxiliary, *last, *heads]


WORKLOAD = Workload(
    name="inception_v3",
    title="Inception v3",
    presets={
        "paper": Preset(
            name="paper",
            input_shape=(3, 299, 299),
            num_parameters=27_161_264,
            forward_flops_per_sample=11_437_798_592,
            local_batch=64,
            global_batch=512,
            learning_rate=LEARNING_RATE,
            num_classes=1000,
            source="TensorFlow's performance guide (tensorflow/docs, site/en/r1/guide/performance/benchmarks.md): "
            "64 images per GPU, and all 8 of a DGX-1",
        ),
        "small": Preset(
            name="small",
            input_shape=(3, 299, 299),  # less is too small for the auxiliary head
            num_parameters=27_161_264,
            forward_flops_per_sample=11_437_798_592,
            local_batch=2,  # ours: about 1 s per step on one core, and the least that batch norm can do with
            global_batch=8,
            learning_rate=LEARNING_RATE,
            num_classes=1000,
            source="the published network and images, with batches of ours",
        ),
        "tiny": Preset(
            name="tiny",
            input_shape=(3, 299, 299),
            num_parameters=99_044,
            forward_flops_per_sample=46_908_272,
            local_batch=2,
            global_batch=4,
            learning_rate=LEARNING_RATE,
            num_classes=10,
            source="a sixteenth of the channels: for tests, not published",
        ),
    },
    default_preset="small",
    target_metric="top-1 accuracy on the validation images",
    optimizer="sgd",
    num_slots=0,
    layers=step_layers,
    references=(
        "C. Szegedy et al., Rethinking the Inception Architecture for Computer Vision, CVPR 2016, arXiv:1512.00567",
        "A. Sergeev and M. Del Balso, Horovod, 2018, arXiv:1802.05799",
    ),
)

_STD = {"auxiliary.2.convolution.weight": 0.01, "auxiliary_classifier.weight": 0.001}


def initial(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """`initial.Initial` of both frameworks' networks."""
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    return normal(rng, shape, std=_STD.get(name, 0.1))
