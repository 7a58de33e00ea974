"""What a user may set about the ring. The same names are the options of backend `ring`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`segment_bytes`: the largest message between nodes; while one is added, others travel."""

    segment_bytes: int = 256 * 1024
