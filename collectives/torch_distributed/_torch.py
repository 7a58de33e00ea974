"""Gradient exchange by torch's own DistributedDataParallel, over whatever its process group runs on."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlscale.collectives.backend import BUCKET_SIZES
from dlscale.collectives.training._torch import Setting, clear_gradients


class DdpExchange:
    """Averages an objective's gradients in DistributedDataParallel's buckets (`Exchange`).

    Gradients are views into the buckets, which saves a copy. Buffers stay local while training, as over every backend.
    """

    def __init__(self, objective: Any, *, bucket_cap_mb: int, process_group: Any = None) -> None:
        own = {id(parameter) for parameter in objective.parameters}
        others = [name for name, p in objective.loss.named_parameters() if id(p) not in own]
        ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
        ignore(objective.loss, others)  # type: ignore[no-untyped-call]
        self.loss: nn.Module = DistributedDataParallel(
            objective.loss,
            process_group=process_group,
            forward_sync_buffers=False,
            gradient_as_bucket_view=True,
            bucket_cap_mb=bucket_cap_mb,
        )
        self._bucket_cap_mb = bucket_cap_mb
        self._parameters = tuple(objective.parameters)

    def drain(self) -> bool:
        """Nothing is ever left over."""
        return False

    def begin(self) -> None:
        """Clear the gradients."""
        clear_gradients(self._parameters)

    def flush(self) -> None:
        """Nothing is left to send: backward() returns when the last bucket is averaged."""

    def finish(self) -> bool:
        """Nothing is left to wait for."""
        return True

    def synchronize(self) -> None:
        """Nothing is under way."""

    def settings(self) -> dict[str, Setting]:
        """DistributedDataParallel's settings that differ from its defaults, and its buckets.

        Of these it says what it counted: after the first step it cuts them anew, by the order of the gradients.
        """
        counted: dict[str, Any] = self.loss._get_ddp_logging_data()  # type: ignore[operator]
        sizes = counted.get("rebuilt_bucket_sizes") or counted.get("bucket_sizes")
        return {
            **({BUCKET_SIZES: sizes.replace(" ", "")} if sizes else {}),
            "bucket_cap_mb": self._bucket_cap_mb,
            "gradient_as_bucket_view": True,
            "forward_sync_buffers": False,
            "overlap": True,
        }

    def close(self) -> None:
        """Let go of DistributedDataParallel, which must not outlive its process group (`torch_distributed`)."""
        self.loss = nn.Identity()
