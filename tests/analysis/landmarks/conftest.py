"""A landmark of one curve with inputs that are known, which a test changes."""

from collections.abc import Callable
from typing import Any

import pytest

from dlscale.analysis.landmarks.landmark import Landmark, load_networks
from dlscale.analysis.published.catalogue import Published, load_published


def exactly(value: float) -> dict[str, Any]:
    return {"low": value, "high": value, "unit": "", "kind": "assumed", "source": "a test"}


def known(value: int) -> dict[str, Any]:
    return {"value": value, "kind": "assumed", "source": "a test"}


@pytest.fixture(scope="session")
def published() -> Published:
    """What is in the checkout."""
    return load_published()


@pytest.fixture
def landmark() -> Callable[..., Landmark]:
    """100 MB over a ring of servers with 4 devices: 0.2 s per step, 60 % of it backpropagation, 10 GB/s."""

    def make(
        inputs: dict[str, dict[str, Any]] | None = None,
        claims: tuple[dict[str, Any], ...] = (),
        overlap: str = "none",
        algorithm: str = "ring",
        flat: bool = False,
        **more: Any,
    ) -> Landmark:
        ranges = {
            "step": exactly(0.2),
            "backward": exactly(0.6),
            "rate": exactly(10e9),
            "latency": exactly(1e-9),
            "variation": exactly(1e-9),
        }
        curve = {
            "name": "a curve",
            "figures": {"powerai-ddl-3": "Torch"},
            "backend": "mpi",
            "network": "small",
            "transport": {
                "algorithm": algorithm,
                "overlap": overlap,
                "flat": flat,
                "kind": "assumed",
                "source": "a test",
            },
            "base": 4,
            "sizes": [4, 16, 64],
            "devices_per_node": known(4),
            "batch": known(32),
            **{name: name for name in ranges},
        }
        return Landmark.model_validate(
            {
                "name": "small",
                "title": "A landmark",
                "inputs": ranges | (inputs or {}),
                "device_curves": [curve | more],
                "claims": claims,
            }
        )

    return make


@pytest.fixture
def networks() -> Callable[..., dict[str, Any]]:
    """A network of 100 MB; all of its gradients are ready after backpropagation unless shares are given."""

    def make(*shares: tuple[float, float]) -> dict[str, Any]:
        like = load_networks()["resnet50"]
        gradients = like.gradients.model_copy(update={"shares": list(shares) or [(1.0, 1.0)]})
        parameters = like.num_parameters.model_copy(update={"value": 25_000_000})
        return {"small": like.model_copy(update={"gradients": gradients, "num_parameters": parameters})}

    return make
