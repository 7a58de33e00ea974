"""Gradient exchange by torch's own DistributedDataParallel, over whatever its process group runs on."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlscale.collectives.backend import BUCKET_SIZES
from dlscale.collectives.training._torch import NoExchange, Setting

# Torch before 2.13 has one option for both: without it buffers are still those of rank 0 at first.
_OPTION = "forward_sync_buffers"
if _OPTION not in inspect.signature(DistributedDataParallel).parameters:
    _OPTION = "broadcast_buffers"
LOCAL_BUFFERS: dict[str, Any] = {_OPTION: False}
TORCHS_OWN_MB = 25  # of DistributedDataParallel, where nobody gives a size


class DdpExchange(NoExchange):
    """Averages gradients in DistributedDataParallel's buckets, the last of them before backward() returns.

    Gradients are views into the buckets, which saves a copy. Buffers stay local while training, as over every backend.
    """

    def __init__(self, objective: Any, *, bucket_cap_mb: int) -> None:
        super().__init__(objective)
        own = {id(parameter) for parameter in objective.parameters}
        others = [name for name, p in objective.loss.named_parameters() if id(p) not in own]
        ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
        ignore(objective.loss, others)  # type: ignore[no-untyped-call]
        self.loss = DistributedDataParallel(
            objective.loss,
            gradient_as_bucket_view=True,
            # Given, a size holds for all buckets, torch's own 25 MiB too. Left out, as users leave it, the first bucket
            # has 1 MiB, so that the exchange begins early in backpropagation.
            bucket_cap_mb=None if bucket_cap_mb == TORCHS_OWN_MB else bucket_cap_mb,
            **LOCAL_BUFFERS,
        )
        self._bucket_cap_mb = bucket_cap_mb

    def settings(self) -> dict[str, Setting]:
        """DistributedDataParallel's settings that differ from its defaults, and its buckets.

        The buckets are counted: after the first step it cuts them anew, by the order of the gradients.
        """
        counted: dict[str, Any] = self.loss._get_ddp_logging_data()  # type: ignore[operator]
        sizes = counted.get("rebuilt_bucket_sizes") or counted.get("bucket_sizes")
        return {
            **({BUCKET_SIZES: sizes.replace(" ", "")} if sizes else {}),
            "bucket_cap_mb": self._bucket_cap_mb,
            "gradient_as_bucket_view": True,
            **LOCAL_BUFFERS,
            "overlap": True,
        }

    def close(self) -> None:
        """Release DistributedDataParallel, which must not outlive its process group (`torch_distributed`)."""
        self.loss = nn.Identity()
