"""Tells images with a track from noise, by a network whose samples ranks can share by rows (docs/split.md)."""

import numpy as np
import torch
from torch import nn

block_rows = 4  # the product of all strides: ranks share a sample in such blocks of rows


def model(layers):
    """A small convolutional network."""
    return nn.Sequential(
        *(layers.conv(1, 16, 3, padding=1), layers.batch_norm(16), nn.ReLU(), layers.max_pool(2)),
        *(layers.conv(16, 32, 3, padding=1), layers.batch_norm(32), nn.ReLU(), layers.max_pool(2)),
        *(layers.global_mean(), nn.Linear(32, 2)),
    )


loss = nn.CrossEntropyLoss()


def optimizer(parameters):
    """Adam."""
    return torch.optim.Adam(parameters, lr=1e-3)


def data():
    """256 images (N, C, H, W), half of them with a track."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 256)
    images = rng.standard_normal((256, 1, 64, 64), dtype=np.float32)
    images[labels == 1] += np.eye(64, dtype=np.float32)
    return images, labels
