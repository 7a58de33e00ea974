"""The shapes of HEP-CNN's dropout masks. They are drawn for a keep probability of 1/2, hep_cnn.KEEP_PROBABILITY."""

from __future__ import annotations

from dlscale.models.hep_cnn import Network


def mask_shapes(network: Network, *, height: int, width: int) -> list[tuple[int, ...]]:
    """Shapes of one sample's masks, in the order of the layers: (H, W, C) after each pool, (units,) after dense."""
    num_pools = network.num_convolutions if network.num_hidden else network.num_convolutions - 1
    shapes: list[tuple[int, ...]] = [
        (height >> pool, width >> pool, network.num_filters) for pool in range(1, num_pools + 1)
    ]
    return [*shapes, (network.num_hidden,)] if network.num_hidden else shapes
