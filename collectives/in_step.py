"""What is true of every backend whose ranks step together and exchange gradients as they are."""

from __future__ import annotations


class InStep:
    """The part of `Backend` that such backends share; one that can do otherwise overrides it."""

    @property
    def delay(self) -> int:
        """None: a step applies its own gradients."""
        return 0

    @property
    def asynchronous(self) -> bool:
        """No: all ranks step together."""
        return False

    @property
    def num_accepted(self) -> int | None:
        """All ranks' gradients."""
        return None

    @property
    def wire(self) -> str:
        """Gradients are not rounded on their way."""
        return "float32"
