"""HEP-CNN in torch. Axis letters: N samples, C channels, H height, W width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import nn
from torch.utils.data import DataLoader, Dataset

from dlscale.models._torch import Batch, TorchObjective, TorchReplica
from dlscale.models.hep_cnn import KEEP_PROBABILITY, NETWORKS, Network
from dlscale.models.hep_cnn.data import EventFile
from dlscale.models.hep_cnn.dropout import draw_masks, mask_shapes
from dlscale.models.sharding import shard_indices
from dlscale.models.workload import Input, Preset, ReplicaFactory, Shard

ORDER_SEED = 20180523  # of the shuffled epochs; the same on every rank, or shards would overlap
SYNTHETIC_SEED = 13


class HepCnn(nn.Module):
    """The network up to its logits, (N, 2)."""

    def __init__(self, network: Network, *, input_shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.num_hidden = network.num_hidden
        widths = [channels, *[network.num_filters] * network.num_convolutions]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, kernel_size=3, padding=1) for before, after in pairwise(widths)
        )
        if network.num_hidden:
            num_pixels = (height >> network.num_convolutions) * (width >> network.num_convolutions)
            self.hidden = nn.Linear(network.num_filters * num_pixels, network.num_hidden)
        self.classifier = nn.Linear(network.num_hidden or network.num_filters, 2)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.kaiming_normal_(parameter, nonlinearity="relu")
            else:
                nn.init.zeros_(parameter)

    def forward(self, images: torch.Tensor, masks: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits (N, 2) of images (N, C, H, W); without masks no value is dropped."""
        kept = iter(masks)
        values = images
        for index, convolution in enumerate(self.convolutions):
            values = F.relu(convolution(values))
            if self.num_hidden is None and index == len(self.convolutions) - 1:
                values = values.mean(dim=(2, 3))
            else:
                values = _drop(F.max_pool2d(values, 2), kept)
        if self.num_hidden:
            values = _drop(F.relu(self.hidden(values.flatten(1))), kept)
        logits: torch.Tensor = self.classifier(values)
        return logits


class HepCnnLoss(nn.Module):
    """Mean softmax cross-entropy; every event counts alike, as in the published benchmark runs."""

    def __init__(self, network: HepCnn) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor, labels: torch.Tensor, *masks: torch.Tensor) -> torch.Tensor:
        """Scalar loss of images (N, C, H, W), labels (N,) and no or all dropout masks (N, ...)."""
        return F.cross_entropy(self.network(images, masks), labels)


def replica_factory(*, preset: Preset, local_batch: int, precision: str, source: Input) -> ReplicaFactory:
    """What builds this workload's replicas for a preset, a batch and a source of events.

    Channels come last in memory: forward and backward then take 0.77 of the time at 224x224 and 0.87 at
    64x64 (medians of 30 interleaved pairs, 1 core with AVX-512; tests/benchmark/memory_format.py).
    """
    if precision != "fp32":
        raise ValueError(f"precision {precision!r}, not fp32")
    network = NETWORKS[preset.name]

    def build(*, shard: Shard, seed: int, gate: bool = False) -> TorchReplica:
        torch.manual_seed(seed)
        loss = HepCnnLoss(HepCnn(network, input_shape=preset.input_shape))
        loss = loss.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        parameters = tuple(loss.parameters())
        optimizer: torch.optim.Optimizer
        if gate:
            optimizer = torch.optim.SGD(parameters, lr=1.0)
        else:
            optimizer = torch.optim.Adam(parameters, lr=network.learning_rate, fused=True)
        events = _events(source, preset=preset, shard=shard, local_batch=local_batch)
        if gate or source.synthetic:
            first = next(events)
            events = iter(lambda: first, None)
        if not gate:
            events = _with_masks(events, network=network, preset=preset, seed=(seed, shard.index))
        return TorchReplica([TorchObjective(loss=loss, parameters=parameters, optimizer=optimizer)], events)

    return build


class _Events(Dataset[tuple[Any, Any]]):
    """An event file as torch's DataLoader wants it: a whole batch per request."""

    def __init__(self, file: EventFile) -> None:
        self._file = file

    def __len__(self) -> int:
        return len(self._file)

    def __getitems__(self, indices: list[int]) -> Batch:
        images, labels = self._file.read(np.asarray(indices))
        return _channels_last(images), torch.from_numpy(labels)


def _events(source: Input, *, preset: Preset, shard: Shard, local_batch: int) -> Iterator[Batch]:
    """Endless local batches of (images, labels): real events, or noise with random labels."""
    if source.path is None:
        rng = np.random.default_rng((SYNTHETIC_SEED, shard.index))
        images = rng.random((local_batch, *preset.input_shape), dtype=np.float32)
        labels = rng.integers(0, 2, local_batch)
        return iter([(_channels_last(images), torch.from_numpy(labels))])
    file = EventFile(source.path)
    order = shard_indices(len(file), shard=shard, local_batch=local_batch, seed=ORDER_SEED)
    return iter(
        DataLoader(
            _Events(file),
            batch_sampler=(batch.tolist() for batch in order),
            collate_fn=lambda batch: batch,
        )
    )


def _with_masks(
    events: Iterator[Batch], *, network: Network, preset: Preset, seed: tuple[int, int]
) -> Iterator[Batch]:
    rng = np.random.default_rng(seed)
    _, height, width = preset.input_shape
    shapes = mask_shapes(network, height=height, width=width)
    for images, labels in events:
        masks = (torch.from_numpy(mask) for mask in draw_masks(rng, shapes, len(images)))
        # Drawn as (N, H, W, C); seen as (N, C, H, W), which is the memory order of the values they meet.
        yield images, labels, *(mask.permute(0, 3, 1, 2) if mask.dim() == 4 else mask for mask in masks)


def _drop(values: torch.Tensor, masks: Iterator[torch.Tensor]) -> torch.Tensor:
    mask = next(masks, None)
    return values if mask is None else values * mask * (1 / KEEP_PROBABILITY)


def _channels_last(images: np.ndarray[Any, Any]) -> torch.Tensor:
    return torch.from_numpy(images).contiguous(memory_format=torch.channels_last)
