"""Provenance: what a figure or table states so that its records can be found again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlscale.benchmarks.records.record import Record

_MAX_COMMANDS = 3  # every launch has its own
_MAX_CHARACTERS = 2000  # per command: one that lists many hosts must not fill a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The studies, systems, commits and commands of the records, each sorted and without duplicates."""

    studies: tuple[str, ...]
    systems: tuple[str, ...]
    commits: tuple[str, ...]
    commands: tuple[str, ...]  # that started the launches; empty if nothing was launched
    data_hash: str  # SHA-256 over all records that were read

    def line(self) -> str:
        """One line for metadata, of printable characters only."""
        command = self.command()
        return self.short_line() + (f"; command {command}" if command else "")

    def short_line(self) -> str:
        """`line` without the commands, for use among other lines."""
        return printable(
            f"study {', '.join(self.studies)}; system {', '.join(self.systems)}; "
            f"commit {', '.join(self.commits)}; data sha256 {self.data_hash}"
        )

    def command(self) -> str:
        """The first three commands and how many more there are, in one line; empty without any."""
        shown = [_shortened(printable(text)) for text in self.commands[:_MAX_COMMANDS]]
        more = len(self.commands) - len(shown)
        return "; ".join([*shown, f"and {more} more"] if more else shown)

    def beside(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Each row with study, data_hash and commit; only the first also has the commands, which are long."""
        where = {
            "study": ", ".join(self.studies),
            "data_hash": self.data_hash,
            "commit": ", ".join(self.commits),
        }
        for index, row in enumerate(rows):
            yield {**row, **where, "command": "" if index else self.command()}


def provenance(records: Iterable[Record]) -> Provenance:
    """The provenance of the records, failed attempts included, whatever order they were read in."""
    ordered = sorted(
        records, key=lambda record: (record.system, record.study, record.case.id, record.attempt)
    )
    digest = hashlib.sha256()
    for record in ordered:
        digest.update(record.model_dump_json(exclude={"windows"}).encode())
        for name, column in record.windows:
            digest.update(name.encode() + np.array(() if column is None else column).tobytes())
    return Provenance(
        studies=tuple(sorted({record.study for record in ordered})),
        systems=tuple(sorted({record.system for record in ordered})),
        commits=tuple(sorted({record.fingerprint.commit for record in ordered})),
        commands=tuple(sorted({record.command for record in ordered})),
        data_hash=digest.hexdigest(),
    )


def printable(text: str) -> str:
    """The text in one line: unprintable characters become Python escapes.

    The result is valid in XML 1.0 and in the text of a PNG.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}... ({len(text)} characters)"
