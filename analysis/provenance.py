"""Where numbers come from: what a figure or table must state so that anybody can find its records again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from dlscale.benchmarks.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Sorted, without repetition; several entries only where several were read."""

    studies: tuple[str, ...]
    systems: tuple[str, ...]
    commits: tuple[str, ...]
    data_hash: str  # SHA-256 over all records that were read

    def line(self) -> str:
        """One line for metadata."""
        return (
            f"study {', '.join(self.studies)}; system {', '.join(self.systems)}; "
            f"commit {', '.join(self.commits)}; data sha256 {self.data_hash}"
        )


def provenance(records: Iterable[Record]) -> Provenance:
    """Of these records, failed attempts included. The order in which they were read does not matter."""
    ordered = sorted(
        records, key=lambda record: (record.system, record.study, record.case.id, record.attempt)
    )
    digest = hashlib.sha256()
    for record in ordered:
        digest.update(record.model_dump_json().encode() + b"\n")
    return Provenance(
        studies=tuple(sorted({record.study for record in ordered})),
        systems=tuple(sorted({record.system for record in ordered})),
        commits=tuple(sorted({record.fingerprint.commit for record in ordered})),
        data_hash=digest.hexdigest(),
    )
