"""Synchronous SGD: every step applies the mean of all ranks' gradients. The backends themselves do it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """There are none."""
